"""Which tests `make test` runs, and how they are shared between workers.

`make test` is what a change must pass in minutes: each behaviour once, at the lowest level that
shows it. A test marked `long`, and every test of a file in LONG, runs only in `make test-long`:
histories in masses, all seeds, disk images, power losses by the hundred, figures of time, most of
Spark and of the browser.

A file's tests stay together, since they share daemons. What talks to Spark is one piece of work,
because a session costs ten seconds and half a gigabyte, and so are nsqadmin's tests, because theirs
takes ten seconds too before it serves. Pieces that take long start first, so that no worker is left
alone with one at the end.
"""

from collections import defaultdict
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_NETWORK = "tests/e2e/cluster/test_network.py"  # its bridges disturb a browser at work
PIECES = (("tests/spark/", "tests/pipelines/"), ("tests/nsqadmin/", _NETWORK))
LONG = (
    "tests/benchmark/",
    "tests/broker/commits/test_commits_crashes.py",
    "tests/cluster/test_storm.py",
    "tests/e2e/test_disk_full.py",
    "tests/e2e/test_power_loss.py",
    "tests/log/test_replica_power_loss.py",
    "tests/nsqadmin/pages/",
    "tests/nsqadmin/test_crowd.py",
    "tests/nsqadmin/test_full_disk.py",
    "tests/nsqadmin/test_openapi.py",
    "tests/nsqadmin/test_sockets.py",
    "tests/pipelines/audit/test_program.py",
    "tests/pipelines/audit/test_real.py",
    "tests/pipelines/test_delta_filters.py",
    "tests/pipelines/test_lake_examples.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_functions.py",
    "tests/spark/test_kills.py",
    "tests/test_build.py",
    "tests/test_chart.py",
    "tests/test_deploy.py::test_the_image_is_as_dockerfiles_should_be",
    "tests/test_extras.py",
    "tests/test_release.py::test_github_understands_it",
    "tests/tools/test_demo.py::test_messages_are_archived_beside_the_traffic",
)
# Of the tests that start Spark or a browser, the smallest set that shows each promise.
NOT_LONG = (
    "tests/nsqadmin/pages/test_pages.py::test_making_and_deleting_a_topic",
    "tests/nsqadmin/pages/test_pages.py::test_quick_open",
    "tests/pipelines/test_archive.py::test_keys_and_headers_come_with_their_messages",
    "tests/pipelines/test_replay.py::test_a_table_comes_back_in_order_and_once",
    "tests/pipelines/test_trace_pipeline.py::test_every_event_is_in_the_table_once_and_reported",
    "tests/spark/test_real_nsqd.py::test_a_stream_goes_on_after_nsqd_was_killed",
    "tests/spark/test_sink.py::test_a_batch_that_is_done_again_changes_nothing",
    "tests/spark/test_sink.py::test_a_write_is_one_commit",
    "tests/spark/test_sink.py::test_refused_rows_go_into_a_table_once",
)
# Measured: these take longest, so they start first.
FIRST = (*PIECES[0], *PIECES[1], "tests/takeover/", "tests/e2e/", "tests/conformance/")
SLOWEST_SHOWN = 10


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One file, or the folders that share what is slow to start, is one piece of work."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = nodeid.split("::", 1)[0]
        return next((piece[0] for piece in PIECES if path.startswith(piece)), path)


def is_long(nodeid: str, starts_spark: bool) -> bool:
    if nodeid.startswith(NOT_LONG):
        return False
    return starts_spark or nodeid.startswith(LONG)


def has_only_long(path: str) -> bool:
    """Whether a file need not even be imported where long tests do not run."""
    return path.startswith(LONG) and not any(kept.startswith(path) for kept in NOT_LONG)


def arrange(items: list[pytest.Item]) -> None:
    """Mark the long tests, and bring to the front what takes longest."""
    ranks = {}
    for item in items:
        starts_spark = "java" in getattr(item, "fixturenames", ())
        if is_long(item.nodeid, starts_spark):
            item.add_marker(pytest.mark.long)
        if starts_spark:  # which leaves its sockets to the collector
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        places = [place for place, start in enumerate(FIRST) if item.nodeid.startswith(start)]
        ranks[item] = min(places, default=len(FIRST))
    items.sort(key=ranks.__getitem__)


class SlowestFiles:
    """Prints at the end of a run where its time went."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.split("::", 1)[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        slowest = sorted(self._seconds.items(), key=lambda entry: -entry[1])
        terminalreporter.section("slowest files")
        for path, seconds in slowest[:SLOWEST_SHOWN]:
            terminalreporter.line(f"{seconds:7.1f} s  {path}")
        total = sum(self._seconds.values())
        terminalreporter.line(f"{total:7.1f} s  in all {len(slowest)} files, over all workers")
