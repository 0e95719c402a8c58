"""The TCP protocol of nsqlookupd without I/O: bytes in, bytes out.

A connection begins with the magic `  V1`. Commands are lines; white space around them is dropped,
and single blanks part their words. IDENTIFY is followed by a 4-byte length and that much JSON.
Answers are a 4-byte length and data, with no frame type: NSQ's other protocol has one, this has
not. Commands may be sent in advance; answers keep their order.

Every error is fatal: it is answered, and then the connection ends. What a client can make us hold
is bounded: a line, and one IDENTIFY body; the registry bounds the names.

Partitions. NSQ has `REGISTER topic [channel]`, Youzan's NSQ `REGISTER topic partition [channel]`,
and a channel may be called `0`. So what the second word is depends on who speaks, not on how it
looks: a client whose IDENTIFY has `"partitions": true` (Penstock) or `distributed_id` (Youzan's
nsqd) names partitions, and of it a number in that place is one. Of every other client the word is a
channel, whatever it looks like. A client that names partitions learns that they are understood from
`"partitions": true` in the answer, and may describe a topic: `META topic name=value ...`.
"""

import json
import logging
import struct
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.durations import format_duration
from penstock.errors import PenstockError, Refused
from penstock.net.query import whole_number
from penstock.nsqlookupd.registry import Meta, Peer, RegisteredProducer, Registry
from penstock.wire.frames import with_size
from penstock.wire.names import is_valid_name

log = logging.getLogger("penstock.nsqlookupd")

MAGIC = b"  V1"
OK = b"OK"

_SIZE = struct.Struct(">i")
_BLANKS = b" \t\n\v\f\r"
_PORT_BOUND = 1 << 31  # a unix socket is announced as port -1


