"""Metadata that went back is made again: `penstock cluster restore` speaks to these two routes.

| | |
|---|---|
| `GET /cluster/memory` | what this node knows of the metadata, from before etcd went back |
| `POST /cluster/restore` | a plan (`cluster.restoration`) from all these answers, in the body |

`apply=true` carries the plan out. `lost=4,5` names nodes that are gone for good: what only they
remembered is given up. Any node that reaches etcd may be asked. A plan that is carried out compares
what it was made from, so one that is late changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from penstock import limits
from penstock.cluster import keys
from penstock.cluster.coordinator import Failed, KeyPage, KeyValue, Settled, Transaction
from penstock.cluster.documents import CHANNEL, RECORD, TOPIC, identity_of
from penstock.cluster.json_form import Form
from penstock.cluster.metadata_topics import channel_document, topic_document
from penstock.cluster.restoration import Memory, Restoration, restoration, standing_of
from penstock.cluster.view import Remembered, Versioned
from penstock.errors import PenstockError, Refused
from penstock.net.api import (
    GET,
    JSON,
    NSQ_HEADER,
    POST,
    Answer,
    HttpError,
    Route,
    because,
    error_response,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.replication.leader import Outcome

if TYPE_CHECKING:
    from penstock.broker.topics.topic import Topic
    from penstock.broker.topics.topic_file import TopicFile
    from penstock.cluster.coordinator import Coordinator
    from penstock.cluster.view import View


# --- a node's memory as JSON ---


class _Row(msgspec.Struct):
    revision: int
    created: int
    document: msgspec.Raw


class _MemoryDocument(msgspec.Struct):
    """Rows have the keys of the metadata."""

    node: int
    uuid: str
    revision: int
    restorations: int
    records: dict[str, _Row]
    topics: dict[str, _Row]
    channels: dict[str, _Row]


class _Body(msgspec.Struct):
    memories: Annotated[list[_MemoryDocument], msgspec.Meta(min_length=1)]


def memory_document(node: int, view: View, files: Iterable[TopicFile]) -> _MemoryDocument:
    """`files`: topics with replicas here. For topics that the view lacks, since the node was
    started after etcd had lost them, the files have the settings and the channels."""
    remembered = view.remembered
    topics, channels = dict(view.topics), dict(view.channels)
    for file in files:
        if file.name not in topics:
            replicas = [len(one.document.wanted) for at, one in view.partitions.items()
                        if at.topic == file.name]  # fmt: skip
            topics[file.name] = Versioned(topic_document(file, max(replicas, default=1)), 0, 0)
            for entry in file.channels:
                document = channel_document(entry, identity_of(file.identity))
                channels[keys.ChannelName(file.name, entry.name)] = Versioned(document, 0, 0)
    return _MemoryDocument(
        node,
        f"{remembered.uuid:032x}",
        remembered.revision,
        remembered.restorations,
        _rows(RECORD, ((keys.partition(*at), one) for at, one in view.partitions.items())),
        _rows(TOPIC, ((keys.topic(at), one) for at, one in topics.items())),
        _rows(CHANNEL, ((keys.channel(*at), one) for at, one in channels.items())),
    )


def _rows(form: Form[Any], held: Iterable[tuple[str, Versioned[Any]]]) -> dict[str, _Row]:
    return {
        key: _Row(one.revision, one.created, msgspec.Raw(form.encode(one.document)))
        for key, one in held
    }


def memory_of(document: _MemoryDocument) -> Memory:
    """Raises ValueError and DocumentBroken."""
    topics = _held(document.topics, TOPIC, keys.name_of)
    return Memory(
        document.node,
        Remembered(int(document.uuid, 16), document.revision, document.restorations),
        _held(document.records, RECORD, keys.partition_of),
        {name: one.document for name, one in topics.items()},
        _held(document.channels, CHANNEL, keys.channel_of),
    )


def _held(
    rows: Mapping[str, _Row], form: Form[Any], name_of: Callable[[str], Any]
) -> dict[Any, Versioned[Any]]:
    return {
        name_of(key): Versioned(form.decode(key, bytes(row.document)), row.revision, row.created)
        for key, row in rows.items()
    }


@dataclass(eq=False)
class Restoring:
    _own: int
    _view: View
    _topics: Mapping[str, Topic]
    _coordinator: Coordinator

    def table(self) -> dict[str, Route]:
        size_max = limits.CLUSTER_MEMORIES_BYTES_MAX
        return {
            "/cluster/memory": Route(GET, self._memory),
            "/cluster/restore": Route(POST, self._restore, size_max, "BODY_TOO_BIG"),
        }

    def _memory(self, request: Request, answer: Answer) -> None:
        files = [one.file() for one in self._topics.values() if one.replicas and one.replicated]
        body = msgspec.json.encode(memory_document(self._own, self._view, files))
        answer(Response(200, body, JSON, NSQ_HEADER))

    def _restore(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        lost = _numbers(parameters.get("lost", ""))
        applies = parameters.get("apply", "") == "true"
        try:
            body = msgspec.json.decode(request.body, type=_Body)
            memories = [memory_of(one) for one in body.memories]
        except (ValueError, RecursionError, PenstockError) as error:
            reason = f"not what GET /cluster/memory answers: {error}"
            raise because(400, "INVALID_BODY", reason) from error
        entries: list[KeyValue] = []

        def listed(page: KeyPage | Failed) -> None:
            if isinstance(page, Failed):
                answer(_unavailable(f"etcd: {page.reason}"))
                return
            entries.extend(page.entries)
            if not page.is_last:
                return
            try:
                plan = restoration(standing_of(entries), memories, lost)
            except (ValueError, PenstockError) as error:
                reason = error.reason if isinstance(error, Refused) else str(error)
                answer(error_response(because(409, "NO_PLAN", reason)))
                return
            if applies:
                self._apply(
                    list(plan.transactions), lambda: answer(_plan_response(plan, True)), answer
                )
            else:
                answer(_plan_response(plan, False))

        self._coordinator.list("", listed)

    def _apply(self, left: list[Transaction], done: Callable[[], None], answer: Answer) -> None:
        """One after the other; the nodes wait for the last one."""
        if not left:
            done()
            return

        def settled(result: Settled) -> None:
            if result.outcome is Outcome.DONE:
                self._apply(left[1:], done, answer)
            elif result.outcome is Outcome.REFUSED:
                refused = because(409, "CHANGED", "etcd has changed meanwhile: ask again")
                answer(error_response(refused))
            else:
                answer(_unavailable("etcd has not answered; ask again"))

        self._coordinator.transact(left[0], settled)


def _numbers(text: str) -> list[int]:
    found = [whole_number(one, limits.NODE_ID_MAX) for one in text.split(",") if one]
    if None in found:
        raise because(400, "INVALID_NODE", f"lost {text!r}: numbers of nodes are needed")
    return [one for one in found if one is not None]


def _unavailable(reason: str) -> Any:
    details = {"reason": reason, "changed": "unknown"}
    return error_response(HttpError(503, "UNAVAILABLE", details=details))


def _plan_response(plan: Restoration, applied: bool) -> Any:
    return json_response(
        {
            "applied": applied,
            "put": [list(name) for name in sorted(plan.put)],
            "kept": len(plan.kept),
            "topics": sorted(plan.topics),
            "channels": [list(name) for name in sorted(plan.channels)],
            "left": [{"topic": name.topic, "partition": name.number, "reason": reason}
                     for name, reason in sorted(plan.left.items())],
        }
    )  # fmt: skip
