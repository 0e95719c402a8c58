"""A disk that ends the process at a chosen call: so a test can end it at every one, in turn."""

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
