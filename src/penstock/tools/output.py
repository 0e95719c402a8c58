"""The end of a verb of `penstock`, and its output for people and for programs.

Exit codes: 0 done, 1 it failed (one line on stderr says why), 2 the command line is wrong, 130
Ctrl-C within something that was not done. A verb that goes on until Ctrl-C ends with 0. Where 2
means that the installation is in trouble, wrong use is 3, as in monitoring.

What destroys asks for the name of the thing; `--yes` stands for the answer, and is needed where
nobody is there to ask.
"""

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock import limits
from penstock.command import terminal
from penstock.errors import PenstockError

DONE, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT

Row = dict[str, Any]
Column = tuple[str, str, Callable[[Any], str]]  # its head, the key of a row, how a value is shown

# The heads of figures, by their keys in JSON; others are named by themselves.
_HEADS = {
    "client_count": "CONN", "channel_count": "CHANNELS", "deferred_count": "DELAYED",
    "finish_count": "FINISHED", "in_flight_count": "IN FLIGHT", "in_rate": "IN/s",
    "message_count": "MESSAGES", "oldest_age_seconds": "OLDEST", "out_rate": "OUT/s",
    "ready_count": "READY", "requeue_count": "REQUEUED", "timeout_count": "TIMED OUT",
    "topic_count": "TOPICS", "connected_seconds": "CONNECTED", "stored_bytes": "STORED",
    "unsynced_bytes": "UNSYNCED", "up_seconds": "UP",
}  # fmt: skip


class WrongUse(PenstockError):
    """Arguments that do not go together, that are missing, or that cannot be right."""


class Output(NamedTuple):
    """The answer of a verb: the document for a program (`--json`), the lines for a person."""

    document: Any
    lines: Iterable[str] = ()
    code: int = DONE
    errors: Iterable[object] = ()  # for a person, on stderr
    one_line: bool = False  # of the document

    def print(self, as_json: bool) -> int:
        """The exit code."""
        if as_json:
            indent = None if self.one_line else 2
            print(json.dumps(self.document, indent=indent, ensure_ascii=False), flush=True)
        else:
            print("".join(f"{line}\n" for line in self.lines), end="", flush=True)
            for error in self.errors:
                print(error, file=sys.stderr)
        return self.code


def confirm(yes: bool, question: str, name: str) -> None:
    """For irreversible actions: a person types the name of the thing, a program gives --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise PenstockError(f"{question}: give --yes (stdin is not a terminal)")
    print(f"{question}? Type {name} to do it: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise PenstockError("nothing was done")


def figures(*keys: str) -> tuple[Column, ...]:
    """Columns of a table for people: a figure is short, in the unit that its key ends with."""
    units = {"bytes": size, "seconds": terminal.span}
    return tuple(
        (_HEADS.get(key, key.upper()), key, units.get(key.rpartition("_")[2], terminal.short))
        for key in keys
    )


def texts(show: Callable[[Any], str] = str, /, **keys: str) -> tuple[Column, ...]:
    """Columns by key, with their heads."""
    return tuple((head, key, show) for key, head in keys.items())


def columns_table(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], left: int = 1
) -> list[str]:
    """Lines of a table; missing values are empty."""
    cells = [
        [
            "" if row.get(key) is None and show is not plain else show(row.get(key))
            for _, key, show in columns
        ]
        for row in rows
    ]
    return terminal.table([head for head, _, _ in columns], cells, left)


def size(count: float) -> str:
    return f"{terminal.short(count)}B"


def plain(value: object) -> str:
    """A value of JSON in a cell."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "-"
    return terminal.printable(f"{value:.0f}" if isinstance(value, float) else str(value))


def when(time_ns: int) -> str:
    """In UTC, with microseconds."""
    try:
        moment = datetime.fromtimestamp(time_ns // limits.SECOND, UTC)
    except (OverflowError, ValueError, OSError):  # a time that no calendar has
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % limits.SECOND // 1000:06d}Z"


def system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"  # one without a name, as in a container
