"""Penstock's errors: the root of their tree, and those that cross from one package to another.

An error that only one package raises and handles stands beside the rule that it is about
(`wire.errors.WireFault`, `net.api.HttpError`, those of `log.errors`). In nsqd, what is no
PenstockError is a fault of the program, and stops the daemon.

Callers match on classes and attributes, never on text.
"""

from typing import Any


class PenstockError(Exception):
    """Root of the tree."""


class ConfigError(PenstockError):
    """A flag, a key or an environment variable."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"{name}: {value!r} is not valid: {rule}")
        self.name = name
        self.value = value
        self.rule = rule


class StorageError(PenstockError):
    """The disk, or what is on it. `where` is the file or directory."""

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class DirectoryLocked(StorageError):
    """Another process owns the data directory."""


class LedgerMismatch(StorageError):
    def __init__(self, where: object, name: str, known: int, found: int) -> None:
        rule = "name the right etcd, or start with an empty directory"
        super().__init__(
            where, f"it is of cluster {known:032x}, not of {name}, {found:032x}: {rule}"
        )


class PartitionMissing(StorageError):
    """A known partition's directory is not there."""


class TopicDamaged(StorageError):
    """A file without which a topic cannot be opened is corrupt. The topic is set aside: its files
    stay as they are, and the others are served."""


class LogDamaged(StorageError):
    """Acknowledged data is corrupt: offsets [from_offset, to_offset) (the best guess)."""

    def __init__(self, where: object, reason: str, from_offset: int, to_offset: int) -> None:
        super().__init__(where, f"{reason}; offsets {from_offset} to {to_offset - 1} are corrupt")
        self.from_offset = from_offset
        self.to_offset = to_offset


class WriteRefused(StorageError):
    """This write was not done, and later ones may be (disk full, watermark)."""


class LeadershipEnded(WriteRefused):
    """Another node leads the partition now. Nothing of it was sent to other replicas: that node may
    be asked."""


class PartitionStopped(StorageError):
    """An fsync failed: nothing more is written to this partition."""


class PublishUnknown(StorageError):
    """Its append was sent to other replicas before this one failed, or lost the leadership. The
    next leader commits it, or it is never seen."""


class ChangeUnknown(StorageError):
    """A change of a channel is in the journal of a leader whose leadership ended before its set had
    it: the next leader may know of it, or not. Asked for again, it is made for certain."""


class StageDamaged(StorageError):
    """A staged block is not what was staged."""


class CommitUnfinished(StorageError):
    """A commit of stages is decided, and will be finished when the disk lets it. It is neither lost
    nor visible: asked for again, it is answered when it is finished."""


class OffsetOutside(PenstockError):
    """What a reader wants is not in the log. `edge` is the nearest offset that can be read: the
    earliest, or the end."""

    def __init__(self, offset: int, edge: int, what: str) -> None:
        super().__init__(f"offset {offset} {what} {edge}")
        self.edge = edge


class OffsetGone(OffsetOutside):
    def __init__(self, offset: int, earliest: int) -> None:
        super().__init__(offset, earliest, "is gone: the earliest is")


class OffsetBeyondEnd(OffsetOutside):
    def __init__(self, offset: int, end: int) -> None:
        super().__init__(offset, end, "is beyond the end:")


class StreamBroken(PenstockError, ValueError):
    def __init__(self, form: str, reason: str) -> None:
        super().__init__(f"{form} stream: {reason}")


class TraceBroken(PenstockError, ValueError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"no body of trace events: {reason}")
        self.reason = reason


class NameInvalid(PenstockError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} name {name!r} is not valid: 1 to 64 of . a-z A-Z 0-9 _ -")


class NotFound(PenstockError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"no such {kind}: {name}")
        self.kind = kind
        self.name = name


class StageMissing(NotFound):
    def __init__(self, topic: str, name: str, partition: int) -> None:
        super().__init__("stage", f"{name} of partition {partition} of topic {topic}")
        self.topic = topic
        self.stage = name
        self.partition = partition


class ClientError(PenstockError):
    """What the client library raises."""


