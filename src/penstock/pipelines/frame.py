"""What a pipeline is, and how one is run: settings, a session, an orderly end, one line of error.

Exit codes are those of the other verbs: 0 done, or stopped by a signal; 1 it failed; 2 the command
line is wrong. A pipeline may have others of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.command.flags import HelpWanted, UsageError, usage
from penstock.errors import PenstockError
from penstock.pipelines import registry, settings
from penstock.pipelines.progress import Progress, progress_for
from penstock.pipelines.settings import COMMON, Setting, Settings
from penstock.pipelines.signals import stopped_by_signals
from penstock.pipelines.trouble import cause_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.reporter import Ending

DONE, FAILED, USAGE = 0, 1, 2
_NEVER_CAUGHT = (KeyboardInterrupt, SystemExit, GeneratorExit)


def _nothing_to_check(settings: Settings) -> None:
    """For pipelines whose settings have no rules beyond their own."""


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str  # a line
    settings: tuple[Setting, ...]
    run: Callable[[SparkSession, Settings, Progress], int]
    check: Callable[[Settings], None] = _nothing_to_check  # before Spark starts
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    failed: int = FAILED  # the exit code of an error, where 1 means something else

    def usage(self) -> str:
        head = f"penstock pipeline run {self.name}: {self.summary}\n"
        return head + usage(f"penstock pipeline run {self.name}", (*COMMON, *self.settings))


def run_by_name(
    name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> int:
    """`penstock pipeline run NAME ...`. Returns the exit code."""
    places = os.environ if environment is None else environment
    pipeline: Pipeline | None = None
    try:
        document = settings.read_document(settings.config_path(name, arguments, places))
        chosen = settings.choose(name, document, registry.PIPELINES)
        pipeline = registry.load(chosen.pipeline)
        found = settings.resolve(name, pipeline.settings, arguments, places, chosen.document)
        pipeline.check(found)
    except HelpWanted:
        sys.stdout.write(pipeline.usage() if pipeline else "")
        return DONE
    except UsageError as error:
        hint = f"penstock pipeline run {name} --help" if pipeline else "penstock pipeline list"
        sys.stderr.write(f"penstock pipeline: {error}\n{hint} says more\n")
        return USAGE
    except (PenstockError, OSError) as error:
        sys.stderr.write(f"penstock pipeline {name}: {error}\n")
        return pipeline.failed if pipeline else FAILED
    return _run(pipeline, name, found)


def _run(pipeline: Pipeline, name: str, found: Settings) -> int:
    from penstock.pipelines.reporter import reported

    progress = progress_for(pipeline.name, found)
    with stopped_by_signals(progress) as take_over:
        try:
            with reported(pipeline, name, found, progress) as ending:
                _work(pipeline, found, progress, ending, take_over)
            if ending.reason:
                progress.fail(f"penstock pipeline {name}: {ending.reason}")
            return ending.code
        finally:
            progress.end()


def _work(
    pipeline: Pipeline,
    found: Settings,
    progress: Progress,
    ending: Ending,
    take_over: Callable[[], None],
) -> None:
    from penstock.pipelines.session import open_for

    code = DONE
    try:
        progress.say("Spark is starting")
        with open_for(pipeline, found) as session:
            take_over()  # PySpark has set a handler of its own
            progress.note(is_up=True)
            progress.said = ""  # it has started
            if not progress.stopping:
                code = pipeline.run(session, found, progress)
    except BaseException as error:
        if isinstance(error, _NEVER_CAUGHT):
            raise
        ending.failed(pipeline.failed, cause_line(error))
    else:
        ending.finished(code, progress.stopping)
