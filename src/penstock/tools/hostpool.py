"""Which of several addresses to use next, as `nsq_to_http` and `nsq_to_nsq` choose; and how long
their answers took, for the log.

No I/O: the caller asks for an address, uses it, and says how that went. Three ways to choose:

- `round-robin`: one after the other, dead or not.
- `hostpool`: one after the other of those that are alive. One that failed is dead for 30 s, and
  for twice as long after each failure that follows, to a quarter of an hour.
- `epsilon-greedy`: of those that are alive mostly the quickest one. With the chance epsilon one is
  taken at random, so that the others' times stay known; epsilon begins at 0.3 and falls by a tenth
  with each choice made to 0.01.

When all are dead the one that comes back first is used: to try is better than to stand still.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock import limits
from penstock.durations import format_duration

log = logging.getLogger("penstock.tools")

RETRY_NS = 30 * limits.SECOND
RETRY_NS_MAX = 900 * limits.SECOND
EPSILON_START = 0.3
EPSILON_DECAY = 0.9
EPSILON_MIN = 0.01
SMOOTHING = 0.2  # weight of the newest time in a host's average

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)

MODES = ("hostpool", "epsilon-greedy", "round-robin")


@dataclass
class Host:
    address: str
    dead_until_ns: int = 0  # 0: alive
    retry_ns: int = RETRY_NS
    average_ns: float = 0.0  # of its answers; 0: none yet


class HostPool:
    def __init__(
        self, addresses: Sequence[str], mode: str, mono_ns: Callable[[], int], chance: random.Random
    ) -> None:
        self.hosts = [Host(address) for address in addresses]
        self._mode = mode
        self._mono_ns = mono_ns
        self._chance = chance
        self._epsilon = EPSILON_START
        self._turn = 0

    def take(self) -> Host:
        if self._mode == "round-robin":
            return self._next_of(self.hosts)
        now_ns = self._mono_ns()
        alive = [host for host in self.hosts if host.dead_until_ns <= now_ns]
        if not alive:
            return min(self.hosts, key=lambda host: host.dead_until_ns)
        if self._mode == "epsilon-greedy":
            return self._greedy(alive)
        return self._next_of(alive)

    def _next_of(self, hosts: Sequence[Host]) -> Host:
        host = hosts[self._turn % len(hosts)]
        self._turn += 1
        return host

    def _greedy(self, alive: Sequence[Host]) -> Host:
        explore = self._chance.random() < self._epsilon
        self._epsilon = max(EPSILON_MIN, self._epsilon * EPSILON_DECAY)
        unknown = [host for host in alive if not host.average_ns]
        if unknown or explore:
            return self._next_of(unknown or alive)
        return min(alive, key=lambda host: host.average_ns)

    def succeeded(self, host: Host, took_ns: int) -> None:
        host.dead_until_ns = 0
        host.retry_ns = RETRY_NS
        took_ns = max(took_ns, 1)
        if host.average_ns:
            host.average_ns += SMOOTHING * (took_ns - host.average_ns)
        else:
            host.average_ns = float(took_ns)

    def failed(self, host: Host) -> None:
        host.dead_until_ns = self._mono_ns() + host.retry_ns
        host.retry_ns = min(2 * host.retry_ns, RETRY_NS_MAX)


class Status:
    """`note` each request; after every `every` of them a line for each address goes to the log."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._times_ns: dict[str, list[int]] = {}

    def note(self, address: str, took_ns: int) -> None:
        if self._every <= 0:
            return
        times_ns = self._times_ns.setdefault(address, [])
        times_ns.append(took_ns)
        if len(times_ns) >= self._every:
            log.info("%s", _line(address, times_ns))
            times_ns.clear()


def _line(address: str, times_ns: list[int]) -> str:
    ordered = sorted(times_ns)
    average = sum(ordered) // len(ordered)
    shown = [
        f"{100 * quantile:g}%: {_short(ordered[int(quantile * (len(ordered) - 1))])}"
        for quantile in QUANTILES
    ]
    return f"{address}: finished {len(ordered)}, average {_short(average)}, {', '.join(shown)}"


def _short(duration_ns: int) -> str:
    unit_ns = limits.MS // 1000
    return format_duration(duration_ns // unit_ns * unit_ns)
