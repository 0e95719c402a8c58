"""What stands under the keys of the metadata: one class a kind, and its form as JSON.

Numbers that are drawn at random (identities, lives, replica ids) stand as hexadecimal text. A
partition's document is the `Record` of `penstock.replication`, whose legal changes stand there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.json_form import (
    FLAG,
    SETTINGS,
    Form,
    hexadecimal,
    integer,
    list_of,
    one_of,
    optional,
    parts,
    text,
)
from penstock.errors import DocumentBroken
from penstock.limits import MEMBERS_MAX, NODE_ID_MAX, PARTITIONS_MAX
from penstock.replication.record import Member, Record, Seat

_U32, _U63 = integer(0, (1 << 32) - 1), integer(0, (1 << 63) - 1)
_NODE = integer(0, NODE_ID_MAX)
_PORT = integer(0, 65_535)
_RANDOM = hexadecimal(16)
_UUID = hexadecimal(32)
_NODES = list_of(_NODE, NODE_ID_MAX + 1)

Settings = tuple[tuple[str, Any], ...]  # names and values, sorted by name


class Cluster(NamedTuple):
    uuid: int
    format: int  # of the keys and documents as a whole
    feature_level: int  # what all nodes are known to read
    restorations: int  # of the metadata from what the nodes remember: revisions began again


class Node(NamedTuple):
    """A node that lives, as its process says. Its key has a lease."""

    incarnation: int
    host: str
    tcp_port: int
    http_port: int
    replication_host: str
    replication_port: int
    version: str
    zone: str
    disk_free_bytes: int
    load: int  # bytes a second that its partitions took, averaged


class Lookup(NamedTuple):
    """An nsqlookupd that lives. Its key has a lease."""

    host: str
    tcp_port: int
    http_port: int
    version: str


class Membership(NamedTuple):
    """What is known of a node, whether it lives or not."""

    uuid: int  # of the node: a second machine with its id has another, and is refused
    generation: int
    boot: str  # of its machine
    memory_lost_generation: int
    incarnation: int  # of its newest process
    id_floor: int  # ids of messages below this tick may have been given out
    state: str  # one of STATES


ACTIVE, MAINTENANCE, DRAINING = "active", "maintenance", "draining"
REMOVED = "removed"  # a tombstone
STATES = (ACTIVE, MAINTENANCE, DRAINING, REMOVED)


class Controller(NamedTuple):
    name: str  # of the daemon
    incarnation: int


class Topic(NamedTuple):
    identity: int
    replicas: int  # of each partition
    hash_partitions: int  # keys and producers are spread over this many
    paused: bool
    settings: Settings
    deleted: bool  # a tombstone
    confirmed: tuple[int, ...]  # the nodes that have removed what they had


class Channel(NamedTuple):
    identity: int  # of the topic
    number: int  # never used again in the topic's life
    paused: bool
    settings: Settings
    deleted: bool  # a tombstone


class EpochFloor(NamedTuple):
    """Kept over the deletion of a topic: epochs of its name were never above this."""

    epoch: int


class Setting(NamedTuple):
    value: str


_MEMBER = parts(Member, ("node", _NODE), ("replica", _RANDOM), ("generation", _U63))
_SEAT = parts(Seat, ("node", _NODE), ("incarnation", _RANDOM), ("replica", _RANDOM))

CLUSTER = Form(
    Cluster,
    1,
    (("uuid", _UUID), ("format", _U32), ("feature_level", _U32), ("restorations", _U32)),
)
NODE = Form(
    Node,
    1,
    (
        ("incarnation", _RANDOM),
        ("host", text()),
        ("tcp_port", _PORT),
        ("http_port", _PORT),
        ("replication_host", text()),
        ("replication_port", _PORT),
        ("version", text()),
        ("zone", text()),
        ("disk_free_bytes", _U63),
        ("load", _U63),
    ),
)
LOOKUP = Form(
    Lookup, 1, (("host", text()), ("tcp_port", _PORT), ("http_port", _PORT), ("version", text()))
)
MEMBERSHIP = Form(
    Membership,
    1,
    (
        ("uuid", _UUID),
        ("generation", _U63),
        ("boot", text()),
        ("memory_lost_generation", _U63),
        ("incarnation", _RANDOM),
        ("id_floor", _U63),
        ("state", one_of(*STATES)),
    ),
)
CONTROLLER = Form(Controller, 1, (("name", text()), ("incarnation", _RANDOM)))
TOPIC = Form(
    Topic,
    1,
    (
        ("identity", _RANDOM),
        ("replicas", integer(1, MEMBERS_MAX)),
        ("hash_partitions", integer(1, PARTITIONS_MAX)),
        ("paused", FLAG),
        ("settings", SETTINGS),
        ("deleted", FLAG),
        ("confirmed", _NODES),
    ),
)
CHANNEL = Form(
    Channel,
    1,
    (
        ("identity", _RANDOM),
        ("number", _U32),
        ("paused", FLAG),
        ("settings", SETTINGS),
        ("deleted", FLAG),
    ),
)
EPOCH_FLOOR = Form(EpochFloor, 1, (("epoch", _U32),))
RECORD = Form(
    Record,
    1,
    (
        ("identity", _RANDOM),
        ("epoch", _U32),
        ("leader", optional(_SEAT)),
        ("in_sync", list_of(_MEMBER, MEMBERS_MAX), "members"),
        ("min_in_sync", integer(1, MEMBERS_MAX), "members_min"),
        ("preferred", list_of(_NODE, MEMBERS_MAX), "wanted"),
        ("unclean_epoch", _U32),
    ),
)
SETTING = Form(Setting, 1, (("value", text(10_000)),))

Document = (
    Cluster
    | Node
    | Lookup
    | Membership
    | Controller
    | Topic
    | Channel
    | EpochFloor
    | Record
    | Setting
)

_FORMS: tuple[tuple[str, Form[Any]], ...] = (
    (keys.PARTITIONS, RECORD),
    (keys.NODES, NODE),
    (keys.MEMBERS, MEMBERSHIP),
    (keys.LOOKUPS, LOOKUP),
    (keys.TOPICS, TOPIC),
    (keys.CHANNELS, CHANNEL),
    (keys.EPOCHS, EPOCH_FLOOR),
    (keys.SETTINGS, SETTING),
)


def decode(key: str, data: bytes) -> Document | None:
    """By its key; None: the key has no document that is read here. Raises DocumentBroken."""
    if key == keys.CLUSTER:
        return CLUSTER.decode(key, data)
    if key == keys.CONTROLLER:
        return CONTROLLER.decode(key, data)
    for prefix, form in _FORMS:
        if key.startswith(prefix):
            return _sound(key, form.decode(key, data))
    return None


def _sound(key: str, document: Any) -> Document:
    """What a form cannot say: fields that contradict each other."""
    if isinstance(document, Record):
        _check_record(key, document)
    return document  # type: ignore[no-any-return]


def _check_record(key: str, record: Record) -> None:
    nodes = [member.node for member in record.members]
    leader = record.leader
    if len(record.members) < record.members_min:
        rule = f"the set has at least {record.members_min} members"
        raise DocumentBroken(key, "in_sync", nodes, rule)
    if len(set(nodes)) < len(nodes):
        raise DocumentBroken(key, "in_sync", nodes, "a node has one place in the set")
    if len(set(record.wanted)) < len(record.wanted):
        raise DocumentBroken(key, "preferred", record.wanted, "a node is named once")
    if leader is not None and not record.has(leader.node, leader.replica):
        raise DocumentBroken(key, "leader", tuple(leader), "the leader is a member")
