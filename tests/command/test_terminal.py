import io
import re
import sys
import threading
from collections.abc import Callable

import pytest

from penstock.command.terminal import Progress, painted, short, span, table


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (7, "7"), (7.25, "7.2"), (999, "999"), (999.6, "1.0k"), (1234, "1.2k"),
        (12_345, "12k"), (999_700, "1.0M"), (1_250_000, "1.2M"), (5e9, "5.0G"), (-1500, "-1.5k"),
    ],
)  # fmt: skip
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (45.9, "45s"), (192, "3m12s"), (7500, "2h05m"), (273_600, "3d04h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Tty())
    monkeypatch.setenv("COLUMNS", "30")
    lines = table(("NAME", "N"), [("long" * 10, "1"), (painted("red", "31"), "2")])
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in lines]
    assert all(len(" ".join(line)) <= 30 for line in plain)
    assert plain[0] == ["NAME", "N"]
    assert (plain[1][1], plain[-1]) == ("1", ["red", "2"])


def test_a_table_that_is_too_wide_becomes_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Tty())
    monkeypatch.setenv("COLUMNS", "30")
    heads = ("NODE", "IN FLIGHT", "DEPTH", "DELAYED")
    rows = [("127.0.0.1:4151", "1", "2", ""), ("127.0.0.1:4251", "3", "4", "5")]
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in table(heads, rows)]
    assert lines == [
        "127.0.0.1:4151", "  IN FLIGHT  1", "  DEPTH      2",
        "127.0.0.1:4251", "  IN FLIGHT  3", "  DEPTH      4", "  DELAYED    5",
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "40")  # heads in two lines will do
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in table(heads, rows)]
    assert [line.split() for line in lines[:2]] == [["IN"], ["NODE", "FLIGHT", "DEPTH", "DELAYED"]]
    assert max(map(len, lines)) <= 40


class AtOnce(threading.Thread):
    """A timer whose time is up."""

    def __init__(self, after_s: float, act: Callable[[], None]) -> None:
        super().__init__(target=act)

    def start(self) -> None:
        super().start()
        self.join()

    def cancel(self) -> None:
        """It is too late."""


def test_progress_is_seen_where_somebody_watches_and_it_takes_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick, slow = threading.Timer, AtOnce
    for stream, timer in ((io.StringIO(), slow), (Tty(), slow), (Tty(), quick)):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr("threading.Timer", timer)
        is_seen = stream.isatty() and timer is slow
        with Progress("read") as progress:
            progress.show(100, 400)
        assert ("100 of 400" in stream.getvalue()) == is_seen


def test_progress_does_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("threading.Timer", AtOnce)
    stream = Tty()
    monkeypatch.setattr("sys.stderr", stream)
    with Progress("read") as progress:
        progress.show(100, 400)
    assert stream.getvalue() == ""
