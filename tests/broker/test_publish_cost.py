"""What one publish costs beside the kernel and the disk: the calls that its turn makes.

With one publish per round trip they are most of what Penstock itself can save, and each rule that
comes to stand on this way brings some. So their number is kept, and a new one has to be wanted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock.clock import SteadyClock

from .world import World

Start = Callable[..., World]
FUNCTION_CALLS_MAX = 19
BUILTIN_CALLS_MAX = 7
SOURCE = str(Path(penstock.__file__).parent)
KERNEL = str(Path(SOURCE, "kernel"))


class Calls:
    """Of functions in this package, and of those in C that they call; the kernel's are left out."""

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        self.builtins: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, what: Any) -> None:
        path = frame.f_code.co_filename
        if not path.startswith(SOURCE) or path.startswith(KERNEL):
            return
        if event == "call":
            self.functions[frame.f_code.co_qualname] += 1
        elif event == "c_call" and not type(what.__self__).__module__.startswith("penstock.kernel"):
            self.builtins[what.__qualname__] += 1


def test_a_turn_with_one_publish_makes_few_calls(start: Start) -> None:
    world = start(clock=SteadyClock(), durability="os")
    topic = world.broker.topic("t")
    calls = Calls()
    for _ in range(3):  # the first one makes files
        topic.leader().tail.append(b"x")
        mono_ns = world.clock.mono_ns()
        calls = Calls()
        before = sys.getprofile()
        sys.setprofile(calls.note)
        try:
            world.order.run(mono_ns)
        finally:
            sys.setprofile(before)
    assert topic.leader().log.written_end == 3
    assert calls.builtins["pwritev"] == 1
    assert calls.functions.total() <= FUNCTION_CALLS_MAX, calls.functions
    assert calls.builtins.total() <= BUILTIN_CALLS_MAX, calls.builtins
