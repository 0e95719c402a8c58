"""Handlers against a scripted nsqd: what their outcomes mean, and what slows the consumer down."""

import asyncio
import logging
import sys
from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock

import pytest

from cases import each
from penstock.client import Action, Consumer, HandlerTimeout, Message, Requeue
from penstock.client.handlers import check_async
from penstock.errors import ConfigError

from .fake_nsqd import FakeNsqd, Peer, message, say_ok
from .test_consumer import deliver, line_sent


def settled(nsqd: FakeNsqd) -> list[bytes]:
    """What the consumer did with its messages, in order; the number stands for the id."""
    lines = nsqd.peers[0].lines()
    return [line.replace(b"0" * 15, b"") for line in lines if line[:3] in (b"FIN", b"REQ")]


async def run(frames: list[bytes], handler: Any, options: dict[str, Any], **how: Any) -> Any:
    """(what was settled, the consumer), once the handler was called with `last`."""

    async def handle(found: Message) -> None:
        if found.body == b"last":
            consumer.stop()
        else:
            await handler(found)

    last = message(15, b"last")
    async with FakeNsqd(deliver(*frames, last)) as nsqd:
        async with asyncio.timeout(40), Consumer("t", "c", nsqd.address, **options) as consumer:
            await consumer.run(handle, **how)
        return settled(nsqd), consumer


async def fail(found: Message) -> None:
    raise ValueError(found.body)


async def test_outcomes() -> None:
    async def handle(found: Message) -> None:
        if found.body == b"settles":
            found.req(7)
        if found.body == b"asks":
            raise Requeue(2.5, backoff=False)
        if found.body == b"fails":
            raise ValueError(found.body)

    frames = [message(1, b"returns"), message(2, b"settles"), message(3, b"asks")]
    frames += [message(4, b"fails", attempts=3), message(5, b"fails", attempts=70)]
    lines, consumer = await run(frames, handle, {"requeue_delay_s": 10, "requeue_delay_max_s": 60})
    assert lines == [
        b"FIN 1", b"REQ 2 7000", b"REQ 3 2500", b"REQ 4 30000", b"REQ 5 60000", b"FIN f",
    ]  # fmt: skip
    assert (consumer.counts.given_up, consumer.counts.requeued) == (0, 4)


async def test_the_last_failure_is_given_up_at_once(caplog: pytest.LogCaptureFixture) -> None:
    spent = []

    async def give_up(found: Message) -> None:
        error = sys.exception()
        spent.append((found.body, error.args[0] if error is not None else None))
        if found.body == b"no grave":
            raise Requeue(1.5)

    frames = [message(1, b"early"), message(2, b"spent", attempts=3)]
    frames += [message(3, b"crashed", attempts=4), message(4, b"no grave", attempts=3)]
    options = {"max_attempts": 3, "requeue_delay_s": 10}
    lines, consumer = await run(frames, fail, options, on_giving_up=give_up)
    assert spent == [(b"spent", b"spent"), (b"crashed", None), (b"no grave", b"no grave")]
    assert lines == [b"REQ 1 10000", b"FIN 2", b"FIN 3", b"REQ 4 1500", b"FIN f"]
    assert consumer.counts.given_up == 2
    errors_logged = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert [
        "comes again after 10 s" in errors_logged[0],
        "for the last time" in errors_logged[1],
    ] == [True, True]


def by_function(found: Message, error: Exception) -> Action:
    assert error.args == (found.body,)
    return "drop" if found.body == b"one" else Requeue(4)


@each(
    ("on_error", "lines"),
    [
        (None, [b"REQ 1 90000", b"REQ 2 180000"]),
        ({KeyError: "drop"}, [b"REQ 1 90000", b"REQ 2 180000"]),
        ({Exception: "requeue", ValueError: "drop"}, [b"FIN 1", b"FIN 2"]),
        ({Exception: Requeue(3)}, [b"REQ 1 3000", b"REQ 2 3000"]),
        ({ValueError: "give_up"}, [b"FIN 1", b"FIN 2"]),
        (by_function, [b"FIN 1", b"REQ 2 4000"]),
    ],
)
async def test_policies(on_error: Any, lines: list[bytes]) -> None:
    spent = []

    async def give_up(found: Message) -> None:
        spent.append(found.body)

    frames = [message(1, b"one"), message(2, b"two", attempts=2)]
    how = {"on_error": on_error, "on_giving_up": give_up}
    found, consumer = await run(frames, fail, {"backoff_failures": 3}, **how)
    assert found == [*lines, b"FIN f"]
    assert (
        len(spent) == consumer.counts.given_up == (2 if on_error == {ValueError: "give_up"} else 0)
    )


async def test_a_handler_that_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(found: Message) -> None:
        if found.body == b"own":
            raise TimeoutError("of something else")
        await asyncio.Event().wait()

    seen = []

    def choose(_: Message, error: Exception) -> Action:
        seen.append(type(error))
        return "requeue"

    frames = [message(1, b"hangs"), message(2, b"own")]
    how = {"handler_timeout_s": 0.05, "on_error": choose}
    lines, _ = await run(frames, handle, {}, **how)
    assert lines == [b"REQ 1 90000", b"REQ 2 90000", b"FIN f"]
    assert seen == [HandlerTimeout, TimeoutError]
    assert "the handler took longer than 0.05 s" in caplog.text


