"""What a bundle holds, as values: who was asked, and what each has said.

Whatever is missing or has another form is as if it had not been said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from penstock import limits
from penstock.nsqadmin.bundle.form import LOOKUPD, NSQD, Failure
from penstock.nsqadmin.bundle.reading import Bundle

Document = Mapping[str, Any]


@dataclass
class Node:
    """One nsqd or nsqlookupd."""

    place: str
    kind: str
    address: str
    error: str = ""  # why it did not answer
    health: str = ""  # its words to /ping
    info: Document = field(default_factory=dict)
    config: Document = field(default_factory=dict)
    samples: tuple[Document, Document] = ({}, {})
    times_s: tuple[float, float] = (0.0, 0.0)
    clock_s: tuple[float, float] | None = None  # its clock less ours is between
    metrics: dict[str, float] = field(default_factory=dict)  # those without topic and channel
    nodes: list[Document] = field(default_factory=list)  # that an nsqlookupd knows
    topics: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        return text(self.info, "version")

    @property
    def span_s(self) -> float:
        return max(0.0, self.times_s[1] - self.times_s[0])

    @property
    def stats(self) -> Document:
        return self.samples[1] or self.samples[0]


class Contents(NamedTuple):
    nodes: list[Node]  # nsqds
    lookupds: list[Node]
    failures: list[Failure]

    def up(self) -> list[Node]:
        return [one for one in self.nodes if not one.error]


def contents(bundle: Bundle) -> Contents:
    failures = [
        Failure(text(row, "place"), text(row, "asked"), text(row, "reason"))
        for row in rows(bundle.manifest, "failures")
    ]
    found = [_node(bundle, row, failures) for row in rows(bundle.manifest, "daemons")]
    return Contents(
        [one for one in found if one.kind == NSQD],
        [one for one in found if one.kind == LOOKUPD],
        failures,
    )


def _node(bundle: Bundle, row: Document, failures: Iterable[Failure]) -> Node:
    place = text(row, "place")
    node = Node(place, text(row, "kind"), text(row, "address"))
    for one in failures:
        if one.place == place and one.asked == "/ping":
            node.error = one.reason or "no answer"
    node.health = bundle.text(f"{place}/ping.txt")
    node.info = bundle.document(f"{place}/info.json")
    node.config = bundle.document(f"{place}/config.json")
    facts = bundle.document(f"{place}/facts.json")
    node.times_s, node.samples = _samples(bundle, place, facts)
    offset = facts.get("clock_offset_s")
    if isinstance(offset, list) and len(offset) == 2 and all(map(is_number, offset)):
        node.clock_s = (offset[0], offset[1])
    node.metrics = _metrics(bundle.text(f"{place}/metrics.txt"))
    node.nodes = list(rows(bundle.document(f"{place}/nodes.json"), "producers"))
    node.topics = texts(bundle.document(f"{place}/topics.json"), "topics")
    return node


def _samples(
    bundle: Bundle, place: str, facts: Document
) -> tuple[tuple[float, float], tuple[Document, Document]]:
    first, last = (_stats(bundle.document(f"{place}/stats-{number}.json")) for number in (1, 2))
    times = facts.get("sample_times_s")
    given = [float(one) for one in times if is_number(one)] if isinstance(times, list) else []
    both = (given[0], given[1]) if len(given) == 2 and first and last else (0.0, 0.0)
    return both, (first or last, last or first)


def _stats(document: Document) -> Document:
    """Only rows of the right form."""
    if not document:
        return {}
    topics = [
        {**topic, "channels": list(rows(topic, "channels"))}
        for topic in rows(document, "topics")
        if isinstance(topic.get("topic_name"), str)
    ]
    disk = document.get("disk")
    return {**document, "topics": topics, "disk": disk if isinstance(disk, dict) else {}}


def _metrics(content: str) -> dict[str, float]:
    """The figures of the daemon itself."""
    found = {}
    for line in content.splitlines():
        name, _, value = line.rpartition(" ")
        if name and "{" not in name and not line.startswith("#"):
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found


# --- values of others ---


def rows(document: Document, key: str) -> Iterator[dict[str, Any]]:
    value = document.get(key)
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def text(document: Document, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def texts(document: Document, key: str) -> list[str]:
    value = document.get(key)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def number(document: Document, key: str) -> float:
    value = document.get(key)
    return float(value) if is_number(value) else 0.0


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def listed(names: Iterable[str]) -> str:
    """Names with commas between them, not too many."""
    found = list(names)
    rest = len(found) - limits.BUNDLE_LISTED
    shown = ", ".join(found[: limits.BUNDLE_LISTED])
    return f"{shown} and {rest:,} more" if rest > 0 else shown
