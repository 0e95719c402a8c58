"""The dependencies of nsqd's HTTP routes, and their common parts.

A row of the table (`routes.py`) has a function of a `Call`: the request, and the way to its answer.
Around it may be what several of them have in common: `changing`, `agreeing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock import errors, limits
from penstock.broker.replicas.clustered_topic import when_held
from penstock.broker.topics.topic import Topic
from penstock.net.api import EMPTY, NSQ_HEADER, Answer, Guard, HttpError, Parameters, error_response
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.nsqd import topics
from penstock.nsqd.http import arguments
from penstock.wire.names import ANY, is_valid_name

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.channels.channel import Channel
    from penstock.broker.partition.leader import Leader
    from penstock.broker.ports import MetadataDone, NewTopic
    from penstock.clock import Clock
    from penstock.net.bulk import BulkThread
    from penstock.net.sync import SyncTimes
    from penstock.nsqd.cluster import ClusterMember
    from penstock.nsqd.options import Options
    from penstock.nsqd.protocol import Protocol
    from penstock.nsqd.topics import Found, TopicMaker

_Result = TypeVar("_Result")
_remembered = lru_cache(maxsize=512)(parse_query)
_REMEMBERED_BYTES_MAX = 256


class Identity(NamedTuple):
    version_line: str
    start_time: int
    started_mono_ns: int
    tcp_port: int
    http_port: int
    hostname: str


class Deps(NamedTuple):
    broker: Broker
    topics: TopicMaker
    protocol: Protocol
    options: Options
    config: dict[str, Any]  # values of all options by flag, changed while running
    identity: Identity
    clock: Clock
    bulk: BulkThread
    soon: Callable[[], None]  # have a turn run: something was left to do
    set_lookupds: Callable[[Sequence[str]], None]  # addresses of nsqlookupds, changed while running
    sync_times: SyncTimes
    http_connections: Callable[[], int]
    on_fault: Callable[[Exception], None]  # of the program: the daemon stops
    long_work: asyncio.Lock  # held for a turn of the loop
    member: ClusterMember | None = None  # of a cluster


class Call:
    """One request, and its answer."""

    def __init__(self, deps: Deps, guard: Guard, request: Request, answer: Answer) -> None:
        self.deps = deps
        self.request = request
        self.answer = answer
        self._guard = guard

    @cached_property
    def parameters(self) -> Parameters:
        return parameters_of(self.request.query)

    # --- arguments ---

    def number(self, name: str, highest: int = arguments.COUNT_MAX, default: int | None = 0) -> int:
        """`default`: where there is none; None: there has to be one."""
        text = self.parameters.get(name, "")
        if text:
            return arguments.whole(name, text, highest)
        if default is None:
            raise arguments.missing(name)
        return default

    def flag(self, name: str, rule: str = "true or false", default: str = "false") -> bool:
        text = self.parameters.get(name, default)
        if text not in arguments.TRUE + arguments.FALSE:
            raise arguments.invalid(name, text, rule)
        return text in arguments.TRUE

    def topic(self, checks_name: bool = False) -> Topic:
        name = self.parameters.get("topic")
        if name is None:
            raise arguments.missing("topic")
        if checks_name and not is_valid_name(name):
            raise HttpError(400, "INVALID_TOPIC")
        try:
            return self.deps.broker.find_topic(name)
        except errors.NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error

    def channel_name(self, checks_names: bool = True) -> tuple[Topic, str]:
        """With its topic; the channel need not exist."""
        for kind in ("topic", "channel"):
            if kind not in self.parameters:
                raise arguments.missing(kind)
            if checks_names and not is_valid_name(self.parameters[kind]):
                raise HttpError(400, f"INVALID_ARG_{kind.upper()}")
        return self.topic(), self.parameters["channel"]

    def channel(self, checks_names: bool = False, anywhere: bool = False) -> Channel:
        """`anywhere`: also where this node has no replica of the topic."""
        broker, name = self.deps.broker, self.parameters.get("topic", "")
        if anywhere and name not in broker.topics and broker.replica_host is not None:
            broker.replica_host.remote_topic(name)
        topic, name = self.channel_name(checks_names)
        try:
            return topic.find_channel(name)
        except errors.NotFound as error:
            raise HttpError(404, "CHANNEL_NOT_FOUND") from error

    def partition(self, topic: Topic) -> int:
        """As Youzan's nsqd has it, whoever leads it. ANY: without one, or with -1."""
        text = self.parameters.get("partition", "")
        if text in ("", "-1"):
            return ANY
        found = whole_number(text, limits.PARTITIONS_MAX - 1)
        if found is None or found >= topic.partition_count:
            raise arguments.not_of(topic, text)
        return found

    def partitions(self, topic: Topic) -> list[int]:
        """Of those that this node leads."""
        led, chosen = [leader.number for leader in topic.leaders], self.partition(topic)
        if chosen == ANY:
            return led
        if chosen not in led:
            raise arguments.bad_partition(chosen, "this node does not lead it")
        return [chosen]

    # --- answers ---

    def go_on(self, act: Callable[[], None]) -> None:
        """After the route has returned: errors of `act` are answered, too."""
        self._guard(self.request, self.answer, act)

    def in_turns(
        self, work: Generator[None, None, _Result], done: Callable[[_Result], None]
    ) -> None:
        """Long work on logs, which yields between pieces of a few milliseconds at most. Its result
        goes to `done`, its error is answered as a `refusal`."""
        work, loop = _refusing(work), asyncio.get_running_loop()

        def step() -> None:
            try:
                next(work)
            except StopIteration as ended:
                done(ended.value)
            else:
                loop.create_task(later())

        async def later() -> None:
            """One piece of all such work in a turn: whoever asks for little waits for one."""
            async with self.deps.long_work:
                await asyncio.sleep(0)
            self.go_on(step)

        step()

    def in_slices(
        self,
        parts: Iterator[bytes],
        content_type: str,
        headers: tuple[tuple[str, str], ...] = NSQ_HEADER,
    ) -> None:
        """Answer with a large document, in pieces. What fits into one slice is done at once."""
        mono_ns = self.deps.clock.mono_ns

        def work() -> Generator[None, None, bytes]:
            gathered, end_ns = [], mono_ns() + limits.STATS_SLICE_NS
            for part in parts:
                gathered.append(part)
                if mono_ns() >= end_ns:
                    yield
                    end_ns = mono_ns() + limits.STATS_SLICE_NS
            return b"".join(gathered)

        self.in_turns(work(), lambda body: self.answer(Response(200, body, content_type, headers)))

    def with_topic(
        self,
        act: Callable[[Topic], None],
        shape: NewTopic = topics.ANY,
        elsewhere: Callable[[], None] | None = None,
    ) -> None:
        """Call `act` with the topic, made in this shape when it is not there, which may take a
        while. In a cluster all of it may be on other nodes: then `elsewhere` is called, if there is
        one."""
        name = self.parameters.get("topic")
        if name is None:
            raise arguments.missing("topic")
        if not is_valid_name(name):
            raise HttpError(400, "INVALID_TOPIC")

        def go_on(found: Found) -> None:
            if isinstance(found, errors.PartitionElsewhere) and elsewhere is not None:
                elsewhere()
                return
            if isinstance(found, errors.PenstockError):
                raise found
            act(found)

        self.deps.topics.topic(name, lambda found: self.go_on(lambda: go_on(found)), shape)

    def answer_when_held(self, leaders: Sequence[Leader], response: Response) -> None:
        """Answer once a change is held by the in-sync sets, and request a turn. `leaders`: of the
        partitions, from before it."""

        def done(error: errors.PenstockError | None) -> None:
            self.answer(response if error is None else error_response(unavailable(error)))

        when_held(leaders, done)
        self.deps.soon()


