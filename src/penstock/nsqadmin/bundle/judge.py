"""Findings about an installation, from a bundle.

Most rules are those of nsqadmin's "needs attention" (attention.py), over a snapshot that is made
from the bundle's two samples. The rules here are for bundles alone, as they need a view of several
daemons at once, or of a machine.

A foreign daemon may say anything: a document of another form counts as not said.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from penstock import limits
from penstock.broker.topics.settings import is_internal
from penstock.nsqadmin import aggregate, attention, replication, snapshot
from penstock.nsqadmin.attention import Finding, Thing, Window
from penstock.nsqadmin.bundle.files import Bundle, Member
from penstock.nsqadmin.history import Sample, series_of
from penstock.nsqadmin.snapshot import NO_CLUSTER, NodeState, Snapshot
from penstock.nsqadmin.upstream import LOOKUPD, NOT_OF_NSQ, NSQD, NsqdAddress, listed_in, of_row
from penstock.nsqadmin.words import listed, wait

T = TypeVar("T")

ByValue = dict[Any, list[str]]  # by what is there or holds: the addresses where it does
Document = dict[str, Any]

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
    "statsd_prefix", "tls_cert", "tls_key", "log_prefix", "log_level", "zone",
    "replication_address",
))  # fmt: skip
_UNORDERED = frozenset(("nsqlookupd_tcp_addresses", "auth_http_addresses"))
_SHOWN = 60  # characters of a value
_listed = partial(listed, most=limits.BUNDLE_LISTED)


def judge(bundle: Bundle) -> list[Finding]:
    """The worst first."""
    kept: dict[str, Finding] = {}
    for one in _findings(bundle):
        known = kept.get(one.what)
        if known is None or known.level < one.level:
            kept[one.what] = one
    return sorted(kept.values(), key=attention.order)


def rows_of(found: Iterable[Finding]) -> list[dict[str, Any]]:
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


def _findings(bundle: Bundle) -> Iterator[Finding]:
    daemons = [_Daemon(bundle, one) for one in bundle.manifest.daemons]
    nodes = [one for one in daemons if one.kind == NSQD]
    lookupds = [one for one in daemons if one.kind == LOOKUPD]
    up, lookupds_up = ([one for one in some if not one.error] for some in (nodes, lookupds))
    span_s = max((0.0, *(one.last.answered_s - one.first.answered_s for one in nodes)))
    cluster = next((one.cluster for one in nodes if one.cluster.name), NO_CLUSTER)
    first = snapshot.make(0.0, {one.address: one.first for one in nodes}, (), (), Snapshot())
    states = {one.address: one.last for one in nodes}
    last = snapshot.make(span_s, states, (), (), first, cluster)
    yield from _by_attention(first, last, span_s)
    for one in lookupds:
        if one.error:
            step = "See whether the process runs and its port can be reached."
            yield Thing(f"nsqlookupd {one.address}", ()).bad(
                "does not answer", f"{one.error}.", step
            )
    if not nodes:
        step = "Name one with --nsqd-http-address, or an nsqlookupd that they register with."
        yield Thing("no nsqd", ()).bad("was found", "Nothing can be said about any.", step)
    for one in up:
        yield from _of_node(one)
    yield from _versions([*up, *lookupds_up])
    yield from _clocks(daemons)
    yield from _configs([one for one in up if one.config])
    yield from _discovery(up, lookupds, lookupds_up)
    yield from _consumers(last)
    yield from _gaps(bundle, daemons)
    yield from _memory(bundle.document("machine/limits.json", _Machine))


# --- a bundle's documents ---


class _Facts(msgspec.Struct):
    sample_times_s: list[float] = []
    clock_offset_s: list[float] = []  # its clock less ours is between


class _Topics(msgspec.Struct):
    topics: list[str] = []


class _Machine(msgspec.Struct):
    memory: dict[str, float] = {}
    cgroup: dict[str, str] = {}


class _Daemon:
    def __init__(self, bundle: Bundle, member: Member) -> None:
        folder = self.folder = member.folder
        self.kind, self.address = member.kind, member.address
        failed = [one.reason for one in bundle.manifest.failures
                  if (one.folder, one.asked) == (folder, "/ping")]  # fmt: skip
        self.error = (failed[-1] or "no answer") if failed else ""
        self.status, _, self.health = bundle.text(f"{folder}/ping.txt").partition(" ")
        self.own = of_row(bundle.document(f"{folder}/info.json", Document))
        self.config = bundle.document(f"{folder}/config.json", Document)
        facts = bundle.document(f"{folder}/facts.json", _Facts)
        first, last = (_read(bundle, f"{folder}/stats-{number}.json", _stats, Document())
                       for number in (1, 2))  # fmt: skip
        is_pair = first and last and len(facts.sample_times_s) == 2
        begun_s, ended_s = facts.sample_times_s if is_pair else (0.0, 0.0)
        known = NsqdAddress("", self.address, 0, 0, self.own.version, given_address=self.address)
        self.first = NodeState(self.address, known, first or last, begun_s, error=self.error)
        self.last = NodeState(self.address, known, last or first, ended_s, error=self.error)
        self.clock_s = facts.clock_offset_s if len(facts.clock_offset_s) == 2 else None
        self.nodes = _read(bundle, f"{folder}/nodes.json", _nodes, list[NsqdAddress]())
        self.topics = bundle.document(f"{folder}/topics.json", _Topics).topics
        self.cluster = _read(bundle, f"{folder}/cluster.json", replication.read, NO_CLUSTER)


def _read(bundle: Bundle, name: str, reading: Callable[[Document], T], none: T) -> T:
    try:
        return reading(bundle.document(name, Document))
    except NOT_OF_NSQ:
        return none


def _stats(document: Document) -> Document:
    aggregate.counter([NodeState("", NsqdAddress("", "", 0, 0, ""), document)])
    return document  # where counting its messages failed, it is no nsqd's


def _nodes(document: Document) -> list[NsqdAddress]:
    return listed_in({"": document})


def _by_attention(first: Snapshot, last: Snapshot, span_s: float) -> list[Finding]:
    """The rules of nsqadmin, over the time between the two samples."""
    before, now = dict(series_of(first)), dict(series_of(last))
    past = {name: [Sample(0.0, before[name]), Sample(span_s, values)]
            for name, values in now.items() if span_s and name in before}  # fmt: skip
    # The samples of other nodes may be a little closer together.
    window = Window(min(span_s, limits.ADMIN_WINDOW_S) * _SPAN_SHARE, 2, f"{span_s:.0f} s")
    return attention.findings(last, lambda name: past.get(name, ()), window)


# --- the rules of a bundle ---


def _of_node(node: _Daemon) -> Iterator[Finding]:
    it = Thing(f"node {node.address}", ("nodes", node.address))
    if node.status not in ("200", ""):
        step = "Its log says more; a full or failing disk is the usual cause."
        yield it.bad("is not healthy", node.health or node.status, step)
    if len({node.first.start_s, node.last.start_s} - {0}) > 1:
        why = "Between the two samples: something ends it and starts it again."
        step = "See its log, and the system's: out of memory, or a supervisor's check."
        yield it.bad("has just started again", why, step)
    floor, free = node.config.get("min_disk_free"), node.last.disk.get("free_bytes", 0)
    if isinstance(floor, int) and floor and node.last.disk.get("size_bytes"):
        refused = f"publishes are refused below {floor / 1e9:,.1f} GB."
        why = f"{free / 1e9:,.1f} GB are free, and {refused}"
        step = "Empty channels nobody reads, lower -retain-age and -retain-bytes, or grow the disk."
        if free < floor:
            yield it.bad("is below its disk watermark", why, step)
        elif free < floor * limits.BUNDLE_WATERMARK_SHARE:
            yield it.warn("is near its disk watermark", why, step)


def _versions(daemons: list[_Daemon]) -> Iterator[Finding]:
    for kind in (NSQD, LOOKUPD):
        found = _by_value((one.own.version, one.address) for one in daemons
                          if one.own.version and one.kind == kind)  # fmt: skip
        if len(found) > 1:
            step = "Fine during an upgrade. Bring them to one version when it is done."
            yield Thing(f"{kind}s", ("nodes",)).warn(
                "have different versions", _by_node(found), step
            )


def _clocks(daemons: list[_Daemon]) -> Iterator[Finding]:
    """Each compared with ours, which is no better; so the largest difference counts."""
    known = [(one.clock_s, one.address) for one in daemons if one.clock_s]
    known.append(([0.0, 0.0], "where it was gathered"))
    (_, early), slow = min(known, key=lambda one: one[0][1])
    (late, _), fast = max(known, key=lambda one: one[0][0])
    if late - early > limits.BUNDLE_CLOCK_S:
        why = f"{fast} is at least {late - early:.1f} s ahead of {slow}."
        step = "Let NTP run everywhere (chrony, systemd-timesyncd): due times and ages need it."
        yield Thing("clocks", ("nodes",)).warn("are apart", why, step)


def _configs(nodes: list[_Daemon]) -> Iterator[Finding]:
    nsqds = Thing("nsqds", ("nodes",))
    for key in sorted({key for one in nodes for key in one.config} - _OWN):
        values = _by_value((_shown(key, one.config[key]), one.address) for one in nodes
                           if key in one.config)  # fmt: skip
        if len(values) > 1:
            found = nsqds.warn if key in _SHARED else nsqds.note
            step = "Decide for one value: clients can't tell which node they are connected to."
            yield found(f"differ in {key}", _by_node(values), step)
    ids = _by_value((json.dumps(one.config.get("id")), one.address) for one in nodes)
    for number, at in ids.items():
        if len(at) > 1 and number.isdecimal():
            why = f"{_listed(at)}: two messages may get one id."
            step = "Give each nsqd a -node-id of its own (0 to 1023)."
            yield nsqds.warn(f"share the node id {number}", why, step)


def _shown(key: str, value: Any) -> str:
    if key in _UNORDERED and isinstance(value, list):
        value = sorted(map(str, value))
    shown = value if isinstance(value, str) else json.dumps(value)
    return (shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…") or "(empty)"


def _discovery(
    up: list[_Daemon], lookupds: list[_Daemon], lookupds_up: list[_Daemon]
) -> Iterator[Finding]:
    known = {one.address: {row.address for row in one.nodes} for one in lookupds_up}
    yield from _apart(known, "node")
    yield from _apart({one.address: set(one.topics) for one in lookupds_up}, "topic")
    everywhere = {address for found in known.values() for address in found}
    for node in up if lookupds_up else ():
        if not everywhere & {node.address, node.own.address}:
            why = "It answers, and no nsqlookupd that was asked knows it: consumers don't find it."
            step = "Look at its -lookupd-tcp-address and at its log."
            it = Thing(f"node {node.address}", ("nodes", node.address))
            yield it.warn("is not registered", why, step)
    given = [one.config.get("nsqlookupd_tcp_addresses") for one in up]
    named = {str(at) for some in given if isinstance(some, list) for at in some}
    if named and not lookupds:
        why = f"nsqds register with {_listed(sorted(named))}."
        step = "Give --lookupd-http-address to have them looked at."
        yield Thing("no nsqlookupd", ()).note("was asked", why, step)
    for one in lookupds_up:
        for row in one.nodes:
            if dead := [name for name, is_dead in row.topics if is_dead]:
                why = f"nsqlookupd {one.address} leaves it out of lookups of {_listed(dead)}."
                step = "It ends by itself after nsqlookupd's -tombstone-lifetime."
                it = Thing(f"node {row.address}", ("nodes", row.address))
                yield it.note("has tombstones", why, step)


def _apart(found: dict[str, set[str]], kind: str) -> Iterator[Finding]:
    everything = {name for names in found.values() for name in names}
    for lookupd, names in found.items():
        missing = sorted(everything - names)
        if missing:
            others = _listed(one for one, has in found.items() if has & set(missing))
            why = f"{_listed(missing)}: known to {others}."
            step = "See whether nsqds reach it: consumers that ask only this one miss them."
            yield Thing(f"nsqlookupd {lookupd}", ("lookup",)).warn(f"misses {kind}s", why, step)


def _consumers(whole: Snapshot) -> Iterator[Finding]:
    """Over all nodes: a consumer of one node counts."""
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
        it = Thing("nobody", ("topics", one.topic, one.name))
        yield it.warn(f"reads channel {name}", why, step, "no consumers")
    if idle:
        step = "Delete those that nobody needs: what is published from now on waits in them."
        yield Thing("channels", ("topics",)).note("have no consumer", f"{_listed(idle)}.", step)


def _gaps(bundle: Bundle, daemons: list[_Daemon]) -> Iterator[Finding]:
    down = {one.folder for one in daemons if one.error}
    names = {one.folder: one.address for one in daemons}
    missing = _by_value((one.folder, f"{one.asked}: {one.reason}")
                        for one in bundle.manifest.failures if one.folder not in down)  # fmt: skip
    for folder, reasons in sorted(missing.items()):
        lacks = f"lacks answers of {names.get(folder, folder or 'this machine')}"
        step = "Gather again, with more time if it was slow."
        yield Thing("the bundle", ()).note(lacks, f"{_listed(reasons)}.", step)


def _memory(machine: _Machine) -> Iterator[Finding]:
    memory, cgroup = machine.memory, machine.cgroup
    step = "Find what takes it (ps, systemd-cgtop); nsqd itself stays flat whatever the backlog."
    total, free = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
    if total and free < total * limits.BUNDLE_MEMORY_FREE_SHARE:
        why = f"{free / 1e6:,.0f} MB of {total / 1e6:,.0f} MB are available."
        yield Thing("this machine", ()).warn("runs out of memory", why, step)
    bound, used = cgroup.get("memory.max", ""), cgroup.get("memory.current", "")
    most = int(bound) * (1 - limits.BUNDLE_MEMORY_FREE_SHARE) if bound.isdecimal() else 0
    if most and used.isdecimal() and int(used) > most:
        why = f"{int(used) / 1e6:,.0f} MB of {int(bound) / 1e6:,.0f} MB are used."
        yield Thing("this container", ()).warn("runs out of memory", why, step)


def _by_value(pairs: Iterable[tuple[str, str]]) -> ByValue:
    found: ByValue = defaultdict(list)
    for value, at in pairs:
        found[value].append(at)
    return found


def _by_node(found: ByValue) -> str:
    return "; ".join(f"{value}: {_listed(at)}" for value, at in sorted(found.items())) + "."
