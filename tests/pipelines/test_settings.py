import io
from datetime import UTC, datetime
from typing import Any

import pytest

from cases import each
from penstock.command.flags import UsageError
from penstock.errors import ConfigError
from penstock.pipelines import replay, trace
from penstock.pipelines import settings as under_test
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings
from penstock.pipelines.times import read_moment, say_moments
from spark.fakebroker import FakeBroker, FakeCluster

from .sample import PIPELINE, defaults


def resolve(
    *arguments: str, name: str = "sample", environment: Any = None, document: Any = None
) -> Settings:
    return under_test.resolve(name, PIPELINE.settings, arguments, environment or {}, document or {})


def test_the_first_place_wins() -> None:
    document = {"url": "http://a", "report_every": "3s", "sample": {"topics": ["t"], "rows": 5}}
    found = resolve(document=document)
    assert (found.texts("topics"), found.number("rows")) == (("t",), 5)
    assert (found.text("url"), found.seconds("report-every")) == ("http://a", 3.0)
    environment = {"PENSTOCK_SAMPLE_ROWS": "6", "PENSTOCK_ROWS": "99"}
    assert resolve(document=document, environment=environment).number("rows") == 6
    found = resolve("--rows", "7", "-once", document=document, environment=environment)
    assert (found.number("rows"), found.flag("once")) == (7, True)
    assert found.explicit == {"rows", "once", "topics", "url", "report-every"}


@pytest.mark.parametrize("name", ["PENSTOCK_SAMPLE_ROW", "PENSTOCK_SAMPLE_XYZ"])
def test_a_misspelt_variable_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment: '{name}' is not valid: there is no such"):
        under_test.resolve("sample", PIPELINE.settings, [], {name: "6"}, {})


def test_a_table_of_another_name_has_its_own_environment() -> None:
    document = {"nightly": {"pipeline": "sample", "topics": ["t"]}}
    environment = {"PENSTOCK_NIGHTLY_ROWS": "8", "PENSTOCK_SAMPLE_ROWS": "6"}
    found = resolve(name="nightly", document=document, environment=environment)
    assert found.number("rows") == 8
    assert under_test.choose("nightly", document, ["sample"]) == "sample"
    assert under_test.choose("sample", document, ["sample"]) == "sample"


@each(
    ("document", "output"),
    [
        ({"sample": {"topic": ["t"]}}, "sample.topic: .*the keys are .*topics, rows"),
        ({"tpics": 1, "sample": {"topics": ["t"]}}, "tpics: 1 is not valid: the keys are url"),
        ({"sample": {"topics": ["t"], "rows": "many"}}, "sample.rows: 'many'.*whole number"),
        ({"sample": {"topics": ["t"], "rows": 1.5}}, "sample.rows: 1.5 .* float does not fit"),
        ({"sample": {"topics": ["t"], "config": "x"}}, "sample.config"),
        ({"sample": {"topics": ["t"]}, "conf": {"spark": {"x": 1}}}, "with the name in quotes"),
    ],
)
def test_a_bad_key_is_named(document: dict[str, Any], output: str) -> None:
    with pytest.raises(ConfigError, match=output):
        resolve(document=document)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], r"topics: \(\) is not valid: it is needed: topics to look at"),
        (["--topics=t", "--rows=0"], "rows: 0 is not valid: 1 to 1000"),
        (["--topics=t", "--rows=1001"], "1 to 1000"),
        (["--topics=t", "--trigger=10ms"], "trigger: '10ms' is not valid: 1s at least"),
    ],
)
def test_rules(arguments: list[str], output: str) -> None:
    with pytest.raises(ConfigError, match=output):
        resolve(*arguments)


def test_spark_settings_of_the_line_go_before_the_file() -> None:
    document = {"conf": {"spark.a": 1, "spark.b": True}, "sample": {"topics": ["t"]}}
    found = resolve("--conf", "spark.a=2", "-conf=spark.c=x,y=z", document=document)
    assert found.conf == {"spark.a": "2", "spark.b": "true", "spark.c": "x,y=z"}


@pytest.mark.parametrize(
    "document",
    [
        {"nightly": {"topics": ["t"]}},
        {"nightly": {"pipeline": "nope"}},
        {"sample": {"pipeline": "other"}},
    ],
)
def test_a_table_that_is_for_nothing_is_named(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\[(nightly|sample)\].*a table is named after"):
        under_test.choose("sample", document, ["sample", "other"])


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["--rows", "1", "--config", "a.toml"], "a.toml"),
        (["-config=b.toml"], "b.toml"),
        (["--config"], ""),
        ([], "c.toml"),
    ],
)
def test_where_the_file_is(arguments: list[str], path: str) -> None:
    environment = {"PENSTOCK_SAMPLE_CONFIG": "c.toml"}
    assert under_test.config_path("sample", arguments, environment) == path


# --- times as people give and read them ---


NOW = datetime(2026, 9, 22, tzinfo=UTC)


@each("text", ["1790000000", "1790000000000", "1790000000000000000", "2026-09-21T14:13:20Z"])
def test_every_pipeline_means_the_same_time_and_says_it(text: str) -> None:
    output = io.StringIO()
    assert read_moment("from", text, NOW) == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    tables = (
        (replay.SETTINGS, "since", {"to": "orders"}),
        (trace.SETTINGS, "from", {"table": "t"}),
    )
    for table, name, needed in tables:
        settings = defaults(table, **{name: text}, **needed)
        say_moments(Progress("any", 0, output), settings, NOW, name)
    assert output.getvalue().count(f"{text} is 2026-09-21T14:13:20Z") == 2


@pytest.mark.parametrize("arguments", [["--nope"], ["--mood=ugly"], ["--conf", "spark.x"]])
def test_a_wrong_line(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        resolve("--topics=t", *arguments)


def test_the_first_node_that_answers_is_asked() -> None:
    with FakeBroker() as one, FakeBroker() as two:
        settings = defaults((), url=f"{one.url}, {two.url}")
        with pytest.raises(ConfigError, match="this nsqd is in none"):
            under_test.nsqd_of(settings)
        FakeCluster([one, two], {})
        assert under_test.nsqd_of(settings).url == one.url
        one.hangups = 1000
        assert under_test.nsqd_of(settings).url == two.url
