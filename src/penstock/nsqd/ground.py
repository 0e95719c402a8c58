"""What nsqd's HTTP routes stand on, and what the groups of routes share.

Each group (`routes_*.py`) is a class that takes the `Ground` and gives a table of routes; `Routes`
(`routes.py`) puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.placed import when_held
from penstock.broker.topic import Topic
from penstock.errors import (
    ChangeUnknown,
    ChannelUnconfirmed,
    GrowthRefused,
    NameInvalid,
    NotFound,
    PartitionElsewhere,
    PenstockError,
    PublishUnknown,
    Refused,
    TooMuchWaiting,
    WritesDisabled,
)
from penstock.net.api import EMPTY, Answer, Guard, HttpError, Parameters, error_response
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd.topics import ANY, Shape
from penstock.wire.names import is_valid_name

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.leader import Leader
    from penstock.broker.ports import MetadataDone
    from penstock.clock import Clock
    from penstock.net.bulk import BulkThread
    from penstock.net.sync import SyncTimes
    from penstock.nsqd.cluster import ClusterMember
    from penstock.nsqd.options import Options
    from penstock.nsqd.protocol import Protocol
    from penstock.nsqd.topics import Found, TopicMaker

FALSE, TRUE = ("false", "0"), ("true", "1")  # how a boolean parameter is written


class Identity(NamedTuple):
    """What the daemon says about itself."""

    version_line: str
    start_time: int
    started_mono_ns: int
    tcp_port: int
    http_port: int
    hostname: str


class Refusals:
    """Publishes over HTTP that the broker would not take, or could not store."""

    def __init__(self) -> None:
        self.count = 0


class Ground(NamedTuple):
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
    refusals: Refusals
    on_fault: Callable[[Exception], None]  # of the program: the daemon stops
    member: ClusterMember | None = None  # of a cluster


def with_topic(
    ground: Ground,
    guard: Guard,
    request: Request,
    parameters: Parameters,
    answer: Answer,
    act: Callable[[Topic], None],
    shape: Shape = ANY,
    elsewhere: Callable[[], None] | None = None,
) -> None:
    """Call `act` with the topic, made in this shape when it is not there, which may take a while.
    In a cluster all of it may be on other nodes: then `elsewhere` is called, if there is one."""
    name = parameters.get("topic")
    if name is None:
        raise HttpError(400, "MISSING_ARG_TOPIC")
    if not is_valid(name):
        raise HttpError(400, "INVALID_TOPIC")

    def go_on(found: Found) -> None:
        if isinstance(found, PartitionElsewhere) and elsewhere is not None:
            elsewhere()
            return
        if isinstance(found, PenstockError):
            raise found
        act(found)

    ground.topics.topic(name, lambda found: guard(request, answer, lambda: go_on(found)), shape)


def find_topic(ground: Ground, parameters: Parameters, checks_name: bool = False) -> Topic:
    """Of an operator's request. Raises HttpError."""
    name = parameters.get("topic")
    if name is None:
        raise HttpError(400, "MISSING_ARG_TOPIC")
    if checks_name and not is_valid(name):
        raise HttpError(400, "INVALID_TOPIC")
    try:
        return ground.broker.find_topic(name)
    except NotFound as error:
        raise HttpError(404, "TOPIC_NOT_FOUND") from error


def changing(
    ground: Ground, respond: Callable[[Parameters], Response]
) -> Callable[[Request, Answer], None]:
    """A route that changes something and whose answer is there when the function returns."""

    def serve(request: Request, answer: Answer) -> None:
        answer(respond(parse_query(request.query)))
        ground.soon()

    return serve


def keeping(
    ground: Ground, respond: Callable[[Parameters], Response]
) -> Callable[[Request, Answer], None]:
    """The same of what channel journals keep: it is answered when all replicas have it that need
    to."""

    def serve(request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = ground.broker.topics.get(parameters.get("topic", ""))
        leaders = topic.leaders if topic is not None else ()
        response = respond(parameters)
        answer_when_held(leaders, response, answer)
        ground.soon()

    return serve


def agreeing(
    ground: Ground,
    guard: Guard,
    ask: Callable[[Parameters, MetadataDone], None],
    respond: Callable[[Parameters], Response] = lambda _: EMPTY,
    ends_topic: bool = False,
) -> Callable[[Request, Answer], None]:
    """A route that changes what a cluster keeps in its metadata, where the topic is of one
    (`broker.changes`). It is answered when the metadata has it, and all replicas that need to have
    what follows from it in the journals. `ends_topic`: there are none then."""

    def serve(request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = ground.broker.topics.get(parameters.get("topic", ""))
        leaders = topic.leaders if topic is not None and not ends_topic else ()

        def go_on(error: PenstockError | None) -> None:
            if isinstance(error, NotFound):
                raise HttpError(404, f"{error.kind.upper()}_NOT_FOUND")
            if error is not None:
                raise unavailable(error)
            answer_when_held(leaders, respond(parameters), answer)
            ground.soon()

        ask(parameters, lambda error: guard(request, answer, lambda: go_on(error)))

    return serve


def answer_when_held(leaders: Sequence[Leader], response: Response, answer: Answer) -> None:
    """`leaders`: of the partitions, from before the change."""

    def done(error: PenstockError | None) -> None:
        answer(response if error is None else error_response(unavailable(error)))

    when_held(leaders, done)


def is_valid(name: str) -> bool:
    return is_valid_name(name.encode("utf-8", "surrogateescape"))


def unavailable(error: PenstockError) -> HttpError:
    """What the broker refused. NSQ answers 503 EXITING to all of it; we name the reason."""
    if isinstance(error, Refused) and error.reason == "exiting":
        return HttpError(503, "EXITING")
    if isinstance(error, GrowthRefused):
        return HttpError(409, f"GROWTH_REFUSED {error.reason}")
    if isinstance(error, NameInvalid):
        return HttpError(400, "INVALID_ARG")
    if isinstance(error, WritesDisabled):
        return HttpError(400, "E_FAILED_ON_NOT_WRITABLE")
    if isinstance(error, TooMuchWaiting):
        return HttpError(429, "E_PUB_TOO_MUCH_WAITING")
    if isinstance(error, PublishUnknown):
        return HttpError(503, f"FAILED {error}", details={"stored": "unknown"})
    if isinstance(error, ChangeUnknown):
        return HttpError(503, f"FAILED {error}", details={"changed": "unknown"})
    if isinstance(error, ChannelUnconfirmed):
        return HttpError(503, f"FAILED {error}", details={"unconfirmed": list(error.partitions)})
    reason = error.reason if isinstance(error, Refused) else str(error)
    return HttpError(503, f"FAILED {reason}")