Act = Callable[[Call], None]
Respond = Callable[[Call], Response]
Ask = Callable[[Call, "MetadataDone"], None]


def parameters_of(query: bytes) -> Parameters:
    """Clients send the same query again and again. Callers must not change the result."""
    return _remembered(query) if len(query) <= _REMEMBERED_BYTES_MAX else parse_query(query)


# --- common parts of routes ---


def changing(respond: Respond, keeps: bool = False) -> Act:
    """A route that changes something at once. `keeps`: of the contents of channel journals, so the
    answer waits for the replicas that need them."""

    def serve(call: Call) -> None:
        leaders = _leaders(call) if keeps else ()
        call.answer_when_held(leaders, respond(call))

    return serve


def agreeing(
    ask: Ask, respond: Respond = lambda _: EMPTY, ends_topic: bool = False, reads: bool = False
) -> Act:
    """A route that changes the metadata of a cluster, for a topic of one (`broker.changes`). The
    answer waits for the metadata, and for the replicas that need to have its consequences in the
    journals. `ends_topic`: there are none then. `reads`: a GET is answered without a change."""

    def serve(call: Call) -> None:
        if reads and call.request.method != "POST":
            call.answer(respond(call))
            return
        leaders = () if ends_topic else _leaders(call)

        def go_on(error: errors.PenstockError | None) -> None:
            if isinstance(error, errors.NotFound):
                raise HttpError(404, f"{error.kind.upper()}_NOT_FOUND")
            if error is not None:
                raise unavailable(error)
            call.answer_when_held(leaders, respond(call))

        ask(call, lambda error: call.go_on(lambda: go_on(error)))

    return serve


