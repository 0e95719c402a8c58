"""The keys of the metadata, below the prefix of their cluster.

| key | document | kept |
|---|---|---|
| `cluster` | Cluster | |
| `controller` | Controller | while its lease lives |
| `nodes/<id>` | Node | while its lease lives |
| `members/<id>` | Membership | |
| `lookups/<id>` | Lookup | while its lease lives |
| `topics/<topic>` | Topic | after deletion as a tombstone |
| `channels/<topic>/<name>` | Channel | after deletion as a tombstone |
| `numbers/<topic>` | ChannelNumbers | after deletion of the topic, too |
| `epochs/<topic>` | EpochFloor | after deletion of the topic, too |
| `partitions/<topic>/<n>` | Record | |
| `moves/<topic>/<n>` | Move (of `moves`) | until it is done |
| `rehash/<topic>` | Rehash | until it is done, or its node's lease ends |

Names of topics and channels have no slash, so that a key has one meaning.
"""

from typing import NamedTuple

CLUSTER = "cluster"
CONTROLLER = "controller"
NODES = "nodes/"
MEMBERS = "members/"
LOOKUPS = "lookups/"
TOPICS = "topics/"
CHANNELS = "channels/"
NUMBERS = "numbers/"
EPOCHS = "epochs/"
PARTITIONS = "partitions/"
MOVES = "moves/"
REHASHES = "rehash/"


class PartitionName(NamedTuple):
    topic: str
    number: int


class ChannelName(NamedTuple):
    topic: str
    channel: str


def node(node_id: int) -> str:
    return f"{NODES}{node_id}"


def member(node_id: int) -> str:
    return f"{MEMBERS}{node_id}"


def lookup(name: str) -> str:
    return LOOKUPS + name


def topic(name: str) -> str:
    return TOPICS + name


def channel(topic_name: str, name: str) -> str:
    return f"{CHANNELS}{topic_name}/{name}"


def numbers(topic_name: str) -> str:
    return NUMBERS + topic_name


def epochs(topic_name: str) -> str:
    return EPOCHS + topic_name


def partition(topic_name: str, number: int) -> str:
    return f"{PARTITIONS}{topic_name}/{number}"


def rehash(topic_name: str) -> str:
    return REHASHES + topic_name


def move(topic_name: str, number: int) -> str:
    return f"{MOVES}{topic_name}/{number}"


def topic_of(key: str) -> str:
    """The topic that a document decides about; empty: about none."""
    prefix, slash, rest = key.partition("/")
    is_its = prefix + slash in (TOPICS, CHANNELS, PARTITIONS, REHASHES)
    return rest.partition("/")[0] if is_its else ""


def node_of(key: str) -> int:
    """The node in `nodes/<id>` or `members/<id>`. Raises ValueError."""
    return _number(key, key.rpartition("/")[2])


def partition_of(key: str) -> PartitionName:
    """Raises ValueError."""
    parts = key.split("/")
    if len(parts) != 3 or not parts[1]:
        raise ValueError(f"{key}: a partition's key is {PARTITIONS}<topic>/<number>")
    return PartitionName(parts[1], _number(key, parts[2]))


def name_of(key: str) -> str:
    """The name at the end of a key. Raises ValueError."""
    name = key.partition("/")[2]
    if not name or "/" in name:
        raise ValueError(f"{key}: a name follows the prefix, without a slash")
    return name


def channel_of(key: str) -> ChannelName:
    """Raises ValueError."""
    parts = key.split("/")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise ValueError(f"{key}: a channel's key is {CHANNELS}<topic>/<name>")
    return ChannelName(parts[1], parts[2])


def _number(key: str, text: str) -> int:
    """One spelling for each number: a second key for one object would be a second truth."""
    if not (text.isascii() and text.isdigit() and str(int(text)) == text):
        raise ValueError(f"{key}: {text!r} is no number as it is written in keys")
    return int(text)
