"""The client library when things go wrong: kill -9, slow work, stops under load, nodes that come
and go. Every story counts its messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Consumer, Message, Producer
from penstock.errors import ConnectionLost

from .daemon import Daemon

END_S_MAX = 120.0
QUICK: dict[str, Any] = {"reconnect_delay_s": 0.02, "reconnect_delay_max_s": 0.2}


def start(path: Path, *flags: str) -> Daemon:
    return Daemon(path, "--durability=os", *flags).start()


def where(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


def start_again(daemon: Daemon) -> None:
    """On the ports it had, so that clients find it again."""
    daemon.flags += [
        f"--tcp-address=127.0.0.1:{daemon.tcp_port}",
        f"--http-address=127.0.0.1:{daemon.http_port}",
    ]
    daemon.start()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", "--durability=os") as daemon:
        yield daemon


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Daemon]]:
    with ExitStack() as stack:
        made = [Daemon(tmp_path / name, "--durability=os").spawn() for name in "abc"]
        for daemon in made:
            stack.callback(daemon.kill)
            daemon.wait_until_ready()
        yield made


async def drain(consumer: Consumer, wanted: set[bytes]) -> Counter[bytes]:
    """Finish messages until all that are wanted have come."""
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(END_S_MAX):
        async for message in consumer:
            seen[message.body] += 1
            message.fin()
            if len(seen) == len(wanted):
                break
    assert set(seen) == wanted
    return seen


@pytest.mark.parametrize("retry", [True, False])
def test_kill_in_the_middle_of_publishing(daemon: Daemon, retry: bool) -> None:
    """With `retry` everything arrives, some of it twice perhaps. Without it everything that was
    answered OK arrives, and everything else said that it is unknown."""
    bodies = [b"%d" % number for number in range(60_000)]

    outcomes: list[Any] = []
    killed: list[int] = []

    def kill() -> None:
        killed.append(len(outcomes))
        daemon.kill()

    async def publish(producer: Producer) -> None:
        for begin in range(0, len(bodies), 500):
            window = [producer.pub("t", body) for body in bodies[begin : begin + 500]]
            outcomes.extend(await asyncio.gather(*window, return_exceptions=True))
            if len(outcomes) == 20_000:
                asyncio.get_running_loop().call_later(0.02, kill)
                asyncio.get_running_loop().call_later(0.3, start_again, daemon)

    async def story() -> None:
        async with Producer(where(daemon), retry=retry, **QUICK) as producer:
            await publish(producer)
        assert 20_000 <= killed[0] < len(bodies)
        answered = {body for body, o in zip(bodies, outcomes, strict=True) if o is None}
        unknown = [o for o in outcomes if o is not None]
        assert all(isinstance(o, ConnectionLost) for o in unknown)
        assert len(unknown) == 0 if retry else len(unknown) <= 500
        async with Consumer("t", "c", where(daemon), max_in_flight=1000) as consumer:
            seen: set[bytes] = set()
            async with asyncio.timeout(END_S_MAX):
                async for message in consumer:
                    seen.add(message.body)
                    message.fin()
                    if seen >= answered:
                        break

    asyncio.run(story())


def test_a_consumer_survives_a_kill(daemon: Daemon) -> None:
    bodies = {b"%d" % number for number in range(20_000)}

    async def story() -> None:
        async with Producer(where(daemon)) as producer:
            await producer.pub_many("t", bodies)
        async with Consumer("t", "c", where(daemon), max_in_flight=100, **QUICK) as consumer:
            seen: set[bytes] = set()
            async with asyncio.timeout(END_S_MAX):
                async for message in consumer:
                    seen.add(message.body)
                    message.fin()
                    if len(seen) == 5_000 and consumer.counts.connections == 1:
                        daemon.kill()
                        start_again(daemon)
                    if len(seen) == len(bodies):
                        break
            assert seen == bodies
            assert consumer.counts.connections == 2

    asyncio.run(story())


def test_slow_work_is_touched(daemon: Daemon) -> None:
    async def story() -> None:
        attempts = []

        async def handle(message: Message) -> None:
            attempts.append(message.attempts)
            await asyncio.sleep(4.5)
            if len(attempts) == 3:
                consumer.stop()

        async with Producer(where(daemon)) as producer:
            await producer.mpub("t", [b"slow"] * 3)
        options: dict[str, Any] = {"message_timeout_s": 3.0, "auto_touch": True}
        async with Consumer("t", "c", where(daemon), **options) as consumer:
            await consumer.run(handle, concurrency=3)
        assert attempts == [1] * 3
        assert consumer.counts.touched > 0
        found = daemon.channel_stats("t", "c")
        assert (found["depth"], found["in_flight_count"], found["timeout_count"]) == (0, 0, 0)

    asyncio.run(story())


def test_a_stop_under_load_loses_nothing_and_repeats_nothing(daemon: Daemon) -> None:
    bodies = {b"%d" % number for number in range(30_000)}

    async def story() -> None:
        seen: Counter[bytes] = Counter()

        async def handle(message: Message) -> None:
            if len(message.body) % 3 == 0:
                await asyncio.sleep(0)
            seen[message.body] += 1

        async with Producer(where(daemon)) as producer:
            await producer.pub_many("t", bodies)
        for part in range(4):
            options: dict[str, Any] = {"max_in_flight": 500}
            async with Consumer("t", "c", where(daemon), **options) as consumer:
                running = asyncio.create_task(consumer.run(handle, concurrency=10))
                while len(seen) < 5_000 * (part + 1):
                    await asyncio.sleep(0)
                consumer.stop()
                await running
            found = daemon.channel_stats("t", "c")
            assert found["in_flight_count"] == 0
            assert found["depth"] == len(bodies) - len(seen)
        async with Consumer("t", "c", where(daemon), max_in_flight=500) as consumer:
            seen += await drain(consumer, bodies - set(seen))
        assert seen == Counter(bodies)

    asyncio.run(story())


def test_leaving_the_loop_gives_the_rest_back(daemon: Daemon) -> None:
    """`break` with hundreds of messages in the queue: another consumer has them at once."""
    bodies = {b"%d" % number for number in range(1_000)}

    async def story() -> None:
        async with Producer(where(daemon)) as producer:
            await producer.pub_many("t", bodies)
        seen: set[bytes] = set()
        async with Consumer("t", "c", where(daemon), max_in_flight=800) as consumer:
            async for message in consumer:
                seen.add(message.body)
                message.fin()
                if len(seen) == 10:
                    break
        async with Consumer("t", "c", where(daemon), max_in_flight=800) as consumer:
            async with asyncio.timeout(30):  # far less than the timeout of a message
                await drain(consumer, bodies - seen)

    asyncio.run(story())


async def credits(daemons: list[Daemon], wanted: list[int]) -> None:
    """Wait until each nsqd has been told to send so many."""
    async with asyncio.timeout(END_S_MAX):
        while True:
            found = []
            for daemon in daemons:
                clients = daemon.channel_stats("t", "c")["clients"]
                found.append(sum(client["ready_count"] for client in clients))
            if found == wanted:
                return
            await asyncio.sleep(0.01)


def test_three_nsqds_share_and_one_goes_away(three: list[Daemon]) -> None:
    bodies = {b"%d.%d" % (place, number) for place in range(3) for number in range(500)}

    async def story() -> None:
        addresses = [where(daemon) for daemon in three]
        async with Consumer("t", "c", addresses, max_in_flight=30, **QUICK) as consumer:
            await credits(three, [10, 10, 10])
            three[1].kill()
            await credits([three[0], three[2]], [15, 15])
            start_again(three[1])
            await credits(three, [10, 10, 10])
            for place, address in enumerate(addresses):
                async with Producer(address) as producer:
                    own = [body for body in bodies if body.startswith(b"%d." % place)]
                    await producer.mpub("t", own)
            assert await drain(consumer, bodies) == Counter(bodies)

    asyncio.run(story())


def test_fewer_in_flight_than_nsqds(three: list[Daemon]) -> None:
    """RDY goes round: with one message in flight at a time all of three nsqds are emptied."""
    bodies = {b"%d.%d" % (place, number) for place in range(3) for number in range(40)}

    async def story() -> None:
        addresses = [where(daemon) for daemon in three]
        for place, address in enumerate(addresses):
            async with Producer(address) as producer:
                await producer.mpub("t", [b for b in bodies if b.startswith(b"%d." % place)])
        options: dict[str, Any] = {"low_rdy_idle_s": 0.1, "low_rdy_hold_s": 0.2}
        async with Consumer("t", "c", addresses, max_in_flight=1, **options) as consumer:
            seen: Counter[bytes] = Counter()
            async with asyncio.timeout(END_S_MAX):
                async for message in consumer:
                    assert consumer.in_flight == 1
                    seen[message.body] += 1
                    message.fin()
                    if len(seen) == len(bodies):
                        break
        assert seen == Counter(bodies)

    asyncio.run(story())
