"""The dialogue of nsqd and an nsqlookupd, without I/O: one connection, nsqd's side.

nsqd sends the magic, says who it is, and from the answer on registers what it has. It does not wait
for one answer before it sends the next command; answers come in order, so a queue of what was sent
is enough to know what each is about. Whatever is not the answer that is due ends the connection: a
peer that is broken, or is no nsqlookupd at all, cannot make us keep anything.

An official nsqlookupd takes `REGISTER topic [channel]`. To one that has said in its answer to
IDENTIFY that it knows partitions, nsqd names them as Youzan's does: `REGISTER topic partition
[channel]`. There a channel goes with the topic's first partition: who has the topic has the
channel. `META topic partition_num=8 extend_support=true` says what a topic is like that is no plain
one, or is one again.

Of a cluster's topic a node registers what it leads, and takes back what it does not lead any more.
"""

import json
import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.context import TopicChange
from penstock.broker.topics.settings import is_internal
from penstock.broker.topics.topic import Topic
from penstock.errors import PeerFault

MAGIC = b"  V1"
IDENTIFY = "IDENTIFY"
PING = "PING"

_SIZE = struct.Struct(">i")
_HOST = re.compile(r"[A-Za-z0-9._:-]+", re.ASCII)
_SHOWN_BYTES = 300  # of an answer, in a log line
_DELETIONS = (TopicChange.TOPIC_DELETED, TopicChange.CHANNEL_DELETED)


class PeerInfo(NamedTuple):
    """The peer's description of itself. `http_address` is "" when it is unusable."""

    text: str
    http_address: str
    partitions: bool = False  # it knows partitions of topics, as Penstock's and Youzan's do


class Dialogue:
    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.info: PeerInfo | None = None  # known once the peer knows us
        self.owed: deque[str] = deque()  # commands whose answers have not come
        self._identity = identity
        self._buffer = bytearray()

    def begin(self) -> bytes:
        body = json.dumps(self._identity, separators=(",", ":")).encode()
        self.owed.append(IDENTIFY)
        return MAGIC + b"IDENTIFY\n" + _SIZE.pack(len(body)) + body

    def command(self, text: str) -> bytes:
        self.owed.append(text)
        return text.encode("ascii") + b"\n"

    def feed(self, data: bytes) -> list[str]:
        """The commands whose answers are complete. Raises PeerFault."""
        self._buffer += data
        answered = []
        while len(self._buffer) >= _SIZE.size:
            size = _SIZE.unpack_from(self._buffer)[0]
            if not 0 <= size <= limits.LOOKUP_ANSWER_BYTES_MAX:
                raise PeerFault(f"an answer of {size} bytes: this is no nsqlookupd")
            end = _SIZE.size + size
            if len(self._buffer) < end:
                break
            answer = bytes(self._buffer[_SIZE.size : end])
            del self._buffer[:end]
            if not self.owed:
                raise PeerFault(f"an answer to nothing: {_shown(answer)}")
            answered.append(self.owed.popleft())
            self._take(answered[-1], answer)
        return answered

    def _take(self, command: str, answer: bytes) -> None:
        if command == IDENTIFY:
            self.info = read_info(answer)
        elif answer != b"OK":
            raise PeerFault(f"{command} - {_shown(answer)}")


def read_info(answer: bytes) -> PeerInfo:
    """The answer to IDENTIFY. Raises PeerFault."""
    if answer.startswith(b"E_"):  # just this is what versions say that know no IDENTIFY
        raise PeerFault(f"lookupd returned {_shown(answer)}")
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise PeerFault(f"parsing response - {_shown(answer)}") from error
    if not isinstance(document, dict):
        raise PeerFault(f"parsing response - {_shown(answer)}")
    host, port = document.get("broadcast_address"), document.get("http_port")
    address = ""
    if isinstance(host, str) and _HOST.fullmatch(host) and type(port) is int and 0 < port < 65536:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return PeerInfo(_shown(answer), address, document.get("partitions") is True)


def _shown(answer: bytes) -> str:
    """In the form of a log line."""
    text = ascii(answer[:_SHOWN_BYTES].decode("utf-8", "replace"))[1:-1]
    return text + ("..." if len(answer) > _SHOWN_BYTES else "")


# --- registrations ---


def all_commands(topics: Iterable[Topic], partitions: bool) -> Iterator[str]:
    """`partitions`: the nsqlookupd knows them."""
    for topic in topics:
        if not is_internal(topic.name):
            yield from _split(topic) if partitions else _plain(topic)


def commands_of(
    change: TopicChange, topic: Topic, channel: Channel | None, partitions: bool
) -> list[str]:
    """The commands after a change of one topic."""
    if is_internal(topic.name):
        return []
    if topic.replicated and change not in _DELETIONS:
        return list(_moved(topic, partitions))
    if change is TopicChange.TOPIC_RESHAPED and not partitions:
        return []
    verb = "UNREGISTER" if change in _DELETIONS else "REGISTER"
    if channel is not None:
        if not partitions:
            return [f"{verb} {topic.name} {channel.name}"]
        return [f"{verb} {topic.name} {one.number} {channel.name}" for one in topic.leaders[:1]]
    if change is TopicChange.TOPIC_RESHAPED:
        return [*_partition_commands(topic), _meta(topic)]
    if partitions and verb == "REGISTER":
        return list(_split(topic))
    return [f"{verb} {topic.name}"]


def _moved(topic: Topic, partitions: bool) -> Iterator[str]:
    """The present state of a cluster's topic."""
    if not topic.leaders:
        yield f"UNREGISTER {topic.name}"
        return
    if partitions:
        others = (one for one in range(topic.partition_count) if not topic.leads(one))
        yield from (f"UNREGISTER {topic.name} {number}" for number in others)
    yield from _split(topic) if partitions else _plain(topic)


def _plain(topic: Topic) -> Iterator[str]:
    if topic.replicated and not topic.leaders:
        return
    if topic.channels:
        yield from (f"REGISTER {topic.name} {channel}" for channel in topic.channels)
    else:
        yield f"REGISTER {topic.name}"


def _split(topic: Topic) -> Iterator[str]:
    yield from _partition_commands(topic)
    settings = topic.settings
    is_plain = not (topic.extended or settings.ordered or settings.disable_channel_auto_create)
    if topic.partition_count > 1 or not is_plain:
        yield _meta(topic)


def _partition_commands(topic: Topic) -> Iterator[str]:
    """The partitions that this node leads; nothing for a topic without any."""
    led = [leader.number for leader in topic.leaders]
    if topic.partition_count > 1 or not topic.channels:  # a channel's command names the first
        yield from (f"REGISTER {topic.name} {partition}" for partition in led)
    for first in led[:1]:
        yield from (f"REGISTER {topic.name} {first} {channel}" for channel in topic.channels)


def _meta(topic: Topic) -> str:
    """Youzan's names. Defaults of a plain topic are omitted."""
    extended = "true" if topic.extended else "false"
    words = [f"partition_num={topic.partition_count}", f"extend_support={extended}"]
    if topic.settings.ordered:
        words.append("ordered=true")
    if topic.settings.disable_channel_auto_create:
        words.append("disable_channel_auto_create=true")
    return " ".join(["META", topic.name, *words])
