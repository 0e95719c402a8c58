"""A consumer against scripted nsqds: credit, turns, touches, losses and ends."""

import asyncio
from typing import Any

import pytest

from penstock import limits
from penstock.client import Consumer, Message
from penstock.errors import ClientClosed, ConfigError, MessageSettled, NameInvalid

from .fake_nsqd import FakeNsqd, OnCommand, Peer, error, message, ok, say_ok
from .server import until


def deliver(*frames: bytes) -> OnCommand:
    """Send `frames` once, at the first RDY above zero."""
    left = list(frames)

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        say_ok(peer, line, body)
        if line.startswith(b"RDY") and line != b"RDY 0":
            peer.send(b"".join(left))
            left.clear()

    return act


async def line_sent(peer: Peer, line: bytes, count: int = 1) -> None:
    """Wait until the consumer has said `line` so many times."""
    await until(lambda: peer.lines().count(line) >= count)


async def one(consumer: Consumer) -> bytes:
    found = await anext(consumer)
    found.fin()
    return found.body


async def test_credit_is_divided_anew_when_connections_come_and_go() -> None:
    async with FakeNsqd() as one, FakeNsqd() as two, FakeNsqd(max_rdy_count=3) as three:
        addresses = [one.address, two.address, three.address]
        options: dict[str, Any] = {"max_in_flight": 20, "reconnect_delay_s": 60}
        async with Consumer("t", "c", addresses, **options) as consumer:
            peers = [nsqd.peers[0] for nsqd in (one, two, three)]
            wanted = [{b"RDY 9", b"RDY 8"}, {b"RDY 3"}]
            await until(
                lambda: [{p.lines()[-1] for p in peers[:2]}, {peers[2].lines()[-1]}] == wanted
            )
            two.peers[0].hang_up()
            await line_sent(one.peers[0], b"RDY 17")
            consumer.pause()
            await line_sent(one.peers[0], b"RDY 0")
            consumer.resume()
            await line_sent(one.peers[0], b"RDY 17", 2)


async def test_fewer_in_flight_than_connections_take_turns() -> None:
    async with FakeNsqd() as one, FakeNsqd() as two:
        options: dict[str, Any] = {"max_in_flight": 1, "low_rdy_idle_s": 0.02}
        async with Consumer("t", "c", [one.address, two.address], **options):
            for nsqd in (one, two):
                await line_sent(nsqd.peers[0], b"RDY 1", 2)
                await line_sent(nsqd.peers[0], b"RDY 0", 2)


async def test_topics_share_what_may_be_in_flight() -> None:
    """Nobody may consume `forbidden`, which costs the others nothing."""

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        if line == b"SUB forbidden c":
            peer.send(error(b"E_UNAUTHORIZED AUTH failed for SUB"))
        else:
            say_ok(peer, line, body)
        if line == b"RDY 5":
            peer.send(message(1, peer.lines()[0].split(b" ")[1]))

    async with FakeNsqd(act) as nsqd, asyncio.timeout(40):
        options: dict[str, Any] = {"max_in_flight": 10, "reconnect_delay_s": 60}
        topics = ["orders", "forbidden", "refunds", "orders"]
        async with Consumer(topics, "c", nsqd.address, **options) as consumer:
            assert consumer.topics == ["orders", "forbidden", "refunds"]
            assert consumer.addresses == [nsqd.address]
            found = [await anext(consumer) for _ in range(2)]
            assert sorted((one.topic, one.body) for one in found) == [
                ("orders", b"orders"), ("refunds", b"refunds"),
            ]  # fmt: skip
            for one in found:
                one.fin()


def test_a_consumer_needs_a_topic() -> None:
    with pytest.raises(ConfigError, match="name one or several"):
        Consumer([], "c", "a:1")
    with pytest.raises(NameInvalid):
        Consumer(["good", "not good"], "c", "a:1")


