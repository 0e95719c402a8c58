"""One line out of what Spark throws.

An error in one of our data sources reaches the driver as text within a Java exception within a
Python exception, a hundred lines long. What a person needs is the one line that our code wrote.
"""

from __future__ import annotations

import re

from penstock.errors import FetchFailed, PenstockError

_OURS = re.compile(r"\bpenstock\.errors\.(\w+): ([^\n]+)")
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): ([^\n]+)", re.MULTILINE)
_JAVA_NOISE = re.compile(r"^(?:(?:org|java|py4j|scala)(?:\.\w+)+\.(?:\w|\$)+(?:: )?)+")
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")
_CRASH = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|EOFException"
    r"|Stream closed|Socket closed|Broken pipe|Connection reset|no cause message"
)
_LINE_CHARS_MAX = 500


def our_error(error: BaseException) -> tuple[str, str] | None:
    """(class, text) of the error that our own code raised, wherever it stands."""
    if isinstance(error, PenstockError):
        return type(error).__name__, str(error)
    found = _OURS.search(str(error))
    return (found[1], found[2].strip()) if found else None


def is_passing(error: BaseException) -> bool:
    """nsqd could not be reached: it may be back any time."""
    ours = our_error(error)
    return ours is not None and ours[0] == FetchFailed.__name__


def is_crash(error: BaseException) -> bool:
    """A Python process of Spark's died: somebody killed it, or the memory ran out. Spark says it in
    the words of whoever talked to that process."""
    return our_error(error) is None and _CRASH.search(str(error)) is not None


def cause_line(error: BaseException) -> str:
    """What went wrong, in one line, without Spark's frames."""
    ours = our_error(error)
    if ours is not None:
        return ours[1]
    text = str(error).strip()
    python = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    if python:
        kind, said = python[-1]
        return _cut(f"{kind}: {said}")
    lines = [_JAVA_NOISE.sub("", line.strip().removeprefix(": ")) for line in text.splitlines()]
    first = next((line for line in lines if line and not _is_frame(line)), "")
    said = _SQLSTATE.sub("", _STREAM.sub("", first))
    name = type(error).__name__
    return _cut(said if name in said or said != first or not said else f"{name}: {said}") or name


def _is_frame(line: str) -> bool:
    return line.startswith(("at ", "An error occurred while calling", "JVM stacktrace"))


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS_MAX else line[: _LINE_CHARS_MAX - 3] + "..."
