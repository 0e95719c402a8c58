"""What the broker asks of the world besides the time: threads that wait for the disk, links to
other nodes, and the metadata of a cluster.

The broker itself never sleeps and never starts a thread. `net/sync.py` has the real ones, tests
have those of `sim/threads.py`.

Jobs that are out at the sync threads, and who waits for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock import limits
from penstock.log.sync import Flush, Syncable

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.broker.channels.skips import Skipped
    from penstock.broker.topics.topic_file import TopicFile
    from penstock.errors import PenstockError
    from penstock.replication.frames import Target


class Job(Protocol):
    """One flush to the disk. It touches nothing but its file, so any thread may run it."""

    def run(self) -> None: ...


class Syncer(Protocol):
    """Runs jobs side by side. Jobs of one partition come one at a time."""

    def submit(self, job: Job, awaited: bool = False) -> None:
        """`awaited`: publishers wait for this one. It may be run at once, in the caller's thread,
        where that is the quicker way."""
        ...

    @property
    def done(self) -> Sized:
        """The jobs that `take_done` would give out."""
        ...

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        """The jobs that ended since the last call, each with its error."""
        ...

    def wait(self) -> None:
        """Block until a submitted job has ended that `take_done` has not given out yet. Returns at
        once when there is none out. Used at the stop and before a topic is deleted."""
        ...


class PeerLane(IntEnum):
    """Of a pair of nodes. What fills one up does not hold up the other."""

    LIVE = 1  # appends in flight, acknowledgements, committed ends
    BULK = 2  # what a replica is fed that has much to catch up with


MetadataDone = Callable[["PenstockError | None"], None]


class NewTopic(NamedTuple):
    """What a topic is to be, or is. `replicas`: of each partition; 0: as many as topic `like` has,
    or as the cluster gives to topics. `missing`: partitions that are still to be made of those that
    it was asked to have."""

    partitions: int
    extended: bool = False
    registered: bool = False  # consumers may make no channels
    like: str = ""
    replicas: int = 0
    missing: int = 0


class Led(NamedTuple):
    """A partition, and the node that leads it by what is known here."""

    node: int
    target: Target


class ClusterMetadata(Protocol):
    """Changes what a cluster knows of topics and their kept channels. `done` is called once, at
    once or later, between two turns: when this node has seen the change."""

    def make_topic(self, topic: str, wanted: NewTopic, done: MetadataDone) -> None:
        """If it is not there: `wanted` is for a new one."""
        ...

    def grow_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        """`partitions` is how many it has then. With GrowthRefused where that breaks a rule."""
        ...

    def delete_topic(self, topic: str, done: MetadataDone) -> None: ...

    def shape(self, topic: str) -> NewTopic | None:
        """What is known here of a topic that is there, wherever its partitions are."""
        ...

    def file(self, topic: str) -> TopicFile | None:
        """What is known here of one that is there, as a node that has a part of it writes it."""
        ...

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        """Its partitions that have a leader, anywhere."""
        ...

    def make_channel(self, topic: str, channel: str, done: MetadataDone) -> None:
        """It is here then, and all partitions have confirmed where it starts. With
        ChannelUnconfirmed it is here, too."""
        ...

    def delete_channel(self, topic: str, channel: str, done: MetadataDone) -> None: ...

    def change_channel(
        self, topic: str, channel: str, changes: Mapping[str, Any], done: MetadataDone
    ) -> None:
        """By the names of `changes` and of the settings; None: no setting of its own."""
        ...

    def skip(
        self, topic: str, channel: str, act: Callable[[Skipped], Skipped], done: MetadataDone
    ) -> None:
        """`act`: from what is skipped to what is to be."""
        ...

    def change_topic(self, topic: str, changes: Mapping[str, Any], done: MetadataDone) -> None: ...


class Peers(Protocol):
    def send(self, node: int, lane: PeerLane, frames: Sequence[Sequence[Buffer]]) -> None:
        """To that node, each frame in its parts, in this order, after what went to it before on
        this lane. Frames of other partitions may go between them. Where there is no link they are
        dropped: whoever is at its other end begins a new session."""
        ...


class Syncs:
    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._waiting: dict[int, Callable[[OSError | None], None]] = {}
        self._postponed: dict[Callable[[], None], None] = {}

    def submit(
        self, job: Job, ended: Callable[[OSError | None], None], awaited: bool = False
    ) -> None:
        self._waiting[id(job)] = ended  # the syncer holds the job, so its id stays its own
        self._syncer.submit(job, awaited)

    def sync(
        self, what: Syncable[Flush], ended: Callable[[OSError | None], None], awaited: bool = False
    ) -> bool:
        """All that was written to it by now. `ended` hears of the end when `what` has. False: there
        is nothing to sync, or a sync of it is out. Raises what its `sync_begin` does."""
        job = what.sync_begin()
        if job is None:
            return False
        self._waiting[id(job)] = partial(_synced, what, job, ended)  # `submit`, for every append
        self._syncer.submit(job, awaited)
        return True

    @property
    def has_ended(self) -> bool:
        """`settle` has somebody to notify."""
        return bool(self._syncer.done)

    def when_free(self, begin: Callable[[], None]) -> None:
        """Call `begin`, which may submit a job, now or when fewer are out. Each keeps its file
        open: were all files of a large node out at once, there would be no descriptor for
        another."""
        if len(self._waiting) < limits.SYNCS_UNAWAITED_MAX:
            begin()
        else:
            self._postponed[begin] = None

    def forget(self, begin: Callable[[], None]) -> None:
        """It is not to be called any more."""
        self._postponed.pop(begin, None)

    def settle(self) -> None:
        """Notify those whose jobs have ended. Called every turn, so cheap when there is nothing."""
        for job, error in self._syncer.take_done():
            self._waiting.pop(id(job))(error)
        while self._postponed and len(self._waiting) < limits.SYNCS_UNAWAITED_MAX:
            begin = next(iter(self._postponed))
            del self._postponed[begin]
            begin()

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Block until `busy` says no; only for the stop and for a deletion."""
        while busy():
            self._syncer.wait()
            self.settle()


def _synced(
    what: Syncable[Flush],
    job: Flush,
    ended: Callable[[OSError | None], None],
    error: OSError | None,
) -> None:
    what.sync_end(job, error)
    ended(error)