async def test_settled_messages_go_out_together() -> None:
    frames = [message(number, b"%d" % number) for number in range(100)]
    async with FakeNsqd(deliver(*frames)) as nsqd:
        async with Consumer("t", "c", nsqd.address, stop_timeout_s=0.05) as consumer:
            for _ in range(50):
                (await anext(consumer)).fin()
            (await anext(consumer)).req(1.5)
            (await anext(consumer)).touch()
            await line_sent(nsqd.peers[0], b"TOUCH %016x" % 51)
            assert consumer.in_flight == 49
        lines = nsqd.peers[0].lines()
        assert lines[2:52] == [b"FIN %016x" % number for number in range(50)]
        assert lines[52] == b"REQ %016x 1500" % 50
        # Closing gives back what nobody has taken; 51 is in hand and was never settled.
        given_back = [b"REQ %016x 0" % number for number in range(52, 100)]
        assert lines[54:] == [b"CLS", *given_back]


async def test_long_work_is_touched() -> None:
    async with FakeNsqd(deliver(message(1, b"long")), msg_timeout=100) as nsqd:

        async def handle(_: Message) -> None:
            await line_sent(nsqd.peers[0], b"TOUCH %016x" % 1, 3)
            consumer.stop()

        async with Consumer("t", "c", nsqd.address, auto_touch=True) as consumer:
            await consumer.run(handle)
        touches = nsqd.peers[0].lines().count(b"TOUCH %016x" % 1)
        assert consumer.counts.touched == touches >= 3
        assert nsqd.peers[0].lines()[-1] == b"FIN %016x" % 1


async def test_touching_ends_where_nsqd_would_not_listen(caplog: pytest.LogCaptureFixture) -> None:
    granted = {"msg_timeout": 600, "max_msg_timeout": 1500}
    async with FakeNsqd(deliver(message(1, b"held")), **granted) as nsqd:
        consumer = Consumer("t", "c", nsqd.address, auto_touch=True)
        async with consumer:
            held = await anext(consumer)
            await asyncio.sleep(2.5)  # enough for eight touches
            touches = nsqd.peers[0].lines().count(b"TOUCH %016x" % 1)
            assert 1 <= touches <= 5
            assert f"message {held.id} is held for too long" in caplog.text
            held.fin()


async def test_other_tasks_run_while_a_backlog_is_consumed() -> None:
    count, turns = 2 * limits.CLIENT_TURNS_APART, 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    nsqd = FakeNsqd(deliver(*(message(number, b"x") for number in range(count))))
    async with nsqd, Consumer("t", "c", nsqd.address, max_in_flight=count) as consumer:
        await until(lambda: consumer.counts.received == count)
        task = asyncio.create_task(another())
        for _ in range(count):
            await one(consumer)
        task.cancel()
    assert 1 <= turns <= 3


async def test_messages_of_a_lost_connection_are_not_handed_out() -> None:
    frames = [message(number, b"%d" % number) for number in range(3)]
    async with FakeNsqd(deliver(*frames)) as nsqd:
        options: dict[str, Any] = {"reconnect_delay_s": 0.005}
        async with Consumer("t", "c", nsqd.address, **options) as consumer:
            first = await anext(consumer)
            nsqd.peers[0].hang_up()
            await until(lambda: len(nsqd.peers) >= 2)
            await line_sent(nsqd.peers[1], b"RDY 200")
            assert first.lost
            first.fin()  # says nothing to nobody
            with pytest.raises(MessageSettled):
                first.fin()
            nsqd.peers[1].send(message(9, b"again"))
            again = await anext(consumer)
            assert (again.body, again.lost) == (b"again", False)
            again.fin()


async def test_what_is_no_frame_behind_the_first_answer_ends_the_connection() -> None:
    """In one read with it."""
    broken = [b"\xff" * 8]

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        if line.startswith(b"SUB"):
            peer.send(ok() + (broken.pop() if broken else message(1, b"one")))

    async with (
        asyncio.timeout(40),
        FakeNsqd(act) as nsqd,
        Consumer("t", "c", nsqd.address, reconnect_delay_s=0.01, stop_timeout_s=0) as consumer,
    ):
        assert await one(consumer) == b"one"


