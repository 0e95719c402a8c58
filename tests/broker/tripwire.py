"""A disk that ends the process at a chosen call: so a test can end it at every one, in turn."""

import random
from collections.abc import Callable, Sequence

from sim.disk import Call, Fault, SimDisk


class Stop(BaseException):
    """The process ends here."""


class Tripwire(SimDisk):
    """Every call that changes something counts, and one of them is the last."""

    calls = 0
    last = 0

    def due_fault(self, call: Call, path: str) -> Fault | None:
        if call not in ("open", "read"):
            self.calls += 1
            if self.last and self.calls >= self.last:
                raise Stop
        return super().due_fault(call, path)


def interrupted(
    disk: Tripwire, steps: Sequence[int], seed: int | None, run: Callable[[], object]
) -> bool:
    """A run that ends at each of these steps. No seed: the process is killed there. Else the power
    goes, and the seed says what is left. True when the last step lay within the run."""
    ended = False
    for number, step in enumerate(steps):
        disk.calls, disk.last = 0, step
        try:
            run()
            ended = False
        except Stop:
            ended = True
        disk.last = 0
        if seed is None:
            disk.kill()
        else:
            disk.crash(random.Random(seed * 1000 + step + number))
    return ended


def steps_of(run: Callable[[Sequence[int]], bool]) -> int:
    """How many there are, when it was interrupted at every one."""
    step = 1
    while run([step]):
        step += 1
    return step