class FetchFailed(PenstockError):
    """An outgoing HTTP request. `status` is the answer's, 0 when there was none; `code` is a
    daemon's name for its refusal, `details` its words about it. `url` leaves out the query, which
    may hold a secret. `sent` False: it could not connect, so the request was never sent."""

    def __init__(
        self, url: str, reason: str, status: int = 0, code: str = "", details: str = "",
        sent: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason
        self.status = status
        self.code = code
        self.details = details
        self.sent = sent


class BrokerRefused(FetchFailed, ClientError):
    """`code` is the answer's `message` ("OFFSET_GONE"), `document` the whole of its JSON."""

    def __init__(self, url: str, status: int, code: str, document: dict[str, Any]) -> None:
        reason = f": {document['reason']}" if "reason" in document else ""
        super().__init__(url, f"got response {status} {code}".rstrip() + reason, status, code)
        self.document = document


class RangeCorrupt(PenstockError, ValueError):
    """An answer to `/log/fetch` that must not be believed; asking again may help."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a fetched range of the log is corrupt: {reason}")
        self.reason = reason


class DataLost(PenstockError):
    """A reader of the log wants offsets that are not there any more: `reason` says why."""

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(f"topic {topic} partition {partition}: {reason}")
        self.topic = topic
        self.partition = partition
        self.reason = reason


class RowRefused(PenstockError):
    """A row of a table can't be a message. `row` counts from 0 within `where`; `topic` is empty
    when that is what is wrong."""

    def __init__(self, row: int, where: str, topic: str, reason: str) -> None:
        named = f" for topic {topic}" if topic else ""
        super().__init__(f"row {row} of {where}{named}: {reason}")
        self.row = row
        self.topic = topic
        self.reason = reason


class RowsRefused(PenstockError):
    def __init__(self, count: int, most: int, reason: str) -> None:
        rule = f"of one batch {most} may be (rejectedRowsMax), of 64 MiB in all"
        super().__init__(f"{count} rows or more can't be messages, and {rule}; the first: {reason}")


class LakeFailed(PenstockError):
    """A Delta table can't be opened, made or written."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table}: {reason}")
        self.reason = reason


class TableAway(LakeFailed):
    """It was there, and may come back: its disk is not mounted."""


class TableUnreadable(LakeFailed):
    """It is written in a way that is not read here, or is none."""


class SchemaMismatch(LakeFailed):
    """Its columns are not those that would be written."""


class PeerFault(PenstockError):
    """Another daemon broke the protocol, or is silent: the connection to it has to end."""


class DocumentBroken(PenstockError):
    """`field` is empty where the document as a whole is meant."""

    def __init__(self, key: str, field: str, value: object, rule: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 100 else shown[:100] + "..."
        super().__init__(f"{key}: {field + ': ' if field else ''}{shown} is not valid: {rule}")


class CoordinatorFailed(PenstockError):
    """A call was refused or not answered. `code`: the name of gRPC's status."""

    def __init__(self, endpoint: str, code: str, reason: str) -> None:
        super().__init__(f"etcd at {endpoint}: {reason} ({code})")
        self.endpoint = endpoint
        self.code = code


class TransactionTooLarge(PenstockError):
    def __init__(self, what: str, count: int, count_max: int) -> None:
        super().__init__(f"a transaction of {count} {what}; at most {count_max} go into one")


class AuthFailed(PenstockError):
    """No auth server said who a client is and what it may do. The text is for the log only."""


class Refused(PenstockError):
    """A request that the rules forbid. `reason` is the text that NSQ's clients see."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GrowthRefused(Refused):
    """A topic can't have this number of partitions, or not now."""


class ChannelUnregistered(Refused):
    def __init__(self, topic: str, channel: str) -> None:
        super().__init__(f"topic {topic} has no channel {channel}, and consumers may make none")


class ChannelUnconfirmed(Refused):
    """The channel is made. What these partitions acknowledge before their leaders know of it may
    not come to it."""

    def __init__(self, topic: str, channel: str, partitions: tuple[int, ...]) -> None:
        numbers = ", ".join(str(number) for number in partitions)
        noun = "partition" if len(partitions) == 1 else "partitions"
        super().__init__(
            f"channel {channel} of topic {topic} is made, but {noun} {numbers} did not confirm it "
            f"in time: messages published there until then may not come to it"
        )
        self.partitions = partitions


class WritesDisabled(Refused):
    REASON = "publishes are turned off on this node"

    def __init__(self) -> None:
        super().__init__(self.REASON)


class TooMuchWaiting(Refused):
    def __init__(self, waiting_bytes: int, bytes_max: int) -> None:
        super().__init__(f"{waiting_bytes} bytes wait to be stored, {bytes_max} may")


class PartitionUnknown(Refused):
    def __init__(self, topic: str, number: int, count: int) -> None:
        there = "partition 0 alone" if count == 1 else f"partitions 0 to {count - 1}"
        super().__init__(f"topic {topic} has no partition {number}: it has {there}")


class PartitionElsewhere(Refused):
    """Another node leads it, or none does at present."""

    def __init__(self, topic: str, number: int | None = None) -> None:
        which = "no partition" if number is None else f"partition {number}"
        verb = "is" if number is None else "is not"
        super().__init__(f"{which} of topic {topic} {verb} led by this node")


class SequenceGap(Refused):
    """`expected` is the sequence that would be taken."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"sequence {expected} is expected of this producer")
        self.expected = expected


class ProducerFenced(Refused):
    def __init__(self, epoch: int) -> None:
        super().__init__(f"this producer has begun epoch {epoch}")
        self.epoch = epoch


class StageExists(Refused):
    def __init__(self, topic: str, name: str, partition: int) -> None:
        where = f"partition {partition} of topic {topic}"
        super().__init__(f"{where} has a stage {name} that holds something else")
        self.topic = topic
        self.stage = name
        self.partition = partition


class StageSuperseded(Refused):
    def __init__(self, app: str, version: int) -> None:
        super().__init__(f"a newer attempt stages version {version} of {app}")
        self.app = app


class CommitGap(Refused):
    """`expected` is the part that would be taken."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"part {expected} of the commit's list is expected")
        self.expected = expected


class TopicChanged(Refused):
    """`identity` is the present one."""

    def __init__(self, topic: str, identity: str) -> None:
        super().__init__(f"topic {topic} was deleted and made again")
        self.topic = topic
        self.identity = identity


class QueryRefused(PenstockError):
    """A SQL statement: it is wrong, or would write."""


class ConnectFailed(ClientError):
    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class ServerRefused(ConnectFailed):
    """An error frame. `code` is its first word ("E_BAD_TOPIC"), `text` what follows."""

    def __init__(self, address: str, data: bytes) -> None:
        code, _, text = data.decode("utf-8", "replace").partition(" ")
        super().__init__(address, f"{code} {text}".strip())
        self.code = code
        self.text = text


class ConnectionLost(ClientError):
    """What was sent and not answered may or may not have been done."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}; what was not answered may or may not be done")
        self.address = address
        self.reason = reason


class PublishTimeout(ClientError):
    """`sent`: it went out, so it may be stored. Otherwise it is not."""

    def __init__(self, timeout_s: float, sent: bool) -> None:
        outcome = "it may be stored" if sent else "it was not sent"
        super().__init__(f"no answer to a publish within {timeout_s} s: {outcome}")
        self.timeout_s = timeout_s
        self.sent = sent


class PublishUncertain(ClientError):
    """It was sent, and is given up before anybody has said whether it is stored."""

    def __init__(self, topic: str, address: str, reason: str) -> None:
        super().__init__(f"a publish to {topic} at {address} may be stored or not: {reason}")
        self.topic = topic
        self.address = address
        self.reason = reason


class PublishRefused(ClientError):
    """It is not stored. `code` is nsqd's ("MSG_TOO_BIG"), `status` that of the HTTP answer."""

    def __init__(self, address: str, status: int, code: str, explained: str = "") -> None:
        super().__init__(f"{address}: {status} {code}{explained and ': '}{explained}")
        self.address = address
        self.status = status
        self.code = code


class PublishFenced(PublishRefused):
    """`epoch` is the newer one."""

    def __init__(self, address: str, epoch: int) -> None:
        super().__init__(address, 409, "PRODUCER_FENCED", f"this producer has begun epoch {epoch}")
        self.epoch = epoch


class PublishGap(PublishRefused):
    """`expected` is the sequence that nsqd would take, `sequence` ours. If it is lower, what was
    acknowledged before is not there any more: its topic was deleted, or its disk has lost it."""

    def __init__(self, address: str, expected: int, sequence: int) -> None:
        explained = f"sequence {expected} is expected of this producer, not {sequence}"
        super().__init__(address, 409, "SEQUENCE_GAP", explained)
        self.expected = expected
        self.sequence = sequence


class ProducerStopped(ClientError):
    """Nothing more is published to this topic. A producer with a higher epoch can."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"nothing more is published to {topic}: {reason}")
        self.topic = topic
        self.reason = reason


class ProducerFull(ClientError):
    def __init__(self, pending_count: int, pending_bytes: int) -> None:
        super().__init__(f"{pending_count} publishes with {pending_bytes} bytes are unanswered")
        self.pending_count = pending_count
        self.pending_bytes = pending_bytes


class ClientClosed(ClientError):
    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} is closed")
        self.what = what


class MessageSettled(ClientError):
    def __init__(self, message_id: str) -> None:
        super().__init__(f"message {message_id} was settled before")
        self.message_id = message_id


class BundleBroken(PenstockError):
    """A file is no diagnostic bundle, or not the one that was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


class IdNotMade(PenstockError):
    """A guid factory can't make a new id at this moment: try again a moment later."""


class TimeBackwards(IdNotMade):
    def __init__(self, tick: int, last_tick: int) -> None:
        super().__init__(f"time went backwards: tick {tick} comes after tick {last_tick}")
        self.tick = tick
        self.last_tick = last_tick


class SequenceExpired(IdNotMade):
    def __init__(self, tick: int, count: int) -> None:
        super().__init__(f"the sequence has expired: all {count} ids of tick {tick} are made")
        self.tick = tick


class IdBackwards(IdNotMade):
    def __init__(self, id: int, last_id: int) -> None:
        super().__init__(f"the id went backwards: {id:016x} is not above {last_id:016x}")
        self.id = id
        self.last_id = last_id


class IdPoolEmpty(PenstockError):
    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"no id within {timeout_s} s: they are taken faster than they can be made")
        self.timeout_s = timeout_s


class IdPoolClosed(PenstockError):
    """The pool of ids is not running."""
