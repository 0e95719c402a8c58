"""How the suite is shared between workers, and which of it is quick.

`make test` runs one worker for each core. A file's tests stay together, since they share daemons.
What talks to Spark stays together in two pieces, since a session costs ten seconds and half a
gigabyte. The cores' own tests come first, as they alone are measured for coverage and what Spark
or a browser leaves behind in a process could cost some of it. Then come files that take long, so
that no worker is left alone with one at the end.

A test is `quick` unless it starts a JVM, a browser or a crowd of processes, or plays histories for
longer than a few seconds: the files in SLOW, measured. `make test ARGS="-m quick"` runs the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pathlib import Path

ONE_SESSION = ("tests/spark/", "tests/pipelines/")
SLOW = (
    *ONE_SESSION,
    "tests/nsqadmin/pages/",
    "tests/e2e/",
    "tests/conformance/",
    "tests/broker/commits/test_commits_crashes.py",
    "tests/log/test_power_loss.py",
    "tests/test_build.py",
    "tests/simulation/protocol/test_histories.py",
    "tests/benchmark/",
    "tests/tools/test_demo.py",
    "tests/tools/test_sql.py",
    "tests/takeover/test_takeover.py",
    "tests/broker/test_crashes",
    "tests/log/test_verify.py",
    "tests/nsqadmin/test_crowd.py",
    "tests/nsqadmin/test_openapi.py",
    "tests/nsqadmin/test_restart.py",
    "tests/nsqadmin/test_several.py",
)
CORES = tuple(f"tests/{core}/" for core in ("kernel", "wire", "ids", "log", "broker", "takeover"))
# Where coverage of the cores is measured: roles of a replica are played by three nodes together.
MEASURED = (
    *CORES,
    "tests/simulation/brokers/",
    "tests/cluster/test_client_channels.py",
    "tests/cluster/test_dead_letter_storm.py",
    "tests/cluster/test_dead_letters.py",
    "tests/cluster/test_joined.py",
    "tests/cluster/test_ordered.py",
    "tests/cluster/test_rotten.py",
    "tests/cluster/test_stages.py",
    "tests/cluster/test_storm.py",
)
# Histories in masses: what the first of them takes of the branches the next ones take again, and
# the tracer doubles their time.
HISTORIES = (
    "tests/log/test_power_loss.py",
    "tests/log/test_replica_power_loss.py",
    "tests/broker/commits/test_commits_crashes.py",
    "tests/cluster/test_dead_letter_storm.py",
    "tests/cluster/test_storm.py",
    "tests/kernel/test_keyorder_stories.py",
    "tests/simulation/brokers/test_histories.py",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One file, or a folder that shares a session of Spark, is one piece of work."""

    def _split_scope(self, nodeid: str) -> str:
        path: str = nodeid.split("::", 1)[0]
        return next((start for start in ONE_SESSION if path.startswith(start)), path)


def arrange(items: list[pytest.Item], root: Path) -> None:
    """Mark the quick tests, and bring the cores' and those that take long to the front."""
    ranks = {}
    begun: set[str] = set()
    for item in items:
        path = item.path.relative_to(root).as_posix()
        rank = _rank(path, SLOW)
        if rank == len(SLOW) and not item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.quick)
        if not is_measured(item, path, begun):
            item.add_marker(pytest.mark.no_cover)
        ranks[item] = (not path.startswith(MEASURED), rank)
    items.sort(key=ranks.__getitem__)


def is_measured(item: pytest.Item, path: str, begun: set[str]) -> bool:
    """Coverage slows what it measures, so it is measured where it says something: in the cores' own
    tests, over the plain form of the kernel, of which the compiled one is the twin, and in the
    first of many histories. `begun` are the tests of histories that have had theirs."""
    if not path.startswith(MEASURED):
        return False
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return True
    if "compiled" in callspec.id.split("-"):
        return False
    name = item.nodeid.partition("[")[0]
    is_first = name not in begun
    if path.startswith(HISTORIES):
        begun.add(name)
    return is_first


def _rank(path: str, slow: Iterable[str]) -> int:
    """The place of the first entry that the path begins with; behind all of them if none."""
    places = [place for place, start in enumerate(slow) if path.startswith(start)]
    return min(places, default=len(tuple(slow)))
