"""Both forms are what the interfaces say.

mypy compares the pure form and the stubs of the compiled one with them (`kernel/contract.py`). What
it cannot see, the compiled objects themselves, is looked at here, and the pure ones beside them.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.kernel import Bulk, Conn, Engine, Tail, Window
from penstock.kernel.contract import Kernel

from .turns import Side

ROOT = Path(__file__).resolve().parents[2]


def members(protocol: type) -> Iterator[tuple[str, Any]]:
    """What a protocol names: with a property, a function, or None for a variable."""
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False):
            yield from ((n, m) for n, m in vars(base).items() if not n.startswith("_"))
            yield from ((n, None) for n in vars(base).get("__annotations__", {}))


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Names and defaults, without `self`."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.default) for one in found if one.name != "self"]


def can_be_set(thing: Any, name: str) -> bool:
    """Setting it to what it is changes nothing."""
    try:
        setattr(thing, name, getattr(thing, name))
    except AttributeError:
        return False
    return True


def breaches(protocol: type, thing: Any) -> list[str]:
    """What of the protocol `thing` lacks, or has otherwise. More than it says is no breach."""
    found = []
    for name, member in members(protocol):
        if not hasattr(thing, name):
            found.append(f"{name} is missing")
        elif member is None and not can_be_set(thing, name):
            found.append(f"{name} cannot be set")
        elif inspect.isfunction(member) and parameters(member) != parameters(getattr(thing, name)):
            found.append(f"{name}{inspect.signature(getattr(thing, name))}")
    return found


def test_engine_tail_window_and_connection(side: Side) -> None:
    tail = side.tail()
    things: list[tuple[type, Any]] = [
        (Engine, side.engine),
        (Tail, tail),
        (Window, side.window(tail)),
        (Conn, side.connect()),
    ]
    assert [breaches(protocol, thing) for protocol, thing in things] == [[], [], [], []]


def test_bulk(kernel: SimpleNamespace) -> None:
    bulk = kernel.Bulk(1, 1, 0)
    assert breaches(Bulk, bulk) == []
    bulk.end()
    bulk.run()


def test_functions(kernel: SimpleNamespace) -> None:
    assert breaches(Kernel, kernel) == []
    assert len(dict(members(Kernel))) == len(vars(kernel))


class Crooked:
    """Not at all a tail."""

    def __init__(self) -> None:
        self.topic = b"t"

    @property
    def owner(self) -> None:
        return None

    def seal(self, base_id: int, timestamp_ns: int, synced_end: int) -> None: ...


def test_breaches_are_seen() -> None:
    found = breaches(Tail, Crooked())
    assert "commit_to is missing" in found
    assert "owner cannot be set" in found
    assert "seal(base_id: 'int', timestamp_ns: 'int', synced_end: 'int') -> 'None'" in found
    assert not any(one.startswith("topic") for one in found)


def test_a_form_refuses_what_is_not_its_own(
    pure: SimpleNamespace, compiled: SimpleNamespace
) -> None:
    one, other = Side(pure), Side(compiled)
    for mine, foreign in ((one, other), (other, one)):
        tail, conn = foreign.tail(), foreign.connect()
        window = foreign.window(tail)
        wrong: list[tuple[Callable[..., Any], list[Any]]] = [
            (mine.engine.window, [tail, 0]),
            (mine.engine.forget_window, [window]),
            (mine.engine.search, [window, [], 0, 0]),
            (mine.engine.detach, [conn]),
            (mine.connect().subscribe, [window]),
            (mine.connect().appended, [tail, 1]),
        ]
        for call, arguments in wrong:
            with pytest.raises(TypeError):
                call(*arguments)
    one.close()
    other.close()


SNIPPET = """
from penstock.kernel.interface import Engine as AnyEngine
from penstock.kernel.pure.engine import Engine

class More(Engine):
    extra = 1

class Less(Engine):
    dirty_tails = None  # type: ignore[assignment]

class Other(Engine):
    def wake(self, hard: bool) -> None: ...  # type: ignore[override]

ENGINES: tuple[type[AnyEngine], ...]
ENGINES = (More,)
ENGINES = (Less,)
ENGINES = (Other,)
"""


def test_mypy_refuses_a_form_with_another_member(tmp_path: Path) -> None:
    """What `contract.py` is there for: compare one that has more, less, and something else."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = [number for number, line in enumerate(SNIPPET.splitlines(), 1) if "= (" in line][1:]
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in errors] == wrong, done.stdout
    assert all("[assignment]" in line for line in errors)
