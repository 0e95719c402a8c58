"""The clients of `penstock demo` and `penstock up`: their measurements, and their account of every
message.

A body names its run, its publisher and a number. A publisher goes on to the next numbers only after
an OK: what fails is published again, as an application would, so a repeat is no fault, and a number
that was answered and never comes is a loss.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.client import Consumer, Message, Producer
from penstock.errors import ClientError

TOPIC = "demo"
PUBLISH_S_MAX = 7.0  # above the 5 s that a node waits for a leader
LOST_S = 15.0  # without a delivery, while all nodes run
BATCHES_PER_SECOND = 50  # at most: above that rate a publish has several messages
IN_FLIGHT_MAX = 500
LATENCIES_MAX = 100_000  # per second of display; more say nothing new


class Body(msgspec.Struct):
    number: int
    publisher: int
    run: str
    made_at: float
    pad: str = ""


_decode = msgspec.json.Decoder(Body).decode


@dataclass
class Meter:
    """Counts and delays since the last look, and in total."""

    name: str
    total: int = 0
    recent: int = 0
    delays_ms: list[float] = field(default_factory=list)

    def add(self, count: int, delay_ms: float) -> None:
        self.total += count
        self.recent += count
        if len(self.delays_ms) < LATENCIES_MAX:
            self.delays_ms.append(delay_ms)

    def line(self, what: str, delay: str) -> str:
        """Of the messages since the last call."""
        count, delays = self.recent, sorted(self.delays_ms) or [0.0]
        self.recent, self.delays_ms = 0, []
        return (
            f"{self.name:<9} {what:<12} {count:>7,}/s  total {self.total:>11,}  {delay} p50 "
            f"{delays[len(delays) // 2]:7.2f} ms  p99 {delays[len(delays) * 99 // 100]:7.2f} ms"
        )


class Account:
    """For one publisher: acknowledged numbers, and received ones."""

    def __init__(self, now_s: float) -> None:
        self.acknowledged = 0  # the next number
        self.repeats = 0
        self.waiting: dict[int, float] = {}  # answered and not delivered: since when
        self.longest_s = 0.0
        self._answered_s = now_s
        self._early: set[int] = set()  # delivered before its OK

    def answered(self, now_s: float, count: int = 1, are_to_come: bool = True) -> None:
        self.longest_s = max(self.longest_s, now_s - self._answered_s)
        self._answered_s = now_s
        for number in range(self.acknowledged, self.acknowledged + count):
            if are_to_come and number not in self._early:
                self.waiting[number] = now_s
            self._early.discard(number)
        self.acknowledged += count

    def delivered(self, number: int) -> None:
        if number < self.acknowledged and self.waiting.pop(number, None) is not None:
            return
        if number < self.acknowledged or number in self._early:
            self.repeats += 1
        else:
            self._early.add(number)

    def pause_s(self, now_s: float) -> float:
        """The present one counts, too."""
        return max(self.longest_s, now_s - self._answered_s)


class Traffic:
    """`addresses` of the nsqds: one publisher for each, which begins there and moves on if it must.
    `channels` are the numbers of consumers; messages of `accounted` are checked."""

    def __init__(
        self,
        addresses: Sequence[str],
        rate: int,
        channels: Mapping[str, int],
        size: int = 0,
        accounted: str = "",
    ) -> None:
        """`rate` of each publisher, in messages a second; `size` of a body at least."""
        self._addresses = list(addresses)
        self._rate, self._size = rate, size
        self._run = secrets.token_hex(4)
        self._stopped = False
        now_s = time.monotonic()
        self.accounts = [Account(now_s) for _ in addresses]
        self.published = Meter("producer")
        self.consumed = {name: Meter(name) for name in channels}
        self._accounted = accounted
        self._publishers = [asyncio.create_task(self._publish(n)) for n in range(len(addresses))]
        self._consumers = [
            asyncio.create_task(self._consume(name))
            for name, count in channels.items()
            for _ in range(count)
        ]

    async def _publish(self, publisher: int) -> None:
        order = self._addresses[publisher:] + self._addresses[:publisher]
        while not self._stopped:
            producer = Producer(
                order, publish_timeout_s=PUBLISH_S_MAX, connect_required=False,
                reconnect_delay_s=0.05, reconnect_delay_max_s=0.5, stop_timeout_s=0,
                client_id="producer",
            )  # fmt: skip
            try:
                async with producer:
                    await self._publish_to(producer, publisher)
            except ClientError:
                order = [*order[1:], order[0]]
                await asyncio.sleep(0.02)

    async def _publish_to(self, producer: Producer, publisher: int) -> None:
        """In small batches, each of which waits for its OK."""
        account, count = self.accounts[publisher], max(1, self._rate // BATCHES_PER_SECOND)
        next_s = time.monotonic()
        while not self._stopped:
            first, sent_s = account.acknowledged, time.monotonic()
            bodies = [self._body(publisher, first + number) for number in range(count)]
            await producer.mpub(TOPIC, bodies)
            now_s = time.monotonic()
            account.answered(now_s, count, bool(self._accounted))
            self.published.add(count, (now_s - sent_s) * 1000)
            next_s = max(next_s + count / self._rate, now_s - 1.0)
            await asyncio.sleep(next_s - now_s)

    def _body(self, publisher: int, number: int) -> bytes:
        body = Body(number, publisher, self._run, time.time())
        body.pad = "." * (self._size - len(msgspec.json.encode(body)))
        return msgspec.json.encode(body)

    async def _consume(self, channel: str) -> None:
        async with Consumer(
            TOPIC, channel, self._addresses, connect_required=False, reconnect_delay_max_s=0.5,
            client_id=f"{channel}-consumer", max_in_flight=IN_FLIGHT_MAX,
        ) as consumer:  # fmt: skip
            async for message in consumer:
                message.fin()
                delay_ms = (time.time_ns() - message.timestamp_ns) / 1e6
                self.consumed[channel].add(1, delay_ms)
                if channel == self._accounted:
                    self._delivered(message)

    def _delivered(self, message: Message) -> None:
        try:
            body = _decode(message.body)
        except msgspec.DecodeError:
            return  # of somebody else
        if body.run == self._run:
            self.accounts[body.publisher].delivered(body.number)

    def measure(self) -> None:
        """Pauses from now on: something was done to a node."""
        for account in self.accounts:
            account.longest_s = 0.0

    def account(self, well_since_s: float | None) -> str:
        accounts, now_s = self.accounts, time.monotonic()
        return (
            f"acknowledged {sum(one.acknowledged for one in accounts):,}   on their way "
            f"{self.waiting()}   lost {self.lost(well_since_s)}"
            f"   repeats {sum(one.repeats for one in accounts)}"
            f"   longest pause {max(one.pause_s(now_s) for one in accounts):.2f} s"
        )

    def waiting(self) -> int:
        return sum(len(account.waiting) for account in self.accounts)

    def lost(self, well_since_s: float | None) -> int:
        """Acknowledged long ago and not received, although all has been well since then."""
        if well_since_s is None:
            return 0
        before_s = time.monotonic() - LOST_S
        return sum(
            max(since_s, well_since_s) < before_s
            for account in self.accounts
            for since_s in account.waiting.values()
        )

    async def end(self, seconds_max: float = 0.0) -> None:
        """Publishing stops; acknowledged messages are still delivered, if there is time."""
        self._stopped = True
        if seconds_max:
            await asyncio.wait(self._publishers, timeout=PUBLISH_S_MAX)
        deadline_s = time.monotonic() + seconds_max
        while self.waiting() and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)
        for task in (tasks := [*self._publishers, *self._consumers]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
