"""What shape a topic has: how many partitions, and whether its messages have headers.

`/topic/create` makes a topic, with `partition_num`, `extend`, `disable_channel_auto_create` and, in
a cluster, `replicator` as Youzan's NSQ has them. The same again is no error; another number is: a
topic of another shape would not be what was asked for. `/topic/partition/expand` adds partitions to
a topic that is in use (`broker/growth.py`), and `/topic/meta/update` headers (`upgradeext=true`),
and says whether consumers may make channels. All of it can be sent again.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker import changes
from penstock.broker.internal import is_internal
from penstock.broker.ports import MetadataDone, NewTopic
from penstock.broker.settings import AUTO_CREATE_OFF
from penstock.broker.topic import Topic
from penstock.errors import PenstockError
from penstock.net.api import EMPTY, POST, Answer, Guard, HttpError, Parameters, Route
from penstock.net.exchange import Request
from penstock.net.query import parse_query, whole_number
from penstock.nsqd.ground import FALSE, TRUE, Ground, agreeing, find_topic, with_topic
from penstock.nsqd.topics import Shape
from penstock.wire.names import is_ephemeral

PARTITION_NUM = "partition_num"
REPLICATOR = "replicator"
_SHOWN_CHARACTERS = 100  # of a value that is refused


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    shapes = _Shapes(ground, guard)
    return {
        "/topic/create": Route(POST, shapes.create),
        "/topic/partition/expand": Route(POST, agreeing(ground, guard, shapes.expand)),
        "/topic/meta/update": Route(POST, agreeing(ground, guard, shapes.update)),
    }


class _Shapes:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    def create(self, request: Request, answer: Answer) -> None:
        def created(topic: Topic) -> None:
            if topic.metadata is not None:
                done(topic.metadata.shape(name))
                return
            registered = bool(topic.settings.disable_channel_auto_create)
            done(NewTopic(topic.partition_count, topic.extended, registered))

        def elsewhere() -> None:
            done(hosting.metadata.shape(name) if hosting and hosting.metadata else None)

        def done(there: NewTopic | None) -> None:
            if there is not None:  # None: it was deleted meanwhile
                _check_same(name, there, shape)
            answer(EMPTY)
            ground.soon()

        ground, guard, hosting = self._ground, self._guard, self._ground.broker.hosting
        parameters = parse_query(request.query)
        name = parameters.get("topic", "")
        has_copies = hosting is not None and not (is_ephemeral(name) or is_internal(name))
        shape = Shape(
            _partition_num(parameters),
            _flag(parameters, "extend"),
            _flag(parameters, AUTO_CREATE_OFF),
            _replicas(parameters, has_copies),
        )
        with_topic(ground, guard, request, parameters, answer, created, shape, elsewhere)

    def expand(self, parameters: Parameters, done: MetadataDone) -> None:
        topic = find_topic(self._ground, parameters)
        if PARTITION_NUM not in parameters:
            raise HttpError(400, f"MISSING_ARG_{PARTITION_NUM.upper()}")
        rehash = _flag(parameters, "rehash")
        changes.grow_topic(self._ground.broker, topic, _partition_num(parameters), rehash, done)

    def update(self, parameters: Parameters, done: MetadataDone) -> None:
        """Every value is looked at before anything is changed."""
        topic = find_topic(self._ground, parameters)
        extends = _flag(parameters, "upgradeext")
        auto_create_off = _flag(parameters, AUTO_CREATE_OFF)

        def extend(error: PenstockError | None) -> None:
            if error is None and extends:
                changes.extend_topic(topic, done)
            else:
                done(error)

        if AUTO_CREATE_OFF in parameters:
            changes.configure_topic(topic, {AUTO_CREATE_OFF: auto_create_off}, extend)
        else:
            extend(None)


def _partition_num(parameters: Parameters) -> int:
    """0 where none is named."""
    text = parameters.get(PARTITION_NUM)
    if text is None:
        return 0
    most = 1 if is_internal(parameters.get("topic", "")) else limits.PARTITIONS_MAX
    number = whole_number(text, most)
    if not number:
        rule = f"a whole number, 1 to {most}" if most > 1 else "this topic of nsqd's own has 1"
        raise _invalid(PARTITION_NUM, text, rule)
    return number


def _replicas(parameters: Parameters, has_copies: bool) -> int:
    """0 where none are named. What is of one node has no other place for a copy."""
    text = parameters.get(REPLICATOR)
    if text is None:
        return 0
    number = whole_number(text, limits.MEMBERS_MAX)
    if has_copies and not number:
        raise _invalid(REPLICATOR, text, f"a whole number, 1 to {limits.MEMBERS_MAX}")
    if not has_copies and number != 1:
        rule = "a node by itself, and an ephemeral topic, keep 1 copy; others need --cluster"
        raise _invalid(REPLICATOR, text, rule)
    return number or 0


def _flag(parameters: Parameters, name: str) -> bool:
    text = parameters.get(name, "false")
    if text not in TRUE + FALSE:
        raise _invalid(name, text, f"one of {', '.join(TRUE + FALSE)}")
    return text in TRUE


def _invalid(name: str, text: str, rule: str) -> HttpError:
    return HttpError(400, f"INVALID_ARG_{name.upper()} {text[:_SHOWN_CHARACTERS]!r}: {rule}")


def _check_same(name: str, there: NewTopic, shape: Shape) -> None:
    if shape.partitions not in (0, there.partitions):
        has = f"topic {name} has {there.partitions}"
        more = f"; more come with /topic/partition/expand, up to {limits.PARTITIONS_MAX}"
        raise HttpError(409, f"PARTITION_NUM_DIFFERS {has}{more}")
    if shape.replicas and there.replicas not in (0, shape.replicas):
        raise HttpError(409, f"REPLICATOR_DIFFERS topic {name} has {there.replicas} copies")
    if shape.extended and not there.extended:
        how = "/topic/meta/update?upgradeext=true makes it so"
        raise HttpError(409, f"NOT_EXTENDED topic {name} exists and is not extended: {how}")
    if shape.registered and not there.registered:
        how = f"/topic/meta/update?{AUTO_CREATE_OFF}=true turns that off"
        exists = f"topic {name} exists, and consumers may make channels of it"
        raise HttpError(409, f"CHANNEL_AUTO_CREATE {exists}: {how}")