async def test_each_topic_has_its_handler() -> None:
    seen = set()

    def named(name: str) -> Any:
        async def handle(found: Message) -> None:
            seen.add((name, found.topic, found.body))
            if len(seen) == 2:
                consumer.stop()

        return handle

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        say_ok(peer, line, body)
        if line == b"RDY 100":
            peer.send(message(1, b"of " + peer.lines()[0].split(b" ")[1]))

    topics = ["a", "b"]
    async with (
        asyncio.timeout(40),
        FakeNsqd(act) as nsqd,
        Consumer(topics, "c", nsqd.address) as consumer,
    ):
        with pytest.raises(ConfigError, match="one for each of a, b"):
            await consumer.run({"a": named("first")})
        await consumer.run({"a": named("first"), "b": named("second")})
    assert seen == {("first", "a", b"of a"), ("second", "b", b"of b")}


async def test_a_dead_letter_counts_as_a_failure() -> None:
    options = {"max_attempts": 1, "backoff_failures": 2}
    frames = [message(1, b"one"), message(2, b"two")]
    _, consumer = await run(frames, fail, options)
    assert consumer.backing_off
    _, consumer = await run(frames, fail, options, on_error={ValueError: "give_up"})
    assert not consumer.backing_off  # it is the message, and not the world


async def test_one_test_message_after_a_failure() -> None:
    number = 0

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        nonlocal number
        say_ok(peer, line, body)
        if line.startswith(b"RDY") and line != b"RDY 0":
            number += 1
            peer.send(message(number, b"fails" if number < 3 else b"good"))

    async def handle(found: Message) -> None:
        if found.body == b"fails":
            raise Requeue(0)

    async with FakeNsqd(act) as nsqd:
        options: dict[str, Any] = {"max_in_flight": 50, "backoff_s": 0.005, "backoff_failures": 1}
        async with Consumer("t", "c", nsqd.address, **options) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await line_sent(nsqd.peers[0], b"RDY 50", 2)
            assert not consumer.backing_off
            consumer.stop()
            await running
        credits = [line for line in nsqd.peers[0].lines() if line.startswith(b"RDY")]
        down, test = b"RDY 0", b"RDY 1"
        # Two failures: level 2. Two good tests lead back.
        assert credits == [b"RDY 50", down, test, down, test, down, test, b"RDY 50"]


async def test_a_cancelled_handler_gives_its_message_back() -> None:
    started = asyncio.Event()

    async def handle(_: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    async with FakeNsqd(deliver(message(1, b"one"), message(2, b"two"))) as nsqd:
        async with Consumer("t", "c", nsqd.address) as consumer:
            running = asyncio.create_task(consumer.run(handle, concurrency=2))
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        lines = nsqd.peers[0].lines()
        assert sorted(line for line in lines if line.startswith(b"REQ")) == [
            b"REQ %016x 0" % 1,
            b"REQ %016x 0" % 2,
        ]


@each("concurrency", [1, 2])
async def test_a_cancelled_task_that_a_handler_waits_for_is_a_failure(concurrency: int) -> None:
    async def handle(_: Message) -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(other.cancel)
        await other

    frames = [message(number, b"one") for number in (1, 2, 3)]
    lines, _ = await run(frames, handle, {}, concurrency=concurrency)
    assert sorted(lines) == [b"FIN f", b"REQ 1 90000", b"REQ 2 90000", b"REQ 3 90000"]


async def test_a_handler_that_is_not_async_is_refused_before_the_first_message() -> None:
    def handle(_: Message) -> None:
        raise AssertionError("called")

    async with FakeNsqd(deliver(message(1, b"one"))) as nsqd:
        async with asyncio.timeout(40), Consumer("t", "c", nsqd.address) as consumer:
            for wrong in (handle, None, {"t": handle}):
                with pytest.raises(ConfigError, match="must be an async function"):
                    await consumer.run(wrong)  # type: ignore[arg-type]
        assert settled(nsqd) == [b"REQ 1 0"]


class Called:
    async def __call__(self, message: Message) -> None:
        pass

    async def method(self, how: str, message: Message) -> None:
        pass


def around(message: Message) -> Any:
    return fail(message)


def test_async_forms_of_a_handler_are_taken() -> None:
    one = Called()
    for handler in (
        one,
        partial(one),
        partial(one.method, "how"),
        wraps(fail)(around),
        lambda message: one.method("how", message),
        AsyncMock(),
    ):
        check_async("handler", handler)


@each(
    "how",
    [
        {"concurrency": 0},
        {"handler_timeout_s": 0},
        {"on_error": {ValueError: "retry"}},
        {"on_error": lambda _message, _error: None},
    ],
)
async def test_invalid_arguments_of_run(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(how))):
        await run([message(1, b"one")], fail, {}, **how)


@each("concurrency", [1, 2])
async def test_an_invalid_answer_of_on_error_is_raised_bare(concurrency: int) -> None:
    how = {"on_error": lambda _message, _error: None, "concurrency": concurrency}
    with pytest.raises(ConfigError, match="on_error"):
        await run([message(1, b"one"), message(2, b"two")], fail, {}, **how)