class Refusal(PenstockError):
    """An error of a client; `data` is the answer."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data.decode("utf-8", "backslashreplace"))
        self.data = data


class Client:
    """One connection. `closed` is set when it has to end, after the output of `feed` is sent."""

    def __init__(self, registry: Registry, remote: str, about: dict[str, Any]) -> None:
        """`about` is the answer to IDENTIFY."""
        self.closed = False
        self.producer: RegisteredProducer | None = None
        self._registry = registry
        self._remote = remote
        self._about = about
        self._buffer = bytearray()
        self._step: Callable[[], bytes | None] = self._magic
        self._body_bytes = 0
        self._commands: dict[bytes, Callable[[list[bytes]], bytes | None]] = {
            b"IDENTIFY": self._identify,
            b"PING": self._ping,
            b"REGISTER": self._register,
            b"UNREGISTER": self._unregister,
            b"META": self._meta,
        }

    @property
    def greeted(self) -> bool:
        return self._step != self._magic

    # --- calls of the shell ---

    def feed(self, data: bytes | bytearray) -> bytes:
        """Bytes that came; the answers to them."""
        answers = []
        if not self.closed:
            self._buffer += data
        while not self.closed:
            try:
                answer = self._step()
            except Refusal as refusal:
                answers.append(self._refuse(refusal))
                break
            if answer is None:
                break
            if answer:
                answers.append(with_size(answer))
        return b"".join(answers)

    def end(self) -> bytes:
        """The client will send no more: the answer, where it broke off within an IDENTIFY."""
        if self.closed or self._step not in (self._body_size, self._body):
            self.closed = True
            return b""
        what = b"body" if self._step == self._body else b"body size"
        return self._refuse(Refusal(b"E_BAD_BODY IDENTIFY failed to read " + what))

    def lost(self) -> None:
        """The connection is gone, with its producer."""
        self.closed = True
        self._buffer.clear()
        producer, self.producer = self.producer, None
        if producer is not None:
            log.info("PROTOCOL(V1): [%s] exiting ioloop", self._remote)
            self._registry.leave(producer)

    def _refuse(self, refusal: Refusal) -> bytes:
        log.error("[%s] - %s", self._remote, refusal)
        self.closed = True
        self._buffer.clear()
        return with_size(refusal.data)

    # --- steps: the answer, b"" for none, None while more bytes are needed ---

    def _magic(self) -> bytes | None:
        if len(self._buffer) < len(MAGIC):
            return None
        if self._take(len(MAGIC)) != MAGIC:
            raise Refusal(b"E_BAD_PROTOCOL")
        log.info("CLIENT(%s): desired protocol magic '%s'", self._remote, MAGIC.decode())
        self._step = self._line
        return b""

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", 0, limits.LINE_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= limits.LINE_BYTES_MAX:
                raise Refusal(b"E_INVALID command line too long")
            return None
        words = self._take(end + 1).strip(_BLANKS).split(b" ")
        command = self._commands.get(words[0])
        if command is None:
            raise Refusal(b"E_INVALID invalid command " + words[0])
        return command(words)

    def _body_size(self) -> bytes | None:
        if len(self._buffer) < _SIZE.size:
            return None
        size = _SIZE.unpack(self._take(_SIZE.size))[0]
        if not 0 <= size <= limits.LOOKUP_BODY_BYTES_MAX:
            raise Refusal(b"E_BAD_BODY IDENTIFY failed to read body")
        self._body_bytes = size
        self._step = self._body
        return b""

    def _body(self) -> bytes | None:
        if len(self._buffer) < self._body_bytes:
            return None
        self._step = self._line
        peer = read_peer(self._take(self._body_bytes), self._remote)
        ports = f"TCP:{peer.tcp_port} HTTP:{peer.http_port}"
        text = f"Address:{peer.broadcast_address} {ports} Version:{peer.version}"
        log.info("CLIENT(%s): IDENTIFY %s", self._remote, text)
        self.producer = self._registry.join(peer)
        self._log_change("REGISTER", "client", "", "")
        about = self._about | ({"partitions": True} if peer.names_partitions else {})
        return json.dumps(about, separators=(",", ":"), sort_keys=True).encode()

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    # --- commands ---

    def _ping(self, words: list[bytes]) -> bytes:
        if self.producer is not None:
            silent_ns = self._registry.seen(self.producer)
            log.info("CLIENT(%s): pinged (last ping %s)", self._remote, format_duration(silent_ns))
        return OK

    def _identify(self, words: list[bytes]) -> bytes:
        if self.producer is not None:
            raise Refusal(b"E_INVALID cannot IDENTIFY again")
        self._step = self._body_size
        return b""

    def _topic(self, words: list[bytes]) -> tuple[RegisteredProducer, str]:
        command = words[0]
        if self.producer is None:
            raise Refusal(b"E_INVALID client must IDENTIFY")
        if len(words) < 2:
            raise Refusal(b"E_INVALID %b insufficient number of params" % command)
        topic = words[1]
        if not is_valid_name(topic):
            raise Refusal(b"E_BAD_TOPIC %b topic name '%b' is not valid" % (command, topic))
        return self.producer, topic.decode("ascii")

    def _key(self, words: list[bytes]) -> tuple[RegisteredProducer, str, str, int | None]:
        producer, topic = self._topic(words)
        rest, partition = words[2:], None
        if producer.peer.names_partitions and rest and rest[0].isdigit():
            partition = whole_number(rest.pop(0).decode(), limits.PARTITIONS_MAX - 1)
            if partition is None:
                raise Refusal(
                    b"E_BAD_PARTITION %b partition '%b' is not valid" % (words[0], words[2])
                )
        channel = rest[0] if rest else b""
        if channel and not is_valid_name(channel):
            raise Refusal(b"E_BAD_CHANNEL %b channel name '%b' is not valid" % (words[0], channel))
        return producer, topic, channel.decode("ascii"), partition

    def _register(self, words: list[bytes]) -> bytes:
        producer, topic, channel, partition = self._key(words)
        if topic in self._registry.cluster_topics:  # the cluster's metadata says where it is
            return OK
        if channel and (topic, channel) not in producer.channels:
            self._log_change("REGISTER", "channel", topic, channel)
        if topic not in producer.topics:
            self._log_change("REGISTER", "topic", topic, "")
        try:
            self._registry.register(producer, topic, channel, partition)
        except Refused as refused:
            raise Refusal(b"E_INVALID REGISTER " + refused.reason.encode()) from refused
        return OK

    def _unregister(self, words: list[bytes]) -> bytes:
        producer, topic, channel, partition = self._key(words)
        if channel and (topic, channel) in producer.channels:
            self._log_change("UNREGISTER", "channel", topic, channel)
        elif not channel and topic in producer.topics:
            self._log_change("UNREGISTER", "topic", topic, "")
        self._registry.unregister(producer, topic, channel, partition)
        return OK

    def _meta(self, words: list[bytes]) -> bytes:
        producer, topic = self._topic(words)
        if not producer.peer.names_partitions:
            raise Refusal(b"E_INVALID invalid command META")
        self._registry.describe(producer, topic, read_meta(words[2:]))
        return OK

    def _log_change(self, verb: str, category: str, key: str, subkey: str) -> None:
        text = f"{verb} category:{category} key:{key} subkey:{subkey}"
        log.info("DB: client(%s) %s", self._remote, text)


def read_meta(words: list[bytes]) -> Meta:
    """`name=value` each; names that are not known are for later releases. Raises Refusal."""
    values = dict(word.decode("ascii", "replace").partition("=")[::2] for word in words)
    count = whole_number(values.get("partition_num", "1"), limits.PARTITIONS_MAX)
    if not count:
        raise Refusal(b"E_INVALID META partition_num is not 1 to %d" % limits.PARTITIONS_MAX)
    flags = ("extend_support", "ordered", "disable_channel_auto_create")
    return Meta(count, *(values.get(name) == "true" for name in flags))


def read_peer(body: bytes, remote: str) -> Peer:
    """The JSON of an IDENTIFY. Raises Refusal."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(b"E_BAD_BODY IDENTIFY failed to decode JSON body") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise Refusal(b"E_BAD_BODY IDENTIFY failed to decode JSON body")
    lowered = {key.casefold(): value for key, value in document.items()}
    texts = ("broadcast_address", "hostname", "version", "topology_zone", "topology_region")
    values: dict[str, Any] = {name: _text(lowered.get(name)) for name in texts}
    tcp_port, http_port = (_port(lowered.get(name)) for name in ("tcp_port", "http_port"))
    if not (values["broadcast_address"] and values["version"] and tcp_port and http_port):
        raise Refusal(b"E_BAD_BODY IDENTIFY missing fields")
    return Peer(
        remote_address=remote,
        tcp_port=tcp_port,
        http_port=http_port,
        names_partitions=lowered.get("partitions") is True or "distributed_id" in lowered,
        **values,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refusal(b"E_BAD_BODY IDENTIFY failed to decode JSON body")
    if len(value) > limits.IDENTIFY_TEXT_CHARS_MAX:
        rule = b"a text has at most %d characters" % limits.IDENTIFY_TEXT_CHARS_MAX
        raise Refusal(b"E_BAD_BODY IDENTIFY has one of %d: %b" % (len(value), rule))
    # half a surrogate pair has no UTF-8
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _port(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is not int or not -_PORT_BOUND <= value < _PORT_BOUND:
        raise Refusal(b"E_BAD_BODY IDENTIFY failed to decode JSON body")
    return value
