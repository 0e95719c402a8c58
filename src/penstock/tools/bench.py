"""`penstock bench`: how quickly a running nsqd accepts and delivers messages.

The client is Python on one core, so a quick nsqd is rarely the limit of `publish` and `consume`:
they compare machines, disks and settings as a Python program meets them. `latency` publishes at a
steady pace and consumes in the same process, whose one clock times each message.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import uvloop

from penstock import limits
from penstock.client import Consumer, Message, Producer
from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools.app import app, arg, opt, verb
from penstock.tools.connection import Tcp
from penstock.tools.output import Output
from penstock.tools.utility import pause

COUNTS = {"publish": 100_000, "consume": 100_000, "latency": 1_000}
CHANNEL = "bench"
PENDING_MAX = 200  # publishes of a connection without an answer
IDLE_S_MAX = 5.0  # a consumer waits no longer for the next message
_STAMP_BYTES = 8  # the time at which a message of `latency` was published


class Plan(NamedTuple):
    """The parameters of a measurement, and what makes its clients."""

    what: str
    topic: str
    channel: str
    messages: int
    size_bytes: int
    batch: int
    connections: int
    rate: float
    producer: Callable[[], Producer]
    consumer: Callable[..., Consumer]


class Result(NamedTuple):
    messages: int
    seconds: float
    taken_ns: list[int]  # of each request, or of each message; sorted; empty: not measured


@verb(
    app,
    "bench publish",
    "bench publish --size 1024 --batch 100 --connections 4",
    "bench consume --count 50000",
    "bench latency --rate 500 --json",
)
def bench(
    what: Annotated[
        Literal["publish", "consume", "latency"], arg("WHAT", "publish, consume or latency")
    ],
    at: Tcp,
    topic: Annotated[str, opt("TOPIC", "bench; of latency bench_latency")] = "",
    channel: Annotated[str, opt("CHANNEL", "of the consumers")] = CHANNEL,
    count: Annotated[int | None, opt("N", "messages: 100,000; of latency 1,000", min=1)] = None,
    size: Annotated[int, opt("BYTES", "of a body", min=_STAMP_BYTES)] = 200,
    batch: Annotated[int, opt("N", "messages of a request; above 1 an MPUB", min=1)] = 1,
    connections: Annotated[int, opt("N", "of publishers, or of consumers", min=1)] = 1,
    rate: Annotated[float, opt("N", "of latency: messages a second", min=0.001)] = 200.0,
) -> Output:
    """Measure a running nsqd: publish to it, consume what is there, or both for the latency.

    The messages that are published stay in the topic."""
    named = topic or ("bench_latency" if what == "latency" else "bench")
    nsqds, lookupds = at.where.tcp_addresses()
    where = {"lookupds": lookupds, **at.where.client_options()}
    plan = Plan(what, named, channel, count or COUNTS[what], size, batch, connections, rate,
                partial(Producer, nsqds, **where),
                partial(Consumer, named, channel, nsqds, **where))  # fmt: skip
    measure = {"publish": publish, "consume": consume, "latency": latency}[what]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, terminal.Progress(what):
        result = runner.run(measure(plan))
    document = as_document(plan, result)
    return Output(document, _lines(plan, document, result.seconds))


# --- publish ---


async def publish(plan: Plan) -> Result:
    """Requests over all connections at once; each is timed from the call to nsqd's OK."""
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(plan.producer()) for _ in range(plan.connections)
        ]
        begun_ns = time.perf_counter_ns()
        share, left = divmod(plan.messages, plan.connections)
        work = [_publish(one, plan, share + (n < left)) for n, one in enumerate(producers)]
        found = await asyncio.gather(*work)
        seconds = (time.perf_counter_ns() - begun_ns) / limits.SECOND
    return Result(plan.messages, seconds, sorted(taken for one in found for taken in one))


async def _publish(producer: Producer, plan: Plan, count: int) -> list[int]:
    body = bytes(plan.size_bytes)
    taken: list[int] = []
    pending: deque[Awaitable[Any]] = deque()

    def answered(sent_ns: int, _: object) -> None:
        taken.append(time.perf_counter_ns() - sent_ns)

    for first in range(0, count, plan.batch):
        sent_ns = time.perf_counter_ns()
        if plan.batch == 1:
            answer = producer.pub(plan.topic, body)
        else:
            answer = producer.mpub(plan.topic, [body] * min(plan.batch, count - first))
        answer.add_done_callback(partial(answered, sent_ns))
        pending.append(answer)
        if len(pending) >= PENDING_MAX:
            await pending.popleft()
    for one in pending:
        await one
    return taken


