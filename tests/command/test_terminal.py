from __future__ import annotations

import io

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
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_table_lines_up_names_left_and_numbers_right() -> None:
    lines = table(("NAME", "N"), [("a", "1"), ("longer", "200")])
    assert lines == ["NAME      N", "a         1", "longer  200"]


def test_colours_only_where_someone_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert painted("x", "31", io.StringIO()) == "x"
    assert painted("x", "31", Tty()) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("x", "31", Tty()) == "x"


def test_progress_is_silent_in_a_pipe() -> None:
    stream = io.StringIO()
    progress = Progress("read", 10, stream)
    progress.show(5)
    progress.end()
    assert stream.getvalue() == ""


def test_progress_says_how_far_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 102.0, 102.05])
    monkeypatch.setattr("penstock.command.terminal.time.monotonic", lambda: next(clock))
    stream = Tty()
    progress = Progress("read", 400, stream)
    progress.show(100)
    progress.show(101)  # too soon after the one before
    assert stream.getvalue() == "\r\x1b[Kread: 100 of 400 (25 %), 6s left, 50/s"
