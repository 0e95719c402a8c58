"""Topics are created, grown and deleted: the transactions, without I/O.

| | compares | changes |
|---|---|---|
| `creation` | no topic, or its tombstone; the members' entries | topic, epoch floor, partitions |
| `growth` | the topic as it was read; the members' entries | epoch floor, further partitions |
| `deletion` | the topic as it was read | a tombstone, the epoch floor |
| `clearance` | the tombstone, and what goes | some of its partitions and channels |
| `confirmation` | the same | this node has moved aside what it had |

A first record has epoch *floor + 1* and no leader: its members elect one. Each member is named with
the generation that its node has, and its entry is compared, so that a node that was started again
meanwhile is not taken for the one that was meant (S6). The floor outlives the topic: epochs of a
name never begin again (S5). It is written with new partitions, also where it stays what it is, and
keeps the revisions at which it was: a record that was put back from a backup has none of them
(`reconciler`).

A transaction changes TRANSACTION_KEYS_MAX keys at most, so a topic with very many partitions is
made with some of them, and grows. Its `hash_partitions` are those that it was asked to have.
"""

from collections.abc import Callable, Iterable

from penstock.cluster import keys
from penstock.cluster.coordinator import Compare, Delete, Operation, Put, RevisionIs, Transaction
from penstock.cluster.documents import (
    CHANNEL,
    EPOCH_FLOOR,
    RECORD,
    REMOVED,
    TOPIC,
    EpochFloor,
    Topic,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.placement import PlacementNode, choose_nodes
from penstock.cluster.view import View, revision_of
from penstock.errors import NotFound, Refused
from penstock.limits import TRANSACTION_COMPARES_MAX, TRANSACTION_KEYS_MAX
from penstock.replication.record import Member, PartitionRecord

_BESIDES = 2  # keys of a creation that are no partition: the topic, its epoch floor


NewReplica = Callable[[], int]


def creation(
    view: View, name: str, topic: Topic, nodes: Iterable[PlacementNode], new_replica: NewReplica
) -> Transaction:
    """Creates as many partitions as fit into one transaction. `topic`: its identity is random, and
    was never used before. Raises Refused."""
    if view.topic(name) is not None:
        raise Refused(f"topic {name} exists")
    if waited_for := unconfirmed(view, name):
        raise Refused(_being_deleted(view, name, waited_for))
    names = [PartitionName(name, number) for number in range(topic.hash_partitions)]
    put = Put(keys.topic(name), TOPIC.encode(topic))
    floor = EpochFloor(_floor(view, name).epoch)
    return _with_partitions(view, topic, names, floor, nodes, new_replica, put)


def growth(
    view: View, name: str, partitions: int, nodes: Iterable[PlacementNode], new_replica: NewReplica
) -> Transaction | None:
    """Adds the next missing partitions; None: there are enough. Raises NotFound and Refused."""
    held = view.topic(name)
    if held is None:
        raise NotFound("topic", name)
    names = [PartitionName(name, number) for number in range(partitions)]
    missing = [one for one in names if one not in view.partitions]
    if not missing:
        return None
    floor, before = _floor(view, name), view.epochs.get(name)
    if before is not None:
        floor = EpochFloor(floor.epoch, (*floor.added_at, before.revision))
    return _with_partitions(view, held.document, missing, floor, nodes, new_replica)


def _with_partitions(
    view: View,
    topic: Topic,
    names: list[PartitionName],
    floor: EpochFloor,
    nodes: Iterable[PlacementNode],
    new_replica: NewReplica,
    *puts: Put,
) -> Transaction:
    """New partitions of a topic beside all that exist, as many as fit."""
    name, names = names[0].topic, names[: TRANSACTION_KEYS_MAX - _BESIDES]
    able = [node for node in nodes if node.number in view.memberships]
    there = [held.document.wanted for held in view.partitions.values()]
    placed = choose_nodes(able, there, len(names), topic.replicas)
    if not placed[0]:
        raise Refused("no node takes a new partition")
    members = view.memberships
    compares: list[Compare] = [
        RevisionIs(keys.topic(name), revision_of(view.topics.get(name))),
        RevisionIs(keys.epochs(name), revision_of(view.epochs.get(name))),
    ]
    operations = [*puts, Put(keys.epochs(name), EPOCH_FLOOR.encode(floor))]
    for one, chosen in zip(names, placed, strict=True):
        in_sync = tuple(
            Member(node, new_replica(), members[node].document.generation) for node in chosen
        )
        least = min((topic.replicas + 1) // 2, len(in_sync))
        record = PartitionRecord(topic.identity, floor.epoch + 1, None, in_sync, least, chosen)
        operations.append(Put(keys.partition(*one), RECORD.encode(record)))
        compares.append(RevisionIs(keys.partition(*one), 0))
    involved = sorted({node for chosen in placed for node in chosen})
    compares += [RevisionIs(keys.member(node), members[node].revision) for node in involved]
    if len(compares) > TRANSACTION_COMPARES_MAX:
        raise Refused(f"{len(involved)} nodes for one topic: too many for one transaction")
    return Transaction(tuple(compares), tuple(operations))


# --- deletion ---


def deletion(view: View, name: str) -> Transaction:
    """Raises Refused."""
    held = view.topic(name)
    if held is None:
        raise Refused(f"there is no topic {name}")
    tombstone = held.document._replace(deleted=True, confirmed=())
    epochs = [one.document.epoch for _, one in view.partitions.of(name)]
    floor = EpochFloor(max([_floor(view, name).epoch, *epochs]))
    topic_key, floor_key = keys.topic(name), keys.epochs(name)
    return Transaction(
        (
            RevisionIs(topic_key, held.revision),
            RevisionIs(floor_key, revision_of(view.epochs.get(name))),
        ),
        (Put(topic_key, TOPIC.encode(tombstone)), Put(floor_key, EPOCH_FLOOR.encode(floor))),
    )


def clearance(view: View, name: str) -> Transaction | None:
    """Removes some of the leftovers of a deleted topic; None: there are none. A record may have
    changed since the tombstone: the floor is raised to its epoch before it is removed."""
    held = view.topics.get(name)
    if held is None or not held.document.deleted:
        return None
    gone = _left(view, name)[: TRANSACTION_KEYS_MAX - _BESIDES]
    if not gone:
        return None
    compares: list[Compare] = [RevisionIs(keys.topic(name), held.revision)]
    compares += [RevisionIs(operation.key, revision) for operation, revision in gone]
    operations = [operation for operation, _ in gone]
    floor = _floor(view, name).epoch
    epochs = [one.document.epoch for _, one in view.partitions.of(name)]
    if max(epochs, default=0) > floor:
        compares.append(RevisionIs(keys.epochs(name), revision_of(view.epochs.get(name))))
        raised = EPOCH_FLOOR.encode(EpochFloor(max(epochs)))
        operations.append(Put(keys.epochs(name), raised))
    return Transaction(tuple(compares), tuple(operations))


def _left(view: View, name: str) -> list[tuple[Operation, int]]:
    """Partitions are removed; channels become tombstones, since their numbers are never used again.
    Returns them with their revisions."""
    found: list[tuple[Operation, int]] = [
        (Delete(keys.partition(*key)), held.revision) for key, held in view.partitions.of(name)
    ]
    for key, channel in view.channels.of(name):
        if not channel.document.deleted:
            tombstone = CHANNEL.encode(channel.document._replace(deleted=True))
            found.append((Put(keys.channel(*key), tombstone), channel.revision))
    return found


def confirmation(view: View, name: str, node: int) -> Transaction | None:
    """None: the node has confirmed already, or nothing was deleted."""
    held = view.topics.get(name)
    if held is None or not held.document.deleted or node in held.document.confirmed:
        return None
    confirmed = held.document._replace(confirmed=tuple(sorted({*held.document.confirmed, node})))
    key = keys.topic(name)
    return Transaction((RevisionIs(key, held.revision),), (Put(key, TOPIC.encode(confirmed)),))


def unconfirmed(view: View, name: str) -> list[int]:
    """Nodes that may still hold data of a deleted topic. All of them, while the metadata still has
    some of it: a leftover channel would block the channels of the next topic."""
    held = view.topics.get(name)
    if held is None or not held.document.deleted:
        return []
    confirmed = set(held.document.confirmed)
    members = view.memberships.items()
    left = [node for node, one in members if one.document.state != REMOVED]
    remains = bool(_left(view, name))
    return [node for node in sorted(left) if node not in confirmed or remains]


def _being_deleted(view: View, name: str, waited_for: list[int]) -> str:
    down = [str(node) for node in waited_for if node not in view.nodes]
    if not down:
        return f"topic {name} is being deleted"
    who = f"node {down[0]} is" if len(down) == 1 else f"nodes {', '.join(down)} are"
    return f"topic {name} is being deleted, and {who} down: start or remove what is down"


def _floor(view: View, name: str) -> EpochFloor:
    held = view.epochs.get(name)
    return held.document if held is not None else EpochFloor(0)
