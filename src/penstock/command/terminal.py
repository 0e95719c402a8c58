"""Output for people: tables, colours and progress, and none of it where a program reads.

Colours and a line that rewrites itself appear only on a terminal, and never when `NO_COLOR` is set
or `TERM` is `dumb`. rich draws them, and is imported when it does. Numbers for people are short
(`1.2M`), those for programs are exact.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, Self, TextIO

_SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))

_GAP = 2  # between columns
_PROGRESS_AFTER_S = 1.0
_NAME_MIN = 12  # a name is folded to no less

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def is_watched(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    return is_watched(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if has_colours(stream or sys.stdout) else text


def printable(text: str) -> str:
    """One line without control characters: foreign text must not command the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def short(number: float) -> str:
    """`950`, `1.2k`, `34M`: three digits at most."""
    size = abs(number)
    for unit, letter in _SHORT:
        if size >= unit * 0.9995:
            scaled = number / unit
            return f"{scaled:.1f}{letter}" if abs(scaled) < 9.95 else f"{scaled:.0f}{letter}"
    return f"{number:.0f}" if size >= 9.95 or number == int(number) else f"{number:.1f}"


def span(seconds: float) -> str:
    """`45s`, `3m12s`, `2h05m`, `3d04h`."""
    whole = int(max(0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table: the first `left` columns to the left, numbers to the right. On a terminal
    it fits: there long names are folded."""
    if is_watched(sys.stdout):
        return _fitted(heads, rows, left)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [line(heads), *(line(row) for row in rows)]


def _fitted(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    from rich.console import Console  # which takes as long as all the rest of a verb
    from rich.table import Table
    from rich.text import Text

    console = Console()
    texts = [[Text.from_ansi(cell) for cell in row] for row in rows]
    columns = [[head, *(text.plain for text in column)]
               for head, *column in zip(heads, *texts, strict=True)]  # fmt: skip
    widths = _widths(columns, left, console.width - _GAP * (len(heads) - 1))
    if not widths:
        return _blocks(heads, rows, left)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
        side: Any = "left" if index < left else "right"
        drawn.add_column(head, justify=side, width=width, overflow="fold")
    for row in texts:
        drawn.add_row(*row)
    with console.capture() as output:
        console.print(drawn)
    return [line.rstrip() for line in output.get().splitlines()]


def _widths(columns: Sequence[Sequence[str]], left: int, room: int) -> list[int]:
    """Texts of several words are wrapped first, then names. Empty: even so it does not fit."""
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) > room:
        words = [[len(word) for cell in column for word in cell.split()] for column in columns]
        widths[left:] = [max(sizes, default=0) for sizes in words[left:]]
    while sum(widths) > room and max(widths[:left]) > _NAME_MIN:
        widths[widths.index(max(widths[:left]))] -= 1
    return widths if sum(widths) <= room else []


def _blocks(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Where a row is too wide for a line: a line for each of its cells."""
    lines, width = [], max(map(len, heads[left:]), default=0)
    for row in rows:
        lines.append(painted("  ".join(row[:left]), BOLD))
        cells = zip(heads[left:], row[left:], strict=True)
        lines += [f"  {head:<{width}}  {cell}" for head, cell in cells if cell]
    return lines


class Progress:
    """One line on stderr with the progress of work that takes more than a second. Silent without a
    terminal, and without the extra `cli`: `to_nsq` does not need it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._timer: threading.Timer | None = None
        self._bar: Any = None

    def __enter__(self) -> Self:
        if is_watched(sys.stderr):
            self._timer = threading.Timer(_PROGRESS_AFTER_S, self._begin)
            self._timer.daemon = True
            self._timer.start()
        return self

    def _begin(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ModuleNotFoundError:
            return
        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[far]}"),
            TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = bar.add_task(self._what, total=None, far="")
        bar.start()
        self._bar = bar

    def show(self, done: int, total: int = 0) -> None:
        if self._bar is not None:
            far = f"{done:,} of {total:,}" if total else f"{done:,}"
            self._bar.update(self._task, completed=done, total=total or None, far=far)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()
