"""What is wrong in an installation, from a bundle.

Most rules are those of nsqadmin's "needs attention" (attention.py), over a snapshot that is made
anew from the bundle's two samples. What nsqadmin itself had found over its minutes is in the bundle
when nsqadmin has gathered it, and is taken over. These are of a bundle alone, because they need a
view of several daemons at once, or of a machine:

| rule           | when                                                                   | level |
|----------------|------------------------------------------------------------------------|-------|
| lookupd down   | an nsqlookupd does not answer                                          | bad   |
| nobody         | no daemon answered, or none was asked                                  | bad   |
| restarted      | an nsqd started anew between the two samples                           | bad   |
| unhealthy      | /ping says so                                                          | bad   |
| watermark      | an nsqd's free space is below min-disk-free; warn: below twice as much | bad   |
| versions       | nodes have different versions                                          | warn  |
| clocks         | clocks are apart                                                       | warn  |
| config         | nsqds differ in what their users rely on; note: in other values        | warn  |
| same id        | two nsqds have one node id                                             | warn  |
| discovery      | an nsqlookupd knows a node or topic, and another does not              | warn  |
| not registered | an nsqd answers and no nsqlookupd knows it                             | warn  |
| nobody reads   | a channel holds messages and has no consumer                           | warn  |
| memory         | of this machine, or of the container, little is left                   | warn  |
| not asked      | nsqds name nsqlookupds, and none was asked                             | note  |
| no consumer    | a channel has no consumer, and nothing waits                           | note  |
| tombstones     | an nsqlookupd hides a topic of a node                                  | note  |
| incomplete     | a daemon that answers left something unanswered                        | note  |

A foreign daemon may say anything: what is missing or has another form counts as not said.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from penstock import limits
from penstock.broker.topics.settings import is_internal
from penstock.nsqadmin import attention, snapshot
from penstock.nsqadmin.attention import Finding, Level, Window
from penstock.nsqadmin.bundle.files import Bundle, Failure
from penstock.nsqadmin.history import Sample, series_of
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import LOOKUPD, NSQD, Producer
from penstock.nsqadmin.words import wait

Document = Mapping[str, Any]
Places = dict[Any, list[str]]  # by what is there or holds: the addresses where it does

_SPAN_SHARE = 0.5  # of the time between the samples: what of it a window has to have
# What producers and consumers rely on: it should be the same wherever they are connected.
_SHARED = frozenset((
    "durability", "msg_timeout", "max_msg_timeout", "max_msg_size", "max_body_size",
    "max_req_timeout", "max_rdy_count", "min_disk_free", "retain_age", "retain_bytes", "max_depth",
    "max_age", "sync_every", "sync_timeout", "tls_required", "tls_client_auth_policy",
    "tls_min_version", "auth_http_addresses", "snappy", "deflate", "max_channel_consumers",
    "nsqlookupd_tcp_addresses", "idle_topic_delete", "idle_channel_delete", "idle_delete_backlog",
    "max_heartbeat_interval", "trace_rate",
))  # fmt: skip
# What has to be a node's own.
_OWN = frozenset((
    "id", "node_id", "tcp_address", "http_address", "https_address", "broadcast_address",
    "broadcast_tcp_port", "broadcast_http_port", "data_path", "topology_zone", "topology_region",
    "statsd_prefix", "tls_cert", "tls_key", "log_prefix", "log_level",
))  # fmt: skip
_UNORDERED = frozenset(("nsqlookupd_tcp_addresses", "auth_http_addresses"))
_SHOWN = 60  # characters of a value


def judge(bundle: Bundle) -> list[Finding]:
    """The worst first."""
    held = _Contents(bundle)
    kept: dict[str, Finding] = {}
    for one in (*_by_attention(held.nodes), *_by_nsqadmin(bundle), *_findings(held)):
        known = kept.get(one.what)
        if known is None or known.level < one.level:
            kept[one.what] = one
    return sorted(kept.values(), key=lambda one: (-one.level, one.what))


def rows_of(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "level": ("NOTE", "WARNING", "CRITICAL")[one.level],
            "what": one.what,
            "where": "/".join(one.path),
            "why": one.why,
            "next_step": one.next_step,
        }
        for one in found
    ]


# --- the rules of nsqadmin ---


def _by_attention(nodes: list[Node]) -> Iterator[Finding]:
    first, last = _snapshots(nodes)
    span_s = last.time_s - first.time_s
    before, now = dict(series_of(first)), dict(series_of(last))
    past: dict[str, list[Sample]] = {}
    for name, values in now.items() if span_s else ():
        if name in before:
            past[name] = [Sample(first.time_s, before[name]), Sample(last.time_s, values)]
    # The samples of other nodes may be a little closer together.
    window = Window(min(span_s, limits.ADMIN_WINDOW_S) * _SPAN_SHARE, 2, f"{span_s:.0f} s")
    yield from attention.findings(last, lambda name: past.get(name, ()), window)


def _snapshots(nodes: list[Node]) -> tuple[Snapshot, Snapshot]:
    """As the two samples show it."""
    found: list[Snapshot] = []
    span_s = max((0.0, *(one.times_s[1] - one.times_s[0] for one in nodes)))
    for number in (0, 1):
        states = {one.address: _state(one, number) for one in nodes}
        before = found[-1] if found else Snapshot()
        found.append(snapshot.make(number * span_s, states, (), (), before))
    return found[0], found[1]


def _state(node: Node, number: int) -> NodeState:
    producer = Producer("", node.address, 0, 0, node.version, given_address=node.address)
    state = NodeState(node.address, producer, node.samples[number], error=node.error)
    state.answered_s = node.times_s[number]
    return state


def _by_nsqadmin(bundle: Bundle) -> Iterator[Finding]:
    for row in _rows(bundle.document("nsqadmin/attention.json"), "findings"):
        try:
            path = tuple(str(one) for one in row["place"])
            level, what = Level(row["level"]), str(row["what"])
            why, step = str(row["why"]), str(row["next_step"])
        except (KeyError, TypeError, ValueError):
            continue
        yield Finding(level, what, why, step, path)


# --- a bundle's contents, as values ---


@dataclass
class Node:
    """One nsqd or nsqlookupd, and what it has said."""

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
    nodes: list[Document] = field(default_factory=list)  # that an nsqlookupd knows
    topics: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        return _text(self.info, "version")

    @property
    def stats(self) -> Document:
        return self.samples[1]


class _Contents:
    def __init__(self, bundle: Bundle) -> None:
        self.failures = [
            Failure(_text(row, "place"), _text(row, "asked"), _text(row, "reason"))
            for row in _rows(bundle.manifest, "failures")
        ]
        self.daemons = [_node(bundle, row, self.failures)
                        for row in _rows(bundle.manifest, "daemons")]  # fmt: skip
        self.nodes = [one for one in self.daemons if one.kind == NSQD]
        self.up = [one for one in self.nodes if not one.error]
        self.lookupds = [one for one in self.daemons if one.kind == LOOKUPD]
        self.lookupds_up = [one for one in self.lookupds if not one.error]
        self.limits = bundle.document("machine/limits.json")


def _node(bundle: Bundle, row: Document, failures: Iterable[Failure]) -> Node:
    place = _text(row, "place")
    node = Node(place, _text(row, "kind"), _text(row, "address"))
    for one in failures:
        if one.place == place and one.asked == "/ping":
            node.error = one.reason or "no answer"
    node.health = bundle.text(f"{place}/ping.txt")
    node.info = bundle.document(f"{place}/info.json")
    node.config = bundle.document(f"{place}/config.json")
    facts = bundle.document(f"{place}/facts.json")
    first, last = (_stats(bundle.document(f"{place}/stats-{number}.json")) for number in (1, 2))
    node.samples = first or last, last or first
    if first and last:
        node.times_s = _pair(facts, "sample_times_s") or (0.0, 0.0)
    node.clock_s = _pair(facts, "clock_offset_s")
    node.nodes = list(_rows(bundle.document(f"{place}/nodes.json"), "producers"))
    node.topics = _texts(bundle.document(f"{place}/topics.json"), "topics")
    return node


def _stats(document: Document) -> Document:
    """Only rows of the right form."""
    if not document:
        return {}
    topics = [
        {**topic, "channels": list(_rows(topic, "channels"))}
        for topic in _rows(document, "topics")
        if isinstance(topic.get("topic_name"), str)
    ]
    return {**document, "topics": topics, "disk": _below(document, "disk")}


def _rows(document: Document, key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _below(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _texts(document: Document, key: str) -> list[str]:
    value = document.get(key)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _number(document: Document, key: str) -> float:
    value = document.get(key)
    return float(value) if _is_number(value) else 0.0


def _pair(document: Document, key: str) -> tuple[float, float] | None:
    value = document.get(key)
    given = [float(one) for one in value if _is_number(one)] if isinstance(value, list) else []
    return (given[0], given[1]) if len(given) == 2 else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _listed(names: Iterable[str]) -> str:
    """Names with commas between them, not too many."""
    found = list(names)
    rest = len(found) - limits.BUNDLE_LISTED
    shown = ", ".join(found[: limits.BUNDLE_LISTED])
    return f"{shown} and {rest:,} more" if rest > 0 else shown


# --- the rules of a bundle ---


def _findings(held: _Contents) -> Iterator[Finding]:
    for one in held.lookupds:
        if one.error:
            step = "See whether the process runs and its port can be reached."
            what = f"nsqlookupd {one.address} does not answer"
            yield Finding(Level.BAD, what, f"{one.error}.", step, ())
    if not held.nodes:
        step = "Name one with --nsqd-http-address, or an nsqlookupd that they register with."
        yield Finding(Level.BAD, "no nsqd was found", "Nothing can be said about any.", step, ())
    for node in held.up:
        yield from _of_node(node)
    yield from _versions([*held.up, *held.lookupds_up])
    yield from _clocks(held)
    yield from _configs([one for one in held.up if one.config])
    yield from _discovery(held)
    yield from _consumers(held.up)
    yield from _gaps(held)
    yield from _memory(held.limits)


def _of_node(node: Node) -> Iterator[Finding]:
    path, what = ("nodes", node.address), f"node {node.address}"
    status, _, said = node.health.partition(" ")
    if status not in ("200", ""):
        step = "Its log says more; a full or failing disk is the usual cause."
        yield Finding(Level.BAD, f"{what} is not healthy", said or status, step, path)
    starts = [one.get("start_time") for one in node.samples]
    if all(map(_is_number, starts)) and starts[0] != starts[1]:
        why = "Between the two samples: something ends it and starts it again."
        step = "See its log, and the system's: out of memory, or a supervisor's check."
        yield Finding(Level.BAD, f"{what} has just started again", why, step, path)
    disk = node.stats.get("disk") or {}
    floor, free = _number(node.config, "min_disk_free"), _number(disk, "free_bytes")
    if floor and _number(disk, "size_bytes"):
        refused = f"publishes are refused below {floor / 1e9:,.1f} GB."
        why = f"{free / 1e9:,.1f} GB are free, and {refused}"
        step = "Empty channels nobody reads, lower -retain-age and -retain-bytes, or grow the disk."
        if free < floor:
            yield Finding(Level.BAD, f"{what} is below its disk watermark", why, step, path)
        elif free < floor * limits.BUNDLE_WATERMARK_SHARE:
            yield Finding(Level.WARN, f"{what} is near its disk watermark", why, step, path)


def _versions(nodes: list[Node]) -> Iterator[Finding]:
    for kind in (NSQD, LOOKUPD):
        found: Places = defaultdict(list)
        for node in nodes:
            if node.version and node.kind == kind:
                found[node.version].append(node.address)
        if len(found) > 1:
            step = "Fine during an upgrade. Bring them to one version when it is done."
            what = f"{kind}s have different versions"
            yield Finding(Level.WARN, what, _by_place(found), step, ("nodes",))


def _by_place(found: Places) -> str:
    return "; ".join(f"{value}: {_listed(at)}" for value, at in sorted(found.items())) + "."


def _clocks(held: _Contents) -> Iterator[Finding]:
    """Each against ours, which is no better than theirs; so what counts is how far they part."""
    known = [(one.clock_s, one.address) for one in (*held.nodes, *held.lookupds) if one.clock_s]
    if not known:
        return
    known.append(((0.0, 0.0), "where it was gathered"))
    (_, early), slow = min(known, key=lambda one: one[0][1])
    (late, _), fast = max(known, key=lambda one: one[0][0])
    if late - early > limits.BUNDLE_CLOCK_S:
        why = f"{fast} is at least {late - early:.1f} s ahead of {slow}."
        step = "Let NTP run everywhere (chrony, systemd-timesyncd): due times and ages need it."
        yield Finding(Level.WARN, "clocks are apart", why, step, ("nodes",))


def _configs(nodes: list[Node]) -> Iterator[Finding]:
    for key in sorted({key for one in nodes for key in one.config} - _OWN):
        values: Places = defaultdict(list)
        for one in nodes:
            if key in one.config:
                values[_shown(key, one.config[key])].append(one.address)
        if len(values) > 1:
            level = Level.WARN if key in _SHARED else Level.NOTE
            step = "Decide for one value: clients can't tell which node they are connected to."
            what = f"nsqds differ in {key}"
            yield Finding(level, what, _by_place(values), step, ("nodes",))
    ids: Places = defaultdict(list)
    for one in nodes:
        if _is_number(one.config.get("id")):
            ids[one.config["id"]].append(one.address)
    for number, at in ids.items():
        if len(at) > 1:
            why = f"{_listed(at)}: two messages may get one id."
            step = "Give each nsqd a -node-id of its own (0 to 1023)."
            yield Finding(Level.WARN, f"nsqds share the node id {number}", why, step, ("nodes",))


def _shown(key: str, value: Any) -> str:
    if key in _UNORDERED and isinstance(value, list):
        value = sorted(map(str, value))
    shown = value if isinstance(value, str) else json.dumps(value)
    return (shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…") or "(empty)"


def _discovery(held: _Contents) -> Iterator[Finding]:
    told = held.lookupds_up
    known = {one.address: {_address(row) for row in one.nodes} for one in told}
    yield from _apart(known, "node")
    yield from _apart({one.address: set(one.topics) for one in told}, "topic")
    everywhere = {address for found in known.values() for address in found}
    for node in held.up if told else ():
        own = f"{_text(node.info, 'broadcast_address')}:{node.info.get('http_port')}"
        if not everywhere & {node.address, own}:
            why = "It answers, and no nsqlookupd that was asked knows it: consumers don't find it."
            step = "Look at its -lookupd-tcp-address and at its log."
            path = ("nodes", node.address)
            yield Finding(Level.WARN, f"node {node.address} is not registered", why, step, path)
    named = {one for node in held.up for one in _texts(node.config, "nsqlookupd_tcp_addresses")}
    if named and not held.lookupds:
        why = f"nsqds register with {_listed(sorted(named))}."
        step = "Give --lookupd-http-address to have them looked at."
        yield Finding(Level.NOTE, "no nsqlookupd was asked", why, step, ())
    for one in told:
        yield from _tombstones(one)


def _address(row: Any) -> str:
    return f"{row.get('broadcast_address')}:{row.get('http_port')}"


def _apart(found: dict[str, set[str]], kind: str) -> Iterator[Finding]:
    """One finding for each nsqlookupd that lacks something."""
    everything = {name for names in found.values() for name in names}
    for lookupd, names in found.items():
        missing = sorted(everything - names)
        if missing:
            others = _listed(one for one, has in found.items() if has & set(missing))
            why = f"{_listed(missing)}: known to {others}."
            step = "See whether nsqds reach it: consumers that ask only this one miss them."
            what = f"nsqlookupd {lookupd} misses {kind}s"
            yield Finding(Level.WARN, what, why, step, ("lookup",))


def _tombstones(lookupd: Node) -> Iterator[Finding]:
    for row in lookupd.nodes:
        flags = row.get("tombstones")
        names = _texts(row, "topics") if isinstance(flags, list) else []
        dead = [name for name, flag in zip(names, flags or (), strict=False) if flag]
        if dead:
            why = f"nsqlookupd {lookupd.address} leaves it out of lookups of {_listed(dead)}."
            step = "It ends by itself after nsqlookupd's -tombstone-lifetime."
            path = ("nodes", _address(row))
            yield Finding(Level.NOTE, f"node {path[1]} has tombstones", why, step, path)


def _consumers(nodes: list[Node]) -> Iterator[Finding]:
    """Of all nodes together: a consumer on one of them is one."""
    states = {one.address: _state(one, 1) for one in nodes}
    whole = snapshot.make(0.0, states, (), (), Snapshot())
    idle = []
    for one in sorted(whole.channels(), key=lambda one: (one.topic, one.name)):
        if one.clients or is_internal(one.topic) or one.is_internal:
            continue
        name, waits = f"{one.topic}/{one.name}", one.depth + one.in_flight
        if not waits:
            idle.append(name)
            continue
        step = "Start its consumers; delete it if nobody wants its messages: they fill the disk."
        why = f"It has no consumer, and {wait(waits)}."
        path = ("topics", one.topic, one.name)
        yield Finding(Level.WARN, f"nobody reads channel {name}", why, step, path)
    if idle:
        step = "Delete those that nobody needs: what is published from now on waits in them."
        what = "channels have no consumer"
        yield Finding(Level.NOTE, what, f"{_listed(idle)}.", step, ("topics",))


def _gaps(held: _Contents) -> Iterator[Finding]:
    down = {one.place for one in held.daemons if one.error}
    names = {one.place: one.address for one in held.daemons}
    missing: Places = defaultdict(list)
    for one in held.failures:
        if one.place not in down:
            missing[one.place].append(f"{one.asked}: {one.reason}")
    for place, reasons in sorted(missing.items()):
        what = f"the bundle lacks answers of {names.get(place, place or 'this machine')}"
        step = "Gather again, with more time if it was slow."
        yield Finding(Level.NOTE, what, f"{_listed(reasons)}.", step, ())


def _memory(document: Document) -> Iterator[Finding]:
    memory, cgroup = _below(document, "memory"), _below(document, "cgroup")
    step = "Find what takes it (ps, systemd-cgtop); nsqd itself stays flat whatever the backlog."
    total, free = _number(memory, "MemTotal"), _number(memory, "MemAvailable")
    if total and free < total * limits.BUNDLE_MEMORY_FREE_SHARE:
        why = f"{free / 1e6:,.0f} MB of {total / 1e6:,.0f} MB are available."
        yield Finding(Level.WARN, "this machine runs out of memory", why, step, ())
    bound, used = _text(cgroup, "memory.max"), _text(cgroup, "memory.current")
    if bound.isdigit() and used.isdigit() and int(bound):
        left = 1 - int(used) / int(bound)
        if left < limits.BUNDLE_MEMORY_FREE_SHARE:
            why = f"{int(used) / 1e6:,.0f} MB of {int(bound) / 1e6:,.0f} MB are used."
            yield Finding(Level.WARN, "this container runs out of memory", why, step, ())
