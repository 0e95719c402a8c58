"""Random faults between an idempotent producer and nsqds that remember as the broker does.

Requests and answers are lost, requests arrive late, after their connection was given up, and nsqds
refuse for a moment. Whatever happens: what was acknowledged is stored once, what was refused not at
all, what is uncertain at most once, and each nsqd has its messages in the order of the calls."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from penstock.client import IdempotentProducer, PublishTimeout, PublishUncertain
from penstock.kernel import Pack
from penstock.nsqd.stamps import pack_bodies

from .fake_web import CUT, DRAINING, FAILED, OK, REPEATED, Asked, FakeWeb, Reply

MESSAGES = 150
STORY_S_MAX = 60.0


class Node:
    """What an nsqd stores, and how it answers."""

    def __init__(self, rng: random.Random) -> None:
        self.web = FakeWeb(self.reply)
        self.stored: list[bytes] = []
        self._known: dict[int, tuple[int, int]] = {}  # epoch and next sequence of each producer
        self._rng = rng

    def take(self, asked: Asked) -> Reply:
        bodies = [asked.body]
        if asked.path == "/mpub":
            bodies = pack_bodies(Pack.FRAMED, asked.body)
        producer_id = int(asked.parameters["producer_id"])
        epoch, sequence = asked.stamp
        known_epoch, expected = self._known.get(producer_id, (epoch, 0))
        if epoch < known_epoch:
            return Reply(409, b'{"message":"PRODUCER_FENCED","epoch":%d}' % known_epoch)
        if epoch > known_epoch:
            expected = 0
        if sequence + len(bodies) <= expected:
            return REPEATED
        if sequence != expected:
            return Reply(409, b'{"message":"SEQUENCE_GAP","expected":%d}' % expected)
        self.stored += bodies
        self._known[producer_id] = epoch, sequence + len(bodies)
        return OK

    def reply(self, asked: Asked) -> Reply:
        match self._rng.randrange(12):
            case 0 | 1:
                return CUT
            case 2 | 3:
                self.take(asked)
                return CUT
            case 4:
                delay_s = self._rng.choice([0.001, 0.01, 0.1])
                asyncio.get_running_loop().call_later(delay_s, self.take, asked)
                return CUT
            case 5:
                return DRAINING
            case 6:
                return FAILED
            case 7:
                self.take(asked)
                return FAILED
        return self.take(asked)


async def publish(
    producer: IdempotentProducer, rng: random.Random
) -> dict[bytes, BaseException | None]:
    futures: dict[bytes, asyncio.Future[None]] = {}
    for number in range(MESSAGES):
        body = b"%06d" % number
        futures[body] = producer.pub("t", body)
        if rng.random() < 0.3:
            await asyncio.sleep(rng.choice([0, 0.001, 0.01]))
    outcomes = await asyncio.gather(*futures.values(), return_exceptions=True)
    return dict(zip(futures, outcomes, strict=True))


@pytest.mark.parametrize("publish_timeout_s", [0.05, STORY_S_MAX])
@pytest.mark.parametrize("count", [1, 3])
def test_nothing_twice_and_nothing_lost(count: int, publish_timeout_s: float) -> None:
    seed = random.SystemRandom().randrange(1 << 62)
    print(f"seed {seed}")
    rng = random.Random(seed)
    nodes = [Node(rng) for _ in range(count)]

    async def story() -> dict[bytes, BaseException | None]:
        for node in nodes:
            await node.web.__aenter__()
        try:
            async with IdempotentProducer(
                [node.web.address for node in nodes],
                publish_timeout_s=publish_timeout_s,
                retry_delay_s=0.001,
                retry_delay_max_s=0.01,
                batch_count_max=7,
            ) as producer:
                outcomes = await publish(producer, rng)
                await asyncio.sleep(0.15)  # the last stragglers
                return outcomes
        finally:
            for node in nodes:
                await node.web.__aexit__(None, None, None)

    outcomes = asyncio.run(asyncio.wait_for(story(), STORY_S_MAX))
    times = Counter(body for node in nodes for body in node.stored)
    for body, outcome in outcomes.items():
        if outcome is None:
            assert times[body] == 1, (body, times[body])
        elif isinstance(outcome, PublishUncertain):
            assert times[body] <= 1, (body, times[body])
        else:
            assert isinstance(outcome, PublishTimeout), repr(outcome)
            assert times[body] == 0, (body, times[body])
    for node in nodes:
        assert node.stored == sorted(node.stored)
    if publish_timeout_s == STORY_S_MAX:
        assert set(outcomes.values()) == {None}
