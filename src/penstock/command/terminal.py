"""What people see: tables, colours and progress, and none of it where a program reads.

Colours and a line that rewrites itself appear only on a terminal, and never when `NO_COLOR` is set
or `TERM` is `dumb`. Numbers for people are short (`1.2M`), those for programs are exact.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

_SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_PROGRESS_EVERY_SECONDS = 0.1

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


def is_watched(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    return is_watched(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if has_colours(stream or sys.stdout) else text


def printable(text: str) -> str:
    """One line without control characters: what others have written must not command the
    terminal."""
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
    """Lines of a table: the first `left` columns to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [painted(line(heads), BOLD), *(line(row) for row in rows)]


class Progress:
    """One line on stderr that says how far a long work is. Silent where nobody watches."""

    def __init__(self, what: str, total: int = 0, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._watched = is_watched(self._stream)
        self._began = self._shown = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if self._watched and now - self._shown >= _PROGRESS_EVERY_SECONDS:
            self._shown = now
            self._stream.write(f"\r\x1b[K{self._line(done, now)}")
            self._stream.flush()

    def end(self) -> None:
        if self._watched:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self, done: int, now: float) -> str:
        seconds = max(now - self._began, 1e-9)
        rate = done / seconds
        line = f"{self._what}: {done:,}"
        if self._total:
            left = (self._total - done) / rate if rate else 0
            line += f" of {self._total:,} ({100 * done // self._total} %), {span(left)} left"
        return f"{line}, {short(rate)}/s"
