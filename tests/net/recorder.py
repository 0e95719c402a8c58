"""Kernel, broker and links in one that only take notes: `notes` is what was called, in order."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

from penstock.net.turn import NEVER_NS, TurnOrder


class Recorder:
    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.busy = self.quiet = self.has_work = self.staying = False
        self.trace_pending = self.trace_full = False
        self.deadline_ns = 0
        self.polled: deque[list[tuple[Any, ...]]] = deque()
        self.flushed: deque[list[tuple[Any, ...]]] = deque()
        self.stayed: deque[list[tuple[Any, ...]]] = deque()
        self.tails: list[Any] = []
        self.windows: list[Any] = []
        self.conns: list[Any] = []
        self.again: dict[Any, None] = {}
        self.wait_ns = 0
        self.records = SimpleNamespace(due_ns=NEVER_NS)
        self.ticks = 0
        self.polls = 0
        self.done: deque[Any] = deque()
        self.frozen_ns = 0  # what the clock shows, if it stands still
        self.order = TurnOrder(self, self, self, self, self.done, lambda event: self.handle(event))

    def handle(self, event: tuple[Any, ...]) -> None:
        self.notes.append(("handle", event))

    # clock

    def mono_ns(self) -> int:
        return self.frozen_ns or time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    # engine

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]:
        self.polls += 1
        self.notes.append("poll")
        return self.polled.popleft() if self.polled else []

    def dirty_tails(self) -> list[Any]:
        return self.tails

    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]:
        self.notes.append("flush")
        return self.flushed.popleft() if self.flushed else []

    def dirty_windows(self) -> list[Any]:
        return self.windows

    def tick(self, mono_ns: int, wall_ns: int) -> int:
        self.ticks += 1
        self.notes.append("tick")
        return self.wait_ns

    def dirty_detached(self) -> list[Any]:
        return self.conns

    # links

    def serve(self, conns: list[Any]) -> None:
        self.notes.append(("serve", conns))

    # broker

    def write(self, tails: list[Any], wall_ns: int) -> None:
        self.notes.append(("write", tails))

    def stay(self, tail: Any) -> list[tuple[Any, ...]]:
        self.notes.append(("stay", tail))
        return self.stayed.popleft() if self.stayed else []

    def load(self, window: Any, which: int, offset: int) -> None:
        self.notes.append(("load", window, which, offset))

    def journal(self, windows: list[Any]) -> None:
        self.notes.append(("journal", windows))

    def write_trace(self) -> None:
        self.notes.append("write_trace")
        self.trace_pending = self.trace_full = False

    def synced(self) -> None:
        self.notes.append("synced")
        self.done.clear()
