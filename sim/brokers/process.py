"""A broker without a daemon: the daemon's turn, a clock that stands still, sync jobs that end when
the history says so."""

from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.options import BrokerOptions
from penstock.clock import NEVER_NS
from penstock.kernel import Event
from penstock.net.turn import TurnOrder
from sim.clock import FakeClock
from sim.threads import Threads

TURNS_MAX = 2_000  # each FIN of a channel that has left the node takes one


class Process:
    def __init__(
        self,
        path: Path,
        kernel: ModuleType,
        disk: Any,
        clock: FakeClock | None = None,
        threads: Threads | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self.kernel = kernel
        self.trace_due = True  # events are stored in every turn
        self.disk = disk
        self.clock = clock or FakeClock()
        self.options = BrokerOptions(**{"disk_free_bytes_min": 0, **options})
        self.threads = threads or Threads()
        self.engine = kernel.Engine(1 << 20, 5 << 20, 2500)
        self.broker = Broker(self.engine, self.disk, path, self.options, self.clock, self.threads)
        self.events: list[tuple[Any, ...]] = []  # other than NEED
        self.order = TurnOrder(
            self.engine, self.broker, NoLinks(), self.clock, self.threads.done, self._handle
        )

    def _handle(self, event: tuple[Any, ...]) -> None:
        self.events.append(event)
        if event[0] in (Event.LINE, Event.FIN_FAILED):  # nothing subscribed, or in flight, any more
            event[1].resume()

    def turn(self) -> None:
        """The daemon's, until it has nothing more to do at this instant."""
        self.threads.between_turns()
        for _ in range(TURNS_MAX):
            self.order.trace_due_ns = 0 if self.trace_due else NEVER_NS
            more, _ = self.order.tick()
            if not more:
                break
        else:
            raise RuntimeError("a turn that does not end")
        self.validate()

    def validate(self) -> None:
        """After each turn."""
        self.broker.validate()


class NoLinks:
    """Consumers take their output themselves."""

    def __init__(self) -> None:
        self.again: dict[Any, None] = {}

    def serve(self, conns: list[Any]) -> None:
        pass
