"""One history of the whole world as a person can read it: each event that changed a node."""

from __future__ import annotations

from penstock.sim.protocol.observer import Breach
from penstock.sim.whole.histories import play
from penstock.sim.whole.world import WholeWorld


class Timeline:
    def __init__(self, seed: int) -> None:
        self.lines = [f"seed {seed}"]
        self.breach = ""
        self._before: list[str] = []
        try:
            tally = play(seed, happened=self._happened).tally
        except Breach as breach:
            self.breach = str(breach)
            self.lines.append(f"BROKEN {breach}")
        else:
            self.lines.append(f"everything held: {tally.answered} messages answered OK")

    def _happened(self, world: WholeWorld, step: int, event: str) -> None:
        record = world.coordinator.record
        leader = "no node" if record.leader is None else f"node {record.leader.node}"
        members = " ".join(f"{m.node}(r{m.replica} g{m.generation})" for m in record.members)
        now = [
            f"record  epoch {record.epoch}, {leader} leads, members {members}",
            *(f"node {machine.number}  {machine.state()}" for machine in world.machines),
        ]
        changed = [line for line in now if line not in self._before]
        if changed:
            self.lines.append(f"{step:4} {event.replace('_', ' ')}")
            self.lines += [f"     {line}" for line in changed]
        self._before = now

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
