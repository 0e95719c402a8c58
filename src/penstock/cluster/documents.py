"""The documents under the keys of the metadata: one class a kind, and its form as JSON.

Numbers that are drawn at random (identities, incarnations, replica ids) are hexadecimal text. A
partition's document is the `PartitionRecord` of `penstock.replication`, whose legal changes stand
there.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.json_form import (
    FLAG,
    OPTIONAL,
    SETTINGS,
    Field,
    FieldKind,
    Form,
    Unfit,
    form_of,
    hexadecimal,
    integer,
    list_of,
    one_of,
    optional,
    parts,
    text,
)
from penstock.cluster.moves import MOVE
from penstock.errors import DocumentBroken
from penstock.limits import MEMBERS_MAX, NODE_ID_MAX, PARTITIONS_MAX
from penstock.replication.record import LeaderId, Member, PartitionRecord

_NODE = integer(0, NODE_ID_MAX)
_U32, _U63 = integer(0, (1 << 32) - 1), integer(0, (1 << 63) - 1)
_RANDOM = hexadecimal(16)
IDENTITY_PATTERN = "(?:([0-3][0-9a-f]{2})-)?([0-9a-f]{16})"
_BY_ITSELF = 1 << 80  # an identity that a node gave by itself: node << 64 | time, above this


def identity_text(identity: int) -> str:
    """The form in `topic.json`, in segments and in frames."""
    if identity < _BY_ITSELF:
        return f"{identity:016x}"
    return f"{identity >> 64 & NODE_ID_MAX:03x}-{identity & (1 << 64) - 1:016x}"


def identity_of(text: object) -> int:
    """Raises Unfit."""
    found = re.fullmatch(IDENTITY_PATTERN, text) if isinstance(text, str) else None
    if found is None:
        raise Unfit(text, "it is a text of 16 digits, 0 to 9 and a to f, or of 3, a dash and 16")
    node, number = found.groups()
    return int(number, 16) if node is None else _BY_ITSELF | int(node, 16) << 64 | int(number, 16)


_IDENTITY = FieldKind(identity_of, identity_text)
# How a field stands in JSON is a part of its type.
U32 = Annotated[int, _U32]
U63 = Annotated[int, _U63]
Port = Annotated[int, integer(0, 65_535)]
Random = Annotated[int, _RANDOM]
Identity = Annotated[int, _IDENTITY]  # of a topic
Uuid = Annotated[int, hexadecimal(32)]
Text = Annotated[str, text()]
Flag = Annotated[bool, FLAG]
Settings = Annotated[tuple[tuple[str, Any], ...], SETTINGS]  # names and values, sorted by name


class Cluster(NamedTuple):
    uuid: Uuid
    format: U32 = 1  # of the keys and documents as a whole
    feature_level: U32 = 1  # what all nodes are known to read
    restorations: U32 = 0  # of the metadata from what the nodes remember: revisions began again


class NodeDocument(NamedTuple):
    """A live node, as its process describes itself. Its key has a lease."""

    incarnation: Random
    host: Text
    tcp_port: Port
    http_port: Port
    replication_host: Text
    replication_port: Port
    version: Text
    zone: Text
    disk_free_bytes: U63
    load: U63  # bytes a second that its partitions took, averaged

    @property
    def http_address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.http_port}"


class Lookup(NamedTuple):
    """A live nsqlookupd. Its key has a lease."""

    host: Text
    tcp_port: Port
    http_port: Port
    version: Text


ACTIVE, MAINTENANCE, DRAINING = "active", "maintenance", "draining"
REMOVED = "removed"  # a tombstone
STATES = (ACTIVE, MAINTENANCE, DRAINING, REMOVED)


class Membership(NamedTuple):
    """A node as the cluster remembers it, alive or not."""

    uuid: Uuid  # of the node: a second machine with its id has another, and is refused
    generation: U63
    boot: Text  # of its machine
    memory_lost_generation: U63
    incarnation: Random  # of its newest process
    id_floor: U63  # ids of messages below this tick may have been given out
    state: Annotated[str, one_of(*STATES)]


class Controller(NamedTuple):
    name: Text  # of the daemon
    incarnation: Random


class Topic(NamedTuple):
    identity: Identity
    replicas: Annotated[int, integer(1, MEMBERS_MAX)]  # of each partition
    hash_partitions: Annotated[
        int, integer(1, PARTITIONS_MAX)
    ]  # keys and producers are spread over this many
    paused: Flag
    settings: Settings
    deleted: Flag  # a tombstone
    confirmed: Annotated[
        tuple[int, ...], list_of(_NODE, NODE_ID_MAX + 1)
    ]  # the nodes that have removed what they had

    @property
    def instance(self) -> int:
        """One that was deleted and made again is another one."""
        return self.identity


class Channel(NamedTuple):
    identity: Identity  # of the topic
    number: U32  # never used again in the topic
    paused: Flag
    settings: Settings
    deleted: Flag  # a tombstone

    @property
    def instance(self) -> tuple[int, int]:
        return self.identity, self.number


class ChannelNumbers(NamedTuple):
    """Survives the deletion of a topic."""

    identity: Identity  # of the topic
    last: U32


class EpochFloor(NamedTuple):
    """Survives the deletion of a topic: no epoch of the name was above it. Its revision is that of
    the last transaction that added partitions; `added_at` are those of the ones before."""

    epoch: U32
    added_at: Annotated[tuple[int, ...], list_of(_U63, PARTITIONS_MAX), OPTIONAL] = ()


class Rehash(NamedTuple):
    """Publishes to the topic are refused while its keys are spread anew (`rehash`)."""

    identity: Identity  # of the topic
    incarnation: Random  # of the process that does it


CLUSTER, NODE, LOOKUP = form_of(Cluster), form_of(NodeDocument), form_of(Lookup)
MEMBERSHIP, CONTROLLER = form_of(Membership), form_of(Controller)
TOPIC, CHANNEL = form_of(Topic), form_of(Channel)
CHANNEL_NUMBERS = form_of(ChannelNumbers)
EPOCH_FLOOR, REHASH = form_of(EpochFloor), form_of(Rehash)

_MEMBER = parts(Member, node=_NODE, replica=_RANDOM, generation=_U63)
_LEADER_ID = parts(LeaderId, node=_NODE, incarnation=_RANDOM, replica=_RANDOM)
RECORD = Form(
    PartitionRecord,
    1,
    (
        Field("identity", _IDENTITY, "identity"),
        Field("epoch", _U32, "epoch"),
        Field("leader", optional(_LEADER_ID), "leader"),
        Field("in_sync", list_of(_MEMBER, MEMBERS_MAX), "members"),
        Field("min_in_sync", integer(1, MEMBERS_MAX), "members_min"),
        Field("preferred", list_of(_NODE, MEMBERS_MAX), "wanted"),
        Field("unclean_epoch", _U32, "unclean_epoch"),
    ),
)

# By the prefix of their keys; and what the rest of a key names, which raises ValueError.
FORMS: dict[str, tuple[Form[Any], Callable[[str], Any]]] = {
    keys.PARTITIONS: (RECORD, keys.partition_of),
    keys.MOVES: (MOVE, keys.partition_of),
    keys.CONTROLLER: (CONTROLLER, str),
    keys.NODES: (NODE, keys.node_of),
    keys.MEMBERS: (MEMBERSHIP, keys.node_of),
    keys.LOOKUPS: (LOOKUP, keys.name_of),
    keys.TOPICS: (TOPIC, keys.name_of),
    keys.CHANNELS: (CHANNEL, keys.channel_of),
    keys.NUMBERS: (CHANNEL_NUMBERS, keys.name_of),
    keys.EPOCHS: (EPOCH_FLOOR, keys.name_of),
    keys.REHASHES: (REHASH, keys.name_of),
}


def decode(key: str, data: bytes) -> Any:
    """Decodes by key; None: no document of this release has that key. Raises DocumentBroken."""
    if key == keys.CLUSTER:
        return CLUSTER.decode(key, data)
    for prefix, (form, _) in FORMS.items():
        if key.startswith(prefix):
            document = form.decode(key, data)
            if isinstance(document, PartitionRecord):
                _check_record(key, document)
            return document
    return None


def _check_record(key: str, record: PartitionRecord) -> None:
    """Checks that a form cannot express: fields that contradict each other."""
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
