"""Java that is there, not there, or too old; and the work of tasks."""

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from cases import each
from penstock.errors import ConfigError
from penstock.spark import offsets, session
from penstock.spark.offsets import Log, Range
from penstock.spark.session import require_java
from penstock.spark.source import PenstockSource, StreamReader


def fake_java(home: Path, text: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)


class Builder:
    def config(self, **_: object) -> "Builder":
        return self

    def getOrCreate(self) -> str:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark sets one of its own
        return "a session"


def test_the_signal_handler_of_a_pipeline_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered then starts a Python process, which takes seconds."""
    seen = []
    monkeypatch.setattr(SparkSession, "builder", Builder())
    for name in ("require_java", "register_functions", "_start_java_apart"):
        monkeypatch.setattr(session, name, lambda *_: None)
    monkeypatch.setattr(session, "register", lambda _: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.getsignal(signal.SIGINT)
    session.open_session("sample", java_apart=True)
    assert seen == [before]


@each("version_text", ['java version "1.8.0_202"', 'openjdk version "11.0.2"', "what"])
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_text: str
) -> None:
    fake_java(tmp_path, version_text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Java 17 or newer"):
        require_java()


def test_java_is_found_at_home_or_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("21", "17.0.15"):
        fake_java(tmp_path, f'openjdk version "{version}" 2025-04-15')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert require_java() == str(tmp_path / "bin/java")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    assert require_java() == str(tmp_path / "bin/java")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"java: None .* install a JRE"):
        require_java()


def test_spark_finds_the_source_by_itself() -> None:
    import pyspark_penstock

    assert pyspark_penstock.DefaultSource is PenstockSource
    assert PenstockSource.name() == "penstock"
    assert issubclass(StreamReader, SupportsTriggerAvailableNow)


# --- what the tasks of a batch read ---


A = Log("a", "one", 0)
B = Log("b", "two", 0)


@each(
    ("least", "most", "sizes"),
    [
        (None, None, [100, 10]),
        (None, 30, [25, 25, 25, 25, 10]),
        (2, None, [100, 10]),
        (11, None, [10] * 11),
        (4, 60, [25, 25, 25, 25, 10]),
        (1000, None, [1] * 110),
    ],
)
def test_ranges_are_split_for_tasks(least: int | None, most: int | None, sizes: list[int]) -> None:
    ranges = [Range(A, 7, 107), Range(B, 0, 10)]
    pieces = offsets.split(ranges, least, most)
    assert [piece.size for piece in pieces] == sizes
    covered = [(p.log, i) for p in pieces for i in range(p.start, p.end)]
    assert covered == [(r.log, i) for r in ranges for i in range(r.start, r.end)]


def small(*sizes: int) -> list[Range]:
    return [Range(Log(f"t{n}", "one", 0), 5, 5 + size) for n, size in enumerate(sizes)]


@each(
    ("sizes", "rows_max", "least", "packed"),
    [
        ((), 10, None, []),
        ((3, 3, 3, 3), 10, None, [[3, 3, 3], [3]]),
        ((30, 3, 3, 30, 1), 10, None, [[30], [3, 3], [30], [1]]),
        ((5, 5, 5), 10, None, [[5, 5], [5]]),
        ((2, 2, 2, 2), 100, 2, [[2, 2], [2, 2]]),
        ((2, 2, 2, 2), 100, 4, [[2], [2], [2], [2]]),
        ((2, 2), 100, 8, [[2], [2]]),
    ],
)
def test_small_ranges_share_a_task(
    sizes: tuple[int, ...], rows_max: int, least: int | None, packed: list[list[int]]
) -> None:
    found = offsets.packed(small(*sizes), rows_max, least)
    assert [[one.size for one in each] for each in found] == packed
    assert [one for each in found for one in each] == small(*sizes)
