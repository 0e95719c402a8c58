"""A history of the whole world, moment by moment: what its links carry is read from the bytes."""

from __future__ import annotations

from functools import partial

from penstock.broker.ports import Lane
from penstock.replica.frames import Frames
from penstock.sim.protocol.observer import Breach
from penstock.sim.timeline import Moments, Timeline, record_text
from penstock.sim.whole.histories import play
from penstock.sim.whole.world import WholeWorld


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


def timeline(seed: int) -> Timeline:
    moments, breach, summary = Moments(), "", "3 nodes"
    try:
        tally = play(seed, make=partial(_Recorded, moments)).tally
    except Breach as error:
        breach = str(error)
    else:
        summary = f"3 nodes, {tally.answered} messages answered OK"
    return Timeline(seed, summary, tuple(moments.found), breach)
