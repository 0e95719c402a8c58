import io
from collections.abc import Callable

import pytest

from cases import each
from penstock.errors import (
    BrokerRefused,
    ConfigError,
    DataLost,
    FetchFailed,
    LakeFailed,
    SchemaMismatch,
)
from penstock.pipelines.outages import Outages, cause_line, is_crash, outage_of
from penstock.pipelines.progress import Progress
from penstock.pipelines.runs import Report

AWAY = FetchFailed("http://a/log/positions", "connection refused")
STORE = "the table's store"
CRASH = Exception("[STREAM_FAILED] Python worker exited unexpectedly (crashed).")


class Waits(Progress):
    """Waits for nobody, and notes how long it would have."""

    def __init__(self) -> None:
        super().__init__("sample", 0, io.StringIO())
        self.waits: list[float] = []
        self.seen: list[tuple[bool, int]] = []  # whether it waits, and the outages so far
        self.stop_after = 1_000

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.seen.append((self.state.waiting, self.state.outages))
        if len(self.waits) >= self.stop_after:
            self.ask_to_stop()
        return self.stopping


def failing(*errors: Exception) -> Callable[[], int]:
    left = list(errors)

    def attempt() -> int:
        if left:
            raise left.pop(0)
        return 7

    return attempt


@each(
    ("error", "what"),
    [
        (AWAY, "nsqd"),
        (Exception("penstock.errors.FetchFailed: http://a: refused"), "nsqd"),
        (BrokerRefused("http://a", 503, "FAILED the disk is full", {}), "nsqd"),
        (Exception("penstock.errors.BrokerRefused: http://a: got response 503 EXITING"), "nsqd"),
        (OSError(28, "No space left on device"), "a disk"),
        (Exception("java.io.IOException: No space left on device"), "a disk"),
        (LakeFailed("s3://lake/t", "failed: Generic S3 error: Error performing PUT"), STORE),
        (Exception("OSError: Generic S3 error: Server returned 503 Slow Down"), STORE),
    ],
)
def test_errors_that_are_outages(error: Exception, what: str) -> None:
    assert outage_of(error) == what


@each(
    "error",
    [
        BrokerRefused("http://a", 400, "BAD", {}),
        ConfigError("table", "x", "No space left on device"),
        DataLost("orders", 0, "offsets 3 to 4 are gone"),
        SchemaMismatch("t", "it has no column body"),
        LakeFailed("s3://lake/t", "Generic S3 error: status code: 403 Forbidden"),
        LakeFailed("t", "Generic LocalFileSystem error: permission denied"),
        LakeFailed("t", "there is no table"),
        ValueError("no"),
    ],
)
def test_errors_that_are_not_retried(error: Exception) -> None:
    assert outage_of(error) == ""
    progress = Waits()
    with pytest.raises(type(error)):
        Outages(progress, None).ride_out(failing(error))
    assert progress.waits == []


def test_a_stop_ends_the_wait() -> None:
    progress = Waits()
    progress.stop_after = 3
    assert Outages(progress, None).ride_out(failing(*[AWAY] * 40)) is None
    assert progress.seen == [(True, 1), (True, 2), (True, 3)]


def test_processes_that_die_again_and_again_have_a_reason() -> None:
    progress = Waits()
    with pytest.raises(Exception, match="exited unexpectedly"):
        Outages(progress, None).ride_out(failing(*[CRASH] * 40))
    assert len(progress.waits) == 5


def test_a_machine_that_is_too_busy_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as --outage-wait says, and a few times in any case."""
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 9.0, 9.0))
    late = Exception(
        "[STREAM_FAILED] org.apache.spark.SparkException: Python worker failed to connect back."
    )
    assert (outage_of(late), is_crash(late)) == ("this machine", False)
    assert "not up within 10 s: this machine is overloaded (load 99" in cause_line(late)
    for wait_s, tries in ((0.0, 5), (1000.0, 40), (None, 40)):
        progress = Waits()
        if tries == 40:
            assert Outages(progress, wait_s).ride_out(failing(*[late] * 40)) == 7
        else:
            with pytest.raises(Exception, match="failed to connect back"):
                Outages(progress, wait_s).ride_out(failing(*[late] * 40))
        assert len(progress.waits) == tries


def test_rows_are_counted_over_all_attempts() -> None:
    progress = Waits()
    counts = [5, 3]

    def attempt() -> int:
        rows = counts.pop(0)
        progress.report(Report(rows, total=10), final=True)
        if counts:
            raise AWAY
        return 0

    assert Outages(progress, None).ride_out(attempt) == 0
    assert (progress.state.rows, progress.state.total) == (8, 15)
    assert not progress.state.waiting


def test_pauses_grow_until_something_was_done() -> None:
    progress = Waits()
    failures = iter(range(9))

    def attempt() -> int:
        if next(failures) == 7:
            progress.report(Report(3), final=True)
        raise AWAY

    with pytest.raises(StopIteration):
        Outages(progress, None).ride_out(attempt)
    assert progress.waits == [1, 2, 4, 8, 16, 30, 30, 1, 2]
