"""The effects that a partition's state machines request; a shell carries them out in order."""

from typing import Any, NamedTuple

from penstock.log.epochs import BatchName, Extent
from penstock.replication.authority import Permits
from penstock.replication.record import PartitionRecord

# --- of a leader ---


class Hello(NamedTuple):
    """To the replica on a node: the leader of this epoch greets. It answers with its extent."""

    node: int
    session: int
    epoch: int


class MatchAt(NamedTuple):
    """To a follower: our logs agree up to `end`; this is the batch before it."""

    node: int
    session: int
    end: int
    chain: BatchName


class BeginAt(NamedTuple):
    """To a follower: our logs have nothing in common. Begin with an empty one, at `start`."""

    node: int
    session: int
    start: int


class Feed(NamedTuple):
    """Send the next batches from `start`, as many as are good to send at once, then call `fed`."""

    node: int
    session: int
    start: int
    committed: int


class CommitTo(NamedTuple):
    """Everything below `end` is committed: answer its publishers, and report it to followers."""

    end: int


class Propose(NamedTuple):
    """Replace the record of `revision` by `record`. The revision is compared (-1: not compared),
    and so are the generations of the nodes in `generations`. Answered by `outcome`."""

    number: int
    record: PartitionRecord
    revision: int
    generations: tuple[tuple[int, int], ...] = ()


class ReadRecord(NamedTuple):
    """Read the record; answered by `read`."""


class Authority(NamedTuple):
    """The permits of this leader have changed."""

    permits: Permits


class Leave(NamedTuple):
    """The leadership is over. What is in flight has an unknown outcome."""

    reason: str


# --- of a follower ---


class SaveEpoch(NamedTuple):
    epoch: int


class ReportExtent(NamedTuple):
    """To the leader: the extent of this replica's log."""

    session: int
    epoch: int
    replica: int
    generation: int
    extent: Extent
    committed: int


class Truncate(NamedTuple):
    end: int


class Begin(NamedTuple):
    """Set everything aside and start an empty log at this offset."""

    start: int


class Matched(NamedTuple):
    session: int
    end: int


class Append(NamedTuple):
    """Append the batches that the log lacks, then call `appended`."""

    start: int
    batches: Any  # as the shell handed them in
    committed: int


class Sync(NamedTuple):
    pass


class Acknowledge(NamedTuple):
    session: int
    epoch: int
    replica: int
    written: int
    synced: int


class Refuse(NamedTuple):
    """`epoch` is the one that this replica has promised: a higher one than the sender's ends its
    leadership; an equal one asks to match the replica again."""

    session: int
    epoch: int


class Stop(NamedTuple):
    """The replica is in doubt: it answers questions, and nothing else."""

    reason: str