def _leaders(call: Call) -> Sequence[Leader]:
    topic = call.deps.broker.topics.get(call.parameters.get("topic", ""))
    return topic.leaders if topic is not None else ()


# --- errors as answers ---


def unavailable(error: errors.PenstockError) -> HttpError:
    """An error of the broker. NSQ answers 503 EXITING to all of them; we name the reason."""
    if isinstance(error, errors.Refused) and error.reason == "exiting":
        return HttpError(503, "EXITING")
    if isinstance(error, errors.GrowthRefused):
        return HttpError(409, f"GROWTH_REFUSED {error.reason}")
    if isinstance(error, errors.NameInvalid):
        return HttpError(400, "INVALID_ARG")
    if isinstance(error, errors.WritesDisabled):
        return HttpError(400, "E_FAILED_ON_NOT_WRITABLE")
    if isinstance(error, errors.TooMuchWaiting):
        return HttpError(429, "E_PUB_TOO_MUCH_WAITING")
    if isinstance(error, errors.PublishUnknown):
        return HttpError(503, f"FAILED {error}", details={"stored": "unknown"})
    if isinstance(error, errors.ChangeUnknown):
        return HttpError(503, f"FAILED {error}", details={"changed": "unknown"})
    if isinstance(error, errors.ChannelUnconfirmed):
        return HttpError(503, f"FAILED {error}", details={"unconfirmed": list(error.partitions)})
    return HttpError(503, f"FAILED {reason_of(error)}")


def reason_of(error: errors.PenstockError) -> str:
    return error.reason if isinstance(error, errors.Refused) else str(error)


def refusal(error: errors.PenstockError) -> HttpError:
    """The answer to a read that cannot be done."""
    if isinstance(error, errors.OffsetGone):
        details = {"earliest": error.edge, "reason": str(error)}
        return HttpError(410, "OFFSET_GONE", details=details)
    if isinstance(error, errors.OffsetBeyondEnd):
        details = {"end": error.edge, "reason": str(error)}
        return HttpError(416, "OFFSET_BEYOND_END", details=details)
    if isinstance(error, errors.LogDamaged):
        corrupt = {"from": error.from_offset, "to": error.to_offset}
        return HttpError(422, "LOG_DAMAGED", details=corrupt)
    if isinstance(error, errors.NotFound):
        return HttpError(404, f"{error.kind.upper()}_NOT_FOUND")
    reason = error.reason if isinstance(error, errors.StorageError) else str(error)
    return HttpError(503, f"FAILED {reason}")


def _refusing(work: Generator[None, None, _Result]) -> Generator[None, None, _Result]:
    """The same work, with its errors as answers of a route."""
    try:
        return (yield from work)
    except HttpError:
        raise
    except errors.PenstockError as error:
        raise refusal(error) from error
