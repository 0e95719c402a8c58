"""The metadata as one node knows it: of one revision, and never going back.

A list and the watch that follows it are fed in (`page`, `changes`) and taken in by slices
(`apply`): a list of 30,000 records would hold up publishers for half a second. `revision` moves
when everything of it has been taken in, so that a view never shows half of a transaction.

**It refuses to go back.** A coordinator that was restored from a backup, emptied, or taken for
another one gives out records that are older than what the nodes have acted upon: a member that was
left out is in the set again, and electable. So a node remembers the cluster's uuid, the highest
revision, and each record on whose basis it has acted; the view compares.

| what comes | then |
|---|---|
| another uuid, or no `cluster` where there was one | everything is frozen |
| a revision below the highest one | everything is frozen |
| a record of a lower epoch or revision | that partition is frozen, and the record is not taken |
| a record with another leader in the same epoch | the same |
| a document that breaks its rules | it is not taken; a partition is frozen |
| a key is gone without a tombstone | nothing is forgotten; a partition is frozen |
| `cluster` counts one more restoration | revisions begin again; records are compared by epochs |

What is frozen is served on as it was, and its record is not changed, until an operator has rebuilt
the records from what the nodes remember (`restore-metadata`): that is the last row.

Keys that live by a lease, and those of moves, go when they go.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.cluster import keys
from penstock.cluster.coordinator import Changes, KeyPage, KeyValue, Reading
from penstock.cluster.documents import (
    CLUSTER,
    FORMS,
    RECORD,
    REMOVED,
    Channel,
    ChannelNumbers,
    Cluster,
    Controller,
    EpochFloor,
    Lookup,
    Membership,
    NodeDocument,
    Rehash,
    Topic,
    decode,
)
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.moves import PartitionMove
from penstock.errors import DocumentBroken, Refused
from penstock.replication.record import PartitionRecord

_T = TypeVar("_T")
_Name = TypeVar("_Name", bound=PartitionName | ChannelName)
_MAY_GO = Controller | NodeDocument | Lookup | ChannelNumbers | Rehash | PartitionMove
_NO_REPLICA = 3  # a rank of a node, behind leaders and followers


class Versioned(NamedTuple, Generic[_T]):
    document: _T
    revision: int
    created: int


class ByTopic(dict[_Name, Versioned[_T]]):
    """Documents by name, and those of one topic without a look at all others."""

    def __init__(self, rows: Mapping[_Name, Versioned[_T]]) -> None:
        super().__init__()
        self._of: dict[str, dict[_Name, Versioned[_T]]] = {}
        for name, held in rows.items():
            self[name] = held

    def __setitem__(self, name: _Name, held: Versioned[_T]) -> None:
        super().__setitem__(name, held)
        self._of.setdefault(name.topic, {})[name] = held

    def __delitem__(self, name: _Name) -> None:
        super().__delitem__(name)
        del self._of[name.topic][name]
        if not self._of[name.topic]:
            del self._of[name.topic]

    def of(self, topic: str) -> list[tuple[_Name, Versioned[_T]]]:
        """In the order of their names."""
        return sorted(self._of.get(topic, {}).items())


class Remembered(NamedTuple):
    """The durable memory of a node about the metadata."""

    uuid: int = 0  # of the cluster; 0: it has never met one
    revision: int = 0
    restorations: int = 0


class ViewChange(NamedTuple):
    """A change that `apply` took in. None: the document did not exist, or is gone."""

    key: str
    before: Versioned[Any] | None
    after: Versioned[Any] | None


class _End(NamedTuple):
    revision: int
    listed: frozenset[str] | None  # the keys, where a list ends


def versioned(form: Form[_T], entry: KeyValue) -> Versioned[_T]:
    """Raises DocumentBroken."""
    return Versioned(form.decode(entry.key, entry.value), entry.revision, entry.created)


def revision_of(held: Versioned[Any] | None) -> int:
    """The revision that a transaction compares. 0: the key does not exist."""
    return held.revision if held is not None else 0


def encode_remembered(name: PartitionName, held: Versioned[PartitionRecord]) -> bytes:
    """One record, in the form of the ledger, for the next start."""
    kept = {"name": keys.partition(*name), "revision": held.revision, "created": held.created}
    return json.dumps({**kept, "record": json.loads(RECORD.encode(held.document))}).encode()


def decode_remembered(entries: Iterable[bytes]) -> dict[PartitionName, Versioned[PartitionRecord]]:
    """Raises DocumentBroken."""
    found: dict[PartitionName, Versioned[PartitionRecord]] = {}
    for data in entries:
        kept = json.loads(data)
        record = RECORD.decode(kept["name"], json.dumps(kept["record"]).encode())
        held = Versioned(record, kept["revision"], kept["created"])
        name = keys.partition_of(kept["name"])
        if name not in found or found[name].revision < held.revision:
            found[name] = held
    return found


class View:
    def __init__(
        self,
        remembered: Remembered = Remembered(),  # noqa: B008
        records: Mapping[PartitionName, Versioned[PartitionRecord]] | None = None,
    ) -> None:
        self.uuid = remembered.uuid
        self.revision = 0  # everything up to here was taken in
        self.revision_seen = remembered.revision
        self.restorations = remembered.restorations
        self.frozen = ""  # why nothing is changed
        self.frozen_partitions: dict[PartitionName, str] = {}
        self.broken: dict[str, str] = {}  # documents that were not taken, and why
        self.channels: ByTopic[ChannelName, Channel] = ByTopic({})
        self.partitions: ByTopic[PartitionName, PartitionRecord] = ByTopic(records or {})
        tables: dict[str, dict[Any, Versioned[Any]]] = {prefix: {} for prefix in FORMS}
        self._tables = {**tables, keys.CHANNELS: self.channels, keys.PARTITIONS: self.partitions}
        self._controllers: dict[str, Versioned[Controller]] = tables[keys.CONTROLLER]  # at most one
        self.nodes: dict[int, Versioned[NodeDocument]] = tables[keys.NODES]
        self.memberships: dict[int, Versioned[Membership]] = tables[keys.MEMBERS]
        self.lookups: dict[str, Versioned[Lookup]] = tables[keys.LOOKUPS]
        self.topics: dict[str, Versioned[Topic]] = tables[keys.TOPICS]
        self.numbers: dict[str, Versioned[ChannelNumbers]] = tables[keys.NUMBERS]
        self.epochs: dict[str, Versioned[EpochFloor]] = tables[keys.EPOCHS]
        self.rehashes: dict[str, Versioned[Rehash]] = tables[keys.REHASHES]
        self.moves: dict[PartitionName, Versioned[PartitionMove]] = tables[keys.MOVES]
        self._pending: deque[KeyValue | tuple[str, int] | _End] = deque()
        self.is_listed = False  # all of the metadata has been read once
        self._listed: set[str] = set()
        self._keys: set[str] = {keys.partition(*name) for name in self.partitions}

    @property
    def remembered(self) -> Remembered:
        """To be made durable before any act that relies on this view."""
        return Remembered(self.uuid, self.revision_seen, self.restorations)

    @property
    def controller(self) -> Versioned[Controller] | None:
        return self._controllers.get(keys.CONTROLLER)

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    def topic(self, name: str) -> Versioned[Topic] | None:
        """One that exists: no tombstone."""
        held = self.topics.get(name)
        return held if held is not None and not held.document.deleted else None

    def channel(self, name: ChannelName) -> Versioned[Channel] | None:
        """One that exists, of the topic that exists: a topic may be created again before all
        channels of the deleted one are tombstones."""
        topic, held = self.topic(name.topic), self.channels.get(name)
        if topic is None or held is None or held.document.deleted:
            return None
        return held if held.document.identity == topic.document.identity else None

    def channels_of(self, topic: str) -> list[tuple[ChannelName, Versioned[Channel]]]:
        return [(name, held) for name, held in self.channels.of(topic) if self.channel(name)]

    def records_of(self, topic: str) -> list[tuple[PartitionName, Versioned[PartitionRecord]]]:
        """Of the topic that exists: no leftovers of an earlier one of the name."""
        held = self.topic(topic)
        identity = held.document.identity if held is not None else None
        records = self.partitions.of(topic)
        return [(name, one) for name, one in records if one.document.identity == identity]

    def nodes_for(self, topic: str, any_node: bool = False) -> list[int]:
        """Live nodes with a replica of the topic: its leaders first, and nodes without a replica
        last, if those will do."""
        ranks: dict[int, int] = {}
        for _, held in self.partitions.of(topic):
            leader = held.document.leader
            for member in held.document.members:
                rank = 1 if leader is not None and leader.node == member.node else 2
                ranks[member.node] = min(rank, ranks.get(member.node, rank))
        live = [
            (ranks.get(number, _NO_REPLICA), number)
            for number in self.nodes
            if any_node or number in ranks
        ]
        return [number for _, number in sorted(live)]

    def check_intact(self, key: str) -> None:
        """Raises Refused: the document broke its rules, so nothing may be derived from it."""
        if key in self.broken:
            raise Refused(self.broken[key])

    def refusal(self, name: PartitionName) -> str:
        """Why the record of this partition must not change; empty: it may."""
        return self.frozen or self.frozen_partitions.get(name, "")

    # --- input ---

    def meet(self, reading: Reading) -> bool:
        """Takes the coordinator's `cluster` key and revision, before a list or a watch. True: this
        is the cluster that the node knows, and not an older state of it."""
        if reading.entry is None:
            if self.uuid:
                self._freeze("the coordinator knows no cluster")
            return False
        try:
            cluster = CLUSTER.decode(keys.CLUSTER, reading.entry.value)
        except DocumentBroken as error:
            self._freeze(str(error))
            return False
        if self.uuid not in (0, cluster.uuid):
            self._freeze(f"the coordinator is that of another cluster, {cluster.uuid:032x}")
            return False
        if cluster.restorations < self.restorations:
            self._freeze(
                f"the metadata was restored {cluster.restorations} times, and "
                f"{self.restorations} are remembered"
            )
            return False
        self.uuid = cluster.uuid
        if cluster.restorations > self.restorations:
            self._begin_again(cluster.restorations)
        return self._saw(reading.revision)

    def _saw(self, revision: int) -> bool:
        if revision < self.revision_seen:
            self._freeze(
                f"the coordinator's revision is {revision}, and has been {self.revision_seen}"
            )
            return False
        self.revision_seen = revision
        self.frozen = ""
        return True

    def _freeze(self, reason: str) -> None:
        """Input that was not applied yet may come from the same restored state."""
        self.frozen = reason
        self._pending.clear()
        self._listed.clear()

    def _begin_again(self, restorations: int) -> None:
        self.restorations = restorations
        self.revision = self.revision_seen = 0
        for rows in self._tables.values():
            for name, held in rows.items():
                rows[name] = held._replace(revision=0)

    def begin_list(self) -> None:
        """Pages follow: earlier input is dropped."""
        self._pending.clear()
        self._listed.clear()

    def page(self, page: KeyPage) -> None:
        self._pending.extend(page.entries)
        self._listed.update(entry.key for entry in page.entries)
        if page.is_last:
            self._pending.append(_End(page.revision, frozenset(self._listed)))
            self._listed.clear()

    def changes(self, changes: Changes) -> None:
        for event in changes.events:
            self._pending.append(event.entry or (event.key, event.revision))
        self._pending.append(_End(changes.revision, None))

    def apply(self, count: int) -> list[ViewChange]:
        """Apply the input, at most this many entries."""
        taken: list[ViewChange] = []
        for _ in range(min(count, len(self._pending))):
            step = self._pending.popleft()
            if isinstance(step, KeyValue):
                self._put(step, taken)
            elif isinstance(step, _End):
                self._end(step, taken)
            else:
                self._gone(step[0], taken)
            if self.frozen:
                break
        return taken

    def _end(self, end: _End, taken: list[ViewChange]) -> None:
        if end.listed is not None:
            self.is_listed = True
            for key in sorted(self._keys - end.listed):
                self._gone(key, taken)
        self.revision = max(self.revision, end.revision)
        self.revision_seen = max(self.revision_seen, end.revision)

    # --- one document ---

    def _put(self, entry: KeyValue, taken: list[ViewChange]) -> None:
        self._keys.add(entry.key)
        try:
            document = decode(entry.key, entry.value)
            row = self._table_row(entry.key)
        except (DocumentBroken, ValueError) as error:
            self._refuse(entry.key, str(error))
            return
        if isinstance(document, Cluster):
            if (document.uuid, document.restorations) != (self.uuid, self.restorations):
                self._freeze("the metadata was restored, or is another cluster's: list it again")
            return
        if row is None:
            return  # of a newer release
        rows, name = row
        before = rows.get(name)
        held: Versioned[Any] = Versioned(document, entry.revision, entry.created)
        if isinstance(document, PartitionRecord):
            reason = self.judge(name, held)
            if reason:
                self.frozen_partitions[name] = reason
                return
            self.frozen_partitions.pop(name, None)
        elif before is not None and entry.revision < before.revision:
            return
        self.broken.pop(entry.key, None)
        rows[name] = held
        if held != before:
            taken.append(ViewChange(entry.key, before, held))

    def judge(self, name: PartitionName, held: Versioned[PartitionRecord]) -> str:
        """Why this record must not be believed; empty: it is not older than the known one."""
        known = self.partitions.get(name)
        if known is None:
            return ""
        old, new = known.document, held.document
        if new.epoch < old.epoch:
            return f"its record is of epoch {new.epoch}, and epoch {old.epoch} is remembered"
        if held.revision < known.revision:
            return f"its record is of revision {held.revision}, and {known.revision} is remembered"
        if held.revision == known.revision and new != old:
            return f"its record of revision {held.revision} is another one than is remembered"
        if new.epoch == old.epoch and new.leader not in (old.leader, None) and old.leader:
            return f"epoch {new.epoch} has another leader than is remembered"
        return ""

    def suspect(self, name: PartitionName, held: Versioned[PartitionRecord]) -> bool:
        """A record that was read outside of the watch. True: it is older, and freezes the
        partition."""
        reason = self.judge(name, held)
        if reason:
            self.frozen_partitions[name] = reason
        return bool(reason)

    def _refuse(self, key: str, reason: str) -> None:
        self.broken[key] = reason
        if key.startswith(keys.PARTITIONS):
            try:
                self.frozen_partitions[keys.partition_of(key)] = reason
            except ValueError:
                return  # no partition has such a key

    def _gone(self, key: str, taken: list[ViewChange]) -> None:
        try:
            row = self._table_row(key)
        except ValueError:
            row = None
        if row is None:
            self.broken.pop(key, None)
            self._keys.discard(key)
            if key == keys.CLUSTER:
                self._freeze("the coordinator knows no cluster")
            return
        rows, name = row
        before = rows.get(name)
        if before is None or not self._may_go(key, before.document):
            if key.startswith(keys.PARTITIONS) and before is not None:
                self.frozen_partitions[name] = "its record is gone, and its topic was not deleted"
            return
        del rows[name]
        self._keys.discard(key)
        self.broken.pop(key, None)
        self.frozen_partitions.pop(name, None)
        taken.append(ViewChange(key, before, None))

    def _may_go(self, key: str, document: Any) -> bool:
        if isinstance(document, Topic | Channel):
            return document.deleted
        if isinstance(document, PartitionRecord):
            topic = self.topics.get(keys.partition_of(key).topic)
            return topic is not None and (
                topic.document.deleted or topic.document.identity != document.identity
            )
        if isinstance(document, Membership):
            return document.state == REMOVED
        return isinstance(document, _MAY_GO)

    def _table_row(self, key: str) -> tuple[dict[Any, Versioned[Any]], Any] | None:
        """The table of a key, and the name in it. Raises ValueError."""
        for prefix, rows in self._tables.items():
            if key.startswith(prefix):
                _, name_of = FORMS[prefix]
                return rows, name_of(key)
        return None