async def test_late_answers_are_counted_and_harmless() -> None:
    def act(peer: Peer, line: bytes, body: bytes) -> None:
        say_ok(peer, line, body)
        if line.startswith(b"RDY 2"):
            peer.send(message(1, b"one") + message(2, b"two"))
        if line == b"FIN %016x" % 1:
            peer.send(error(b"E_FIN_FAILED FIN %016x failed ID not in flight" % 1))

    async with FakeNsqd(act) as nsqd:
        async with Consumer("t", "c", nsqd.address) as consumer:
            (await anext(consumer)).fin()
            await until(lambda: consumer.counts.late)
            (await anext(consumer)).fin()
        assert len(nsqd.peers) == 1


async def test_stop_hands_out_received_messages_and_ends() -> None:
    frames = [message(number, b"%d" % number) for number in range(10)]
    async with FakeNsqd(deliver(*frames)) as nsqd:
        async with Consumer("t", "c", nsqd.address) as consumer:
            bodies = []
            async for found in consumer:
                bodies.append(found.body)
                found.fin()
                consumer.stop()
        assert bodies == [b"%d" % number for number in range(10)]
        assert nsqd.peers[0].lines().count(b"CLS") == 1
        with pytest.raises(ClientClosed):
            await consumer.start()


async def test_stop_does_not_wait_for_an_nsqd_that_hangs() -> None:
    def act(peer: Peer, line: bytes, body: bytes) -> None:
        if line != b"CLS":
            say_ok(peer, line, body)

    async with (
        asyncio.timeout(40),
        FakeNsqd(act) as nsqd,
        Consumer("t", "c", nsqd.address, connect_timeout_s=1) as consumer,
    ):
        consumer.stop()
        assert [message async for message in consumer] == []


async def test_close_waits_for_running_handlers_but_not_forever() -> None:
    async with FakeNsqd(deliver(message(1, b"one"), message(2, b"two"))) as nsqd:
        async with Consumer("t", "c", nsqd.address) as consumer:
            held = await anext(consumer)
            asyncio.get_running_loop().call_later(0.03, held.fin)
        assert nsqd.peers[0].lines()[-1] == b"FIN %016x" % 1
    async with asyncio.timeout(40), FakeNsqd(deliver(message(1, b"one"))) as nsqd:
        consumer = Consumer("t", "c", nsqd.address, stop_timeout_s=0.02)
        async with consumer:
            await anext(consumer)


async def test_waiting_ends_when_the_consumer_closes() -> None:
    async with FakeNsqd() as nsqd, asyncio.timeout(40):
        async with Consumer("t", "c", nsqd.address) as consumer:
            waiting = [asyncio.create_task(one(consumer)) for _ in range(3)]
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, StopAsyncIteration)


async def test_a_worker_that_is_cancelled_leaves_its_message_to_another() -> None:
    async with FakeNsqd() as nsqd, Consumer("t", "c", nsqd.address) as consumer:
        first, second = (asyncio.create_task(one(consumer)) for _ in range(2))
        await asyncio.sleep(0)
        nsqd.peers[0].send(message(1, b"one"))
        while not consumer.counts.received:
            await asyncio.sleep(0)
        first.cancel()
        assert (await asyncio.gather(first, second, return_exceptions=True))[1] == b"one"


async def test_a_wrong_delay_settles_nothing() -> None:
    async with FakeNsqd(deliver(message(1, b"one"))) as nsqd:
        async with Consumer("t", "c", nsqd.address) as consumer:
            found = await anext(consumer)
            with pytest.raises(ConfigError, match="delay_s"):
                found.req(-1)
            found.fin()
        assert b"FIN %016x" % 1 in nsqd.peers[0].lines()
