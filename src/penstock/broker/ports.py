"""The broker's outside besides the time: threads that wait for the disk, links to other nodes, and
the metadata of a cluster.

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
    from penstock.broker.replicas.clustered_topic import ClusterChannel
    from penstock.broker.topics.topic_file import TopicFile
    from penstock.errors import PenstockError
    from penstock.replication.frames import Target


class Job(Protocol):
    """One flush to disk. It uses only its own file, so any thread may run it."""

    def run(self) -> None: ...


class Syncer(Protocol):
    """Runs jobs side by side. Jobs of one partition come one at a time."""

    def submit(self, job: Job, awaited: bool = False) -> None:
        """`awaited`: publishers wait for this one. It may run at once, in the caller's thread, if
        that is quicker."""
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
    """A connection of a pair of nodes. Congestion of one does not delay the other."""

    LIVE = 1  # appends in flight, acknowledgements, committed ends
    BULK = 2  # what a replica is fed that has much to catch up with


MetadataDone = Callable[["PenstockError | None"], None]


class NewTopic(NamedTuple):
    """The shape of a topic. `replicas`: of each partition; 0: as many as topic `like` has, or the
    cluster's default. `missing`: partitions that are still to be created."""

    partitions: int
    extended: bool = False
    registered: bool = False  # consumers may make no channels
    like: str = ""
    replicas: int = 0
    missing: int = 0


class Led(NamedTuple):
    """A partition, and its leader as far as this node knows."""

    node: int
    target: Target


class ClusterMetadata(Protocol):
    """Changes the metadata of topics and their durable channels in a cluster. `done` is called
    once, at once or later, between two turns: when this node has seen the change."""

    def make_topic(self, topic: str, wanted: NewTopic, done: MetadataDone) -> None:
        """If it is not there: `wanted` is for a new one."""
        ...

    def grow_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        """`partitions` is the new number. With GrowthRefused where that breaks a rule."""
        ...

    def rehash_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        """The same, and its keys are spread over all of them. With GrowthRefused while anything is
        left to deliver."""
        ...

    def is_rehashing(self, topic: str) -> bool: ...

    def delete_topic(self, topic: str, done: MetadataDone) -> None: ...

    def shape(self, topic: str) -> NewTopic | None:
        """The known shape of an existing topic, wherever its partitions are."""
        ...

    def file(self, topic: str) -> TopicFile | None:
        """The topic file of an existing topic, as a node with a replica writes it."""
        ...

    def channels(self, topic: str) -> Sequence[ClusterChannel]:
        """The durable channels of an existing topic."""
        ...

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        """The partitions that have a leader, on any node."""
        ...

    def lack(self, topic: str, partition: int) -> str:
        """Why no leader of it can commit: too few of its nodes live. Empty: one may."""
        ...

    def make_channel(self, topic: str, channel: str, done: MetadataDone) -> None:
        """On success the channel exists here, and all partitions have confirmed its start. With
        ChannelUnconfirmed it exists here, too."""
        ...

    def delete_channel(self, topic: str, channel: str, done: MetadataDone) -> None: ...

    def change_channel(
        self, topic: str, channel: str, changes: Mapping[str, Any], done: MetadataDone
    ) -> None:
        """Changes by the names of the settings; None removes a setting."""
        ...

    def skip(
        self, topic: str, channel: str, act: Callable[[Skipped], Skipped], done: MetadataDone
    ) -> None:
        """`act` maps the present skips to the wanted ones."""
        ...

    def change_topic(self, topic: str, changes: Mapping[str, Any], done: MetadataDone) -> None: ...


class Peers(Protocol):
    def send(self, node: int, lane: PeerLane, frames: Sequence[Sequence[Buffer]]) -> None:
        """Send to that node, each frame in its parts, in this order, after earlier frames of this
        lane. Frames of other partitions may go between them. Without a link they are dropped: the
        receiver begins a new session."""
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
        """Sync everything written so far. `ended` is called once `what` is done. False: nothing to
        sync, or a sync is running. Raises as its `sync_begin` does."""
        job = what.sync_begin()
        if job is None:
            return False
        self._waiting[id(job)] = partial(_synced, what, job, ended)  # `submit`, for every append
        self._syncer.submit(job, awaited)
        return True

    @property
    def has_ended(self) -> bool:
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
        self._postponed.pop(begin, None)

    def settle(self) -> None:
        """Notify the callers of finished jobs. Called every turn, so cheap when there are none."""
        for job, error in self._syncer.take_done():
            self._waiting.pop(id(job))(error)
        while self._postponed and len(self._waiting) < limits.SYNCS_UNAWAITED_MAX:
            begin = next(iter(self._postponed))
            del self._postponed[begin]
            begin()

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Block until `busy` returns False; only for a stop and for a deletion."""
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
