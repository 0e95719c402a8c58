"""A history of the whole world, moment by moment: what its links carry is read from the bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.broker.ports import Lane
from penstock.limits import SECOND
from penstock.replica.frames import Frames
from sim.protocol.observer import Breach
from sim.timeline import Moments, Timeline, record_text
from sim.whole.clocked import ClockedWorld
from sim.whole.histories import Played, play, play_clocked
from sim.whole.world import WholeWorld


class _Recorded(WholeWorld):
    def __init__(self, moments: Moments, seed: int, kernel: str, canary: bool) -> None:
        self._moments = moments
        super().__init__(seed, kernel, canary)

    def send(self, source: int, target: int, lane: Lane, frames: list[bytes]) -> None:
        reader = Frames(source)
        for data in frames:
            for _, one in reader.feed(data):
                self._moments.sent(source, target, one)
        super().send(source, target, lane, frames)

    def happened(self, step: int, event: str) -> None:
        states = [machine.state() for machine in self.machines]
        self._moments.happened(step, event, record_text(self.coordinator.record), states)


class _RecordedOnClock(ClockedWorld):
    """A moment for each trouble, and for each change of the record."""

    def __init__(self, moments: Moments, seed: int, kernel: str, canary: bool) -> None:
        self._moments = moments
        self._number = 0
        super().__init__(seed, kernel, canary)
        self.happened("the beginning")

    def send(self, source: int, target: int, lane: Lane, frames: list[bytes]) -> None:
        reader = Frames(source)
        for data in frames:
            for _, one in reader.feed(data):
                self._moments.sent(source, target, one)
        super().send(source, target, lane, frames)

    def watch_record(self) -> None:
        before = self.changes_count
        super().watch_record()
        if self.changes_count != before:
            self.happened("the record changes")

    def happened(self, event: str) -> None:
        seconds = self.schedule.now_ns / SECOND
        states = [machine.state() for machine in self.machines]
        self._moments.happened(
            self._number, f"{seconds:.3f} s: {event}", record_text(self.record()), states
        )
        self._number += 1


def timeline(seed: int) -> Timeline:
    return _timeline(seed, lambda moments: play(seed, make=partial(_Recorded, moments)))


def clocked_timeline(seed: int) -> Timeline:
    return _timeline(
        seed, lambda moments: play_clocked(seed, make=partial(_RecordedOnClock, moments))
    )


def _timeline(seed: int, play_it: Callable[[Moments], Played]) -> Timeline:
    moments, breach, summary = Moments(), "", "3 nodes"
    try:
        tally = play_it(moments).tally
    except Breach as error:
        breach = str(error)
    else:
        summary = f"3 nodes, {tally.answered} messages answered OK"
    return Timeline(seed, summary, tuple(moments.found), breach)
