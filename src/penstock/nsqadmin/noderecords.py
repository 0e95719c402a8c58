"""The nodes seen so far, each with the contents of its last answer, until an operator forgets them.

An nsqlookupd drops a node that dies, and what it held would be on no list: its messages are on its
disk, and it brings them and its topics back when it starts again. So nothing that was said is
forgotten because somebody is silent now, by a restart of nsqadmin either.

`NodeRecords` keeps them in the store; a minute old at most, and as of its last answer when a node
stops answering. `left_on` and `words_about` say what a deletion does not reach.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.nsqadmin import words
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.store import Store, StoreFailed
from penstock.nsqadmin.upstream import NOT_OF_NSQ, NsqdAddress, whole
from penstock.nsqadmin.words import count

log = logging.getLogger("penstock.nsqadmin.remembered")

_REPLICA = ("partition", "role", "epoch")
_HELD = ("depth", "in_flight_count", "deferred_count")


class NodeRecords:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept_s = 0.0
        self._silent: dict[str, bool] = {}  # of the nodes that are in the store

    def nodes(self) -> list[NodeState]:
        """In the state of their last answers."""
        found = []
        for address, seen_s, kept in self._store.nodes():
            document = msgspec.json.decode(kept)
            producer = msgspec.convert(document.pop("producer"), NsqdAddress)
            found.append(NodeState(address, producer, document, seen_s=seen_s))
        self._silent = dict.fromkeys((one.address for one in found), False)
        return found

    def keep(self, nodes: Mapping[str, NodeState]) -> None:
        """Every minute, and at once when a node is new or has fallen silent."""
        now_s = time.monotonic()
        silent = {at: bool(one.error) for at, one in nodes.items() if one.seen_s}
        is_due = now_s - self._kept_s > limits.ADMIN_NODES_KEPT_S
        if not silent or (silent == self._silent and not is_due):
            return
        rows = []
        for at in silent:
            with suppress(*NOT_OF_NSQ):  # a foreign server's: what an nsqd said there stays
                rows.append((at, nodes[at].seen_s, _encoded(nodes[at])))
        self._kept_s = now_s
        try:
            self._store.keep_nodes(rows)
        except StoreFailed as error:
            log.error("nodes are not remembered: %s", error)
        else:
            self._silent = silent

    def forget(self, address: str) -> None:
        self._silent.pop(address, None)
        try:
            self._store.forget_node(address)
        except StoreFailed as error:
            log.error("%s is remembered at the next start: %s", address, error)


def _encoded(node: NodeState) -> bytes:
    producer = replace(node.producer, topics=(), remote_addresses=())  # nsqlookupds say them anew
    topics = [
        _row(topic, "topic_name")
        | {"channels": [_row(one, "channel_name") for one in topic.get("channels") or ()],
           "replicas": [{key: one[key] for key in _REPLICA} for one in topic.get("replicas") or ()]}
        for topic in node.document.get("topics") or ()
    ]  # fmt: skip
    return msgspec.json.encode({"producer": producer, "topics": topics})


def _row(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: row[key] for key in (name, *_HELD) if row.get(key)}


def left_on(snapshot: Snapshot, topic: str, channel: str = "") -> list[tuple[NodeState, int]]:
    """The messages of each silent node. A cluster deletes the data of its nodes once they are
    back."""
    return [
        (node, _held(row))
        for node in snapshot.nodes.values()
        if node.seen_s and not node.can_be_asked
        and (row := node.row(topic, channel)) is not None
        and not _is_replicated(node.row(topic))
    ]  # fmt: skip


def _held(row: Mapping[str, Any]) -> int:
    rows = [row, *(row.get("channels") or ())]
    return sum(whole(one, key) for one in rows for key in _HELD)


def words_about(snapshot: Snapshot, topic: str, channel: str = "") -> str:
    """The data that a deletion does not reach; "" when it reaches all."""
    left = left_on(snapshot, topic, channel)
    if not left:
        return ""
    what = "channel" if channel else "topic"
    parts = [
        f"{node.address}, silent since {words.clock(node.seen_s)}, has"
        f" {count(messages, 'message')} of it on its disk"
        for node, messages in left
    ]
    return f"{'; '.join(parts)}: it brings the {what} back when it starts"


class Holding(NamedTuple):
    messages: int
    topics: int
    only: tuple[str, ...]  # topics that no other node has
    replicated: int = 0  # topics beside these, which a cluster has on other nodes, too


def holding(snapshot: Snapshot, node: NodeState) -> Holding:
    every = node.document.get("topics") or ()
    rows = [row for row in every if not _is_replicated(row)]
    names = [str(row.get("topic_name", "")) for row in rows]
    only = tuple(name for name in names if snapshot.is_only_on(name, node.address))
    return Holding(sum(map(_held, rows)), len(names), only, len(every) - len(rows))


def _is_replicated(row: Mapping[str, Any] | None) -> bool:
    return bool(row and row.get("replicas"))


def words_of(found: Holding) -> str:
    also = f"{count(found.replicated, 'topic')} of the cluster"
    if not found.topics:
        return f"It had replicas of {also}." if found.replicated else "It held no topic."
    text = f"It held {count(found.messages, 'message')} in {count(found.topics, 'topic')}"
    text += f", and replicas of {also}." if found.replicated else "."
    return f"{text} On no other node: {words.listed(found.only, 4)}." if found.only else text
