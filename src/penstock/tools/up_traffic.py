"""The clients of `penstock up`, and the account that they keep of every message.

A body names its run, its publisher and a number. A publisher goes on to the next number only after
an OK: what fails is published again, as an application would, so a repeat is no fault, and a number
that was answered and never comes is a loss.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence

from penstock.client import Consumer, Producer
from penstock.errors import ClientError

TOPIC = "demo"
CHANNEL = "up"
PUBLISH_S_MAX = 7.0  # above the 5 s that a node waits for a leader
LOST_S = 15.0  # without a delivery, while all nodes run


class Account:
    """Of one publisher: numbers that were answered, and those that came."""

    def __init__(self, now_s: float) -> None:
        self.acknowledged = 0  # the next number
        self.repeats = 0
        self.waiting: dict[int, float] = {}  # answered and not delivered: since when
        self.longest_s = 0.0
        self._answered_s = now_s
        self._early: set[int] = set()  # delivered before its OK

    def answered(self, now_s: float) -> None:
        self.longest_s = max(self.longest_s, now_s - self._answered_s)
        self._answered_s = now_s
        if self.acknowledged not in self._early:
            self.waiting[self.acknowledged] = now_s
        self._early.discard(self.acknowledged)
        self.acknowledged += 1

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
    """`addresses` of the nsqds: one publisher for each, which begins there and goes on elsewhere
    when it must. `lives[n]` changes when that nsqd has come back."""

    def __init__(self, addresses: Sequence[str], rate: int, consumers: int) -> None:
        self.lives = [0] * len(addresses)
        self._addresses = list(addresses)
        self._rate = rate
        self._run = secrets.token_hex(4)
        self._stopped = False
        now_s = time.monotonic()
        self.accounts = [Account(now_s) for _ in addresses]
        self._publishers = [asyncio.create_task(self._publish(n)) for n in range(len(addresses))]
        self._consumers = [asyncio.create_task(self._consume()) for _ in range(consumers)]

    async def _publish(self, publisher: int) -> None:
        account, order = self.accounts[publisher], self._from(publisher)
        while not self._stopped:
            life = self.lives[publisher]
            producer = Producer(
                order, publish_timeout_s=PUBLISH_S_MAX, connect_required=False,
                reconnect_delay_s=0.05, reconnect_delay_max_s=0.5, stop_timeout_s=0,
            )  # fmt: skip
            try:
                await producer.start()
                while self.lives[publisher] == life and not self._stopped:
                    body = f"{self._run} {publisher} {account.acknowledged}".encode()
                    await producer.pub(TOPIC, body)
                    account.answered(time.monotonic())
                    await asyncio.sleep(1 / self._rate)
                order = self._from(publisher)
            except ClientError:
                order = [*order[1:], order[0]]
                await asyncio.sleep(0.02)
            finally:
                await producer.close(0)

    def _from(self, publisher: int) -> list[str]:
        return self._addresses[publisher:] + self._addresses[:publisher]

    async def _consume(self) -> None:
        async with Consumer(
            TOPIC, CHANNEL, self._addresses, connect_required=False, reconnect_delay_max_s=0.5
        ) as consumer:
            async for message in consumer:
                run, publisher, number = (*message.body.decode("ascii", "replace").split(), "")[:3]
                if run == self._run:
                    self.accounts[int(publisher)].delivered(int(number))
                message.fin()

    def measure(self) -> None:
        """Pauses from now on: something was done to a node."""
        for account in self.accounts:
            account.longest_s = 0.0

    def waiting(self) -> int:
        return sum(len(account.waiting) for account in self.accounts)

    def lost(self, well_since_s: float | None) -> int:
        """What was answered long ago and did not come, although all is well since then."""
        if well_since_s is None:
            return 0
        before_s = time.monotonic() - LOST_S
        return sum(
            max(since_s, well_since_s) < before_s
            for account in self.accounts
            for since_s in account.waiting.values()
        )

    async def end(self, seconds_max: float) -> None:
        """No publishes any more; what has been answered is still delivered."""
        self._stopped = True
        await asyncio.wait(self._publishers, timeout=PUBLISH_S_MAX)
        deadline_s = time.monotonic() + seconds_max
        while self.waiting() and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)
        for task in (tasks := [*self._publishers, *self._consumers]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
