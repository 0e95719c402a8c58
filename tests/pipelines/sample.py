"""A pipeline for the tests of the frame: it needs no broker, and fails when it is told to."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock import limits
from penstock.command.flags import Kind
from penstock.errors import ConfigError, DataLost
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import Pipeline
from penstock.pipelines.runs import Report
from penstock.pipelines.settings import COMMON, Setting, Settings

NAME = "sample"


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    if settings.text("mood") == "bad":
        raise DataLost("orders", 0, "offsets 3 to 4 are gone")
    rows = session.range(settings.number("rows")).count()
    progress.report(Report(rows), final=True)
    return 0


def check(settings: Settings) -> None:
    if settings.number("rows") == 13:
        raise ConfigError("rows", 13, "it brings bad luck")


PIPELINE = Pipeline(
    NAME,
    "count to some number",
    (
        Setting("topics", Kind.STRINGS, (), "topics to look at", required=True),
        Setting("rows", Kind.INT, 10, "how far to count", bounds=(1, 1000)),
        Setting("mood", Kind.STRING, "good", "how it ends", choices=("good", "bad")),
        Setting(
            "trigger", Kind.DURATION, limits.SECOND, "time between", bounds=(limits.SECOND, None)
        ),
        Setting("once", Kind.BOOL, False, "stop at the end"),
    ),
    run,
    check,
)


def defaults(table: Sequence[Setting], /, **changed: Any) -> Settings:
    """`table_path` is the setting `table-path`."""
    given = {name.replace("_", "-"): value for name, value in changed.items()}
    values = {setting.name: setting.default for setting in (*COMMON, *table)}
    assert given.keys() <= values.keys()
    for setting in (*COMMON, *table):
        setting.check(given.get(setting.name, setting.default))
    return Settings(values | given, given)
