"""Operators' requests about topics; docs/http.md has their arguments and answers.

The same `/topic/create` again is no error, and another number is: a topic of another shape would
not be what was asked for. Only a partition of several replicas has something to concede: a node by
itself steps over what is corrupt anyway.
"""

from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.broker import changes
from penstock.broker.ports import ClusterMetadata, MetadataDone, NewTopic
from penstock.broker.topics.settings import AUTO_CREATE_OFF, is_internal
from penstock.broker.topics.topic import Topic
from penstock.errors import ChangeUnknown, PenstockError
from penstock.net.api import EMPTY, HttpError, Parameters, json_response
from penstock.net.exchange import Response
from penstock.net.query import whole_number
from penstock.nsqd.http import settings
from penstock.nsqd.http.arguments import SHOWN, TRUTH, invalid, missing
from penstock.nsqd.http.deps import Call
from penstock.wire.names import is_ephemeral

PARTITION_NUM = "partition_num"
REPLICATOR = "replicator"

# --- verbs ---


def delete(call: Call, done: MetadataDone) -> None:
    changes.delete_topic(call.deps.broker, call.topic(), done)


def empty(call: Call) -> Response:
    call.topic(checks_name=True).empty()
    return EMPTY


def pause(paused: bool, call: Call, done: MetadataDone) -> None:
    changes.pause_topic(call.topic(), paused, done)


def clean(call: Call) -> Response:
    topic = call.topic()
    kept_bytes = call.number("bytes")
    wall_ns = call.deps.clock.wall_ns()
    rows = []
    for partition in call.partitions(topic):
        leader = topic.leader(partition)
        row = {"partition": partition, "segments_removed": leader.clean(wall_ns, kept_bytes)}
        log = leader.log
        rows.append(row | {"earliest": log.start_offset, "stored_bytes": log.bytes_stored})
    topic.touch()
    return json_response({"topic_name": topic.name, "partitions": rows})


def clean_unused(call: Call) -> Response:
    removed, left = call.deps.broker.directories.clean(call.flag("dryrun"))
    return json_response({"removed": removed, "left": left})


def concede(call: Call) -> None:
    topic = call.topic()
    leaders = [topic.leader(one) for one in call.partitions(topic)]
    rows = [
        {"partition": leader.number, "from": start, "to": end}
        for leader in leaders
        for start, end in leader.concede_damage()
    ]
    response = json_response({"topic_name": topic.name, "conceded": rows})
    call.answer_when_held(leaders, response)


# --- shape ---


def create(call: Call) -> None:
    def created(topic: Topic) -> None:
        if topic.metadata is not None:
            _finish(call, topic.metadata, name, done)
            return
        registered = bool(topic.settings.disable_channel_auto_create)
        done(NewTopic(topic.partition_count, topic.extended, registered))

    def elsewhere() -> None:
        if replica_host is not None and replica_host.metadata is not None:
            _finish(call, replica_host.metadata, name, done)
        else:
            done(None)

    def done(there: NewTopic | None) -> None:
        if there is not None:  # None: it was deleted meanwhile
            _check_same(name, there, shape)
        call.answer(EMPTY)
        call.deps.soon()

    parameters, replica_host = call.parameters, call.deps.broker.replica_host
    name = parameters.get("topic", "")
    has_copies = replica_host is not None and not (is_ephemeral(name) or is_internal(name))
    shape = NewTopic(
        _partition_num(parameters),
        call.flag("extend", TRUTH),
        call.flag(AUTO_CREATE_OFF, TRUTH),
        replicas=_replicas(parameters, has_copies),
    )
    call.with_topic(created, shape, elsewhere)


def _finish(
    call: Call, metadata: ClusterMetadata, name: str, done: Callable[[NewTopic | None], None]
) -> None:
    """A topic with very many partitions is made in steps, and an earlier attempt may have ended
    before the last."""
    there = metadata.shape(name)
    if there is None or not there.missing:
        done(there)
        return

    def look() -> None:
        there = metadata.shape(name)
        if there is not None and there.missing:
            so_far = f"{there.partitions} of {there.partitions + there.missing} partitions so far"
            raise ChangeUnknown(f"topic {name}", f"it has {so_far}; ask again")
        done(there)

    metadata.make_topic(name, there, lambda error: call.go_on(look))