# --- consume ---


async def consume(plan: Plan) -> Result:
    """From the first waiting message of the channel to the last one."""
    left = plan.messages
    first_ns = last_ns = 0
    ended = asyncio.Event()

    async def drain(consumer: Consumer) -> None:
        nonlocal left, first_ns, last_ns
        async for message in consumer:
            if not left:
                message.req()
                continue
            message.fin()
            last_ns = time.perf_counter_ns()
            first_ns = first_ns or last_ns
            left -= 1
            if not left:
                ended.set()

    async with AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(plan.consumer(max_in_flight=2500))
            for _ in range(plan.connections)
        ]
        async with asyncio.TaskGroup() as tasks:
            for one in consumers:
                tasks.create_task(drain(one))
            await _until_idle(ended, lambda: left)
            for one in consumers:
                one.stop()
    if left == plan.messages:
        raise PenstockError(f"nothing came from {plan.channel} in {plan.topic}: publish first")
    return Result(plan.messages - left, (last_ns - first_ns) / limits.SECOND, [])


async def _until_idle(ended: asyncio.Event, left: Callable[[], int]) -> None:
    """Until all have come, or none for a while."""
    before = -1
    while before != left():
        before = left()
        if not await pause(ended, IDLE_S_MAX):
            return


# --- latency ---


async def latency(plan: Plan) -> Result:
    """Each message is timed from the call that publishes it to its handler. What was in the channel
    before is finished and not counted."""
    taken: list[int] = []
    done = asyncio.Event()
    session = time.perf_counter_ns()

    async def handle(message: Message) -> None:
        now_ns = time.perf_counter_ns()
        sent_ns = int.from_bytes(message.body[:_STAMP_BYTES], "big")
        if session <= sent_ns <= now_ns:
            taken.append(now_ns - sent_ns)
            if len(taken) >= plan.messages:
                done.set()

    rest = bytes(plan.size_bytes - _STAMP_BYTES)
    async with plan.producer() as producer, plan.consumer(max_in_flight=100) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        begun_ns = time.perf_counter_ns()
        for number in range(plan.messages):
            due_ns = begun_ns + int(number / plan.rate * limits.SECOND)
            await asyncio.sleep(max(0, due_ns - time.perf_counter_ns()) / limits.SECOND)
            stamp = time.perf_counter_ns().to_bytes(_STAMP_BYTES, "big")
            await producer.pub(plan.topic, stamp + rest)
        await _until_idle(done, lambda: len(taken))
        seconds = (time.perf_counter_ns() - begun_ns) / limits.SECOND
        consumer.stop()
        await running
    if not taken:
        rule = "in a cluster name each node, or an nsqlookupd"
        raise PenstockError(f"none of the messages came back from {plan.topic}: {rule}")
    return Result(len(taken), seconds, sorted(taken))


# --- the report ---


def as_document(plan: Plan, result: Result) -> dict[str, Any]:
    document = {
        "what": plan.what, "topic": plan.topic, "messages": result.messages,
        "size_bytes": plan.size_bytes, "batch": plan.batch, "connections": plan.connections,
        "seconds": round(result.seconds, 6),
        "messages_per_second": round(result.messages / max(result.seconds, 1e-9), 1),
    }  # fmt: skip
    if taken_ns := result.taken_ns:
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1)):
            rank = min(len(taken_ns) - 1, int(share * len(taken_ns)))
            document[name] = round(taken_ns[rank] / limits.MS, 3)
    return document


_DONE = {"publish": "published to", "consume": "consumed from", "latency": "through"}
_TIMED = {"publish": "answered", "latency": "delivered"}


def _lines(plan: Plan, found: dict[str, Any], seconds: float) -> Iterator[str]:
    rate = found["messages_per_second"]
    text = f"{found['messages']:,} messages {_DONE[plan.what]} {plan.topic} in {seconds:.2f} s: "
    text += f"{rate:,.0f} messages/s"
    if plan.what == "publish":
        text += f", {rate * plan.size_bytes / 1e6:,.1f} MB/s"
    yield text
    if "max_ms" in found:
        yield (f"{_TIMED[plan.what]} after {found['p50_ms']} ms (p50), {found['p99_ms']} ms (p99), "
               f"{found['max_ms']} ms (longest)")  # fmt: skip