def expand(call: Call, done: MetadataDone) -> None:
    topic, parameters = call.topic(), call.parameters
    if PARTITION_NUM not in parameters:
        raise missing(PARTITION_NUM)
    rehash = call.flag("rehash", TRUTH)
    changes.grow_topic(call.deps.broker, topic, _partition_num(parameters), rehash, done)


def update(call: Call, done: MetadataDone) -> None:
    """Every value is looked at before anything is changed."""
    topic = call.topic()
    extends = call.flag("upgradeext", TRUTH)
    auto_create_off = call.flag(AUTO_CREATE_OFF, TRUTH)
    changed = _wanted_replicas(topic, call.parameters, REPLICATOR)
    if AUTO_CREATE_OFF in call.parameters:
        changed[AUTO_CREATE_OFF] = auto_create_off

    def extend(error: PenstockError | None) -> None:
        if error is None and extends:
            changes.extend_topic(topic, done)
        else:
            done(error)

    if changed:
        changes.configure_topic(topic, changed, extend)
    else:
        extend(None)


def _partition_num(parameters: Parameters) -> int:
    """0 where none is named."""
    text = parameters.get(PARTITION_NUM)
    if text is None:
        return 0
    most = 1 if is_internal(parameters.get("topic", "")) else limits.PARTITIONS_MAX
    found = whole_number(text, most)
    if not found:
        rule = f"a whole number, 1 to {most}" if most > 1 else "this topic of nsqd's own has 1"
        raise invalid(PARTITION_NUM, text, rule)
    return found


def _wanted_replicas(topic: Topic, parameters: Parameters, name: str) -> dict[str, Any]:
    """A change of their number, which the cluster's controller carries out."""
    wanted = _replicas(parameters, topic.metadata is not None, name)
    return {changes.REPLICAS: wanted} if wanted and topic.metadata is not None else {}


def _replicas(parameters: Parameters, has_copies: bool, name: str = REPLICATOR) -> int:
    """0 where none are named. An ephemeral topic has no other node for a replica."""
    text = parameters.get(name)
    if text is None:
        return 0
    found = whole_number(text, limits.MEMBERS_MAX)
    if has_copies and not found:
        raise invalid(name, text, f"a whole number, 1 to {limits.MEMBERS_MAX}")
    if not has_copies and found != 1:
        rule = "a node by itself, and an ephemeral topic, keep 1 copy; others need --cluster"
        raise invalid(name, text, rule)
    return found or 0


def _check_same(name: str, there: NewTopic, shape: NewTopic) -> None:
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


# --- settings ---


def configure(call: Call, done: MetadataDone) -> None:
    topic = call.topic()
    wanted = settings.read_settings(
        call.parameters, settings.TOPIC, ("topic", changes.REPLICAS), SHOWN
    )
    wanted |= _wanted_replicas(topic, call.parameters, changes.REPLICAS)
    changes.configure_topic(topic, wanted, done)


def configuration(call: Call) -> Response:
    """The effective settings, and in `own` those that the topic has chosen itself."""
    topic = call.topic()
    values, own = settings.topic_values(topic), list(settings.own_of_topic(topic))
    return json_response({"topic_name": topic.name, **values, "own": own, **shape_of(topic)})


def shape_of(topic: Topic) -> dict[str, Any]:
    """Listed where it differs from a topic of NSQ, so that ordinary answers stay as they are."""
    shape: dict[str, Any] = {}
    if topic.partition_count > 1:
        shape |= {"partitions": topic.partition_count, "hash_partitions": topic.hash_partitions}
    if topic.extended:
        shape["extended"] = True
    there = topic.metadata.shape(topic.name) if topic.metadata is not None else None
    if there is not None:
        shape["replicas"] = there.replicas
    return shape
