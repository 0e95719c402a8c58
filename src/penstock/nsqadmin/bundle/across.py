"""Rules that look at several daemons at once: what differs, and who knows whom.

| rule           | when                                                                   | level |
|----------------|------------------------------------------------------------------------|-------|
| lookupd down   | an nsqlookupd does not answer                                          | bad   |
| nobody         | no daemon answered, or none was asked                                  | bad   |
| restarted      | an nsqd started anew between the two samples                           | bad   |
| unhealthy      | /ping says so                                                          | bad   |
| versions       | nodes have different versions                                          | warn  |
| clocks         | clocks are apart                                                       | warn  |
| config         | nsqds differ in what their users rely on                               | warn  |
| config, rest   | nsqds differ in other values                                           | note  |
| same id        | two nsqds have one node id                                             | warn  |
| discovery      | an nsqlookupd knows a node or topic, and another does not              | warn  |
| not registered | an nsqd answers and no nsqlookupd knows it                             | warn  |
| not asked      | nsqds name nsqlookupds, and none was asked                             | note  |
| nobody reads   | a channel holds messages and has no consumer                           | warn  |
| no consumer    | a channel has no consumer, and nothing waits                           | note  |
| tombstones     | an nsqlookupd hides a topic of a node                                  | note  |
| incomplete     | a daemon that answers left something unanswered                        | note  |
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from penstock import limits
from penstock.broker.internal import is_internal
from penstock.nsqadmin import snapshot
from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.bundle.contents import Contents, Node, is_number, listed, rows, text, texts
from penstock.nsqadmin.words import wait

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


def findings(held: Contents) -> Iterator[Finding]:
    yield from _who_answers(held)
    for node in held.up():
        yield from _of_node(node)
    yield from _versions([*held.up(), *(one for one in held.lookupds if not one.error)])
    yield from _clocks(held)
    yield from _configs(held.up())
    yield from _discovery(held)
    yield from _consumers(held.up())
    yield from _gaps(held)


# --- who is there ---


def _who_answers(held: Contents) -> Iterator[Finding]:
    for one in held.lookupds:
        if one.error:
            step = "See whether the process runs and its port can be reached."
            yield Finding(
                Level.BAD, f"nsqlookupd {one.address} does not answer", f"{one.error}.", step, ()
            )
    if not held.nodes:
        step = "Name one with --nsqd-http-address, or an nsqlookupd that they register with."
        yield Finding(Level.BAD, "no nsqd was found", "Nothing can be said about any.", step, ())


def _of_node(node: Node) -> Iterator[Finding]:
    path, what = ("nodes", node.address), f"node {node.address}"
    status, _, said = node.health.partition(" ")
    if status not in ("200", ""):
        step = "Its log says more; a full or failing disk is the usual cause."
        yield Finding(Level.BAD, f"{what} is not healthy", said or status, step, path)
    starts = [one.get("start_time") for one in node.samples]
    if all(map(is_number, starts)) and starts[0] != starts[1]:
        why = "Between the two samples: something ends it and starts it again."
        step = "See its log, and the system's: out of memory, or a supervisor's check."
        yield Finding(Level.BAD, f"{what} has just started again", why, step, path)


def _versions(nodes: list[Node]) -> Iterator[Finding]:
    by_kind: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        if node.version:
            by_kind[node.kind][node.version].append(node.address)
    for kind, found in by_kind.items():
        if len(found) > 1:
            why = "; ".join(f"{version}: {listed(at)}" for version, at in sorted(found.items()))
            step = "Fine during an upgrade. Bring them to one version when it is done."
            yield Finding(
                Level.WARN, f"{kind}s have different versions", f"{why}.", step, ("nodes",)
            )


def _clocks(held: Contents) -> Iterator[Finding]:
    """Each against ours, which is no better than theirs; so what counts is how far they part."""
    known = [(one.clock_s, one) for one in (*held.nodes, *held.lookupds) if one.clock_s]
    if not known:
        return
    ours = [(clock, one.address) for clock, one in known] + [((0.0, 0.0), "where it was gathered")]
    (_, early), slow = min(ours, key=lambda one: one[0][1])
    (late, _), fast = max(ours, key=lambda one: one[0][0])
    if late - early > limits.BUNDLE_CLOCK_S:
        why = f"{fast} is at least {late - early:.1f} s ahead of {slow}."
        step = "Let NTP run everywhere (chrony, systemd-timesyncd): due times and ages need it."
        yield Finding(Level.WARN, "clocks are apart", why, step, ("nodes",))


# --- config ---


def _configs(nodes: list[Node]) -> Iterator[Finding]:
    told = [one for one in nodes if one.config]
    for key in sorted({key for one in told for key in one.config} - _OWN):
        values: dict[str, list[str]] = defaultdict(list)
        for one in told:
            if key in one.config:
                values[_shown(key, one.config[key])].append(one.address)
        if len(values) > 1:
            level = Level.WARN if key in _SHARED else Level.NOTE
            why = "; ".join(f"{value}: {listed(at)}" for value, at in sorted(values.items()))
            step = "Decide for one value: clients can't tell which node they are connected to."
            yield Finding(level, f"nsqds differ in {key}", f"{why}.", step, ("nodes",))
    yield from _same_id(told)


def _shown(key: str, value: Any) -> str:
    if key in _UNORDERED and isinstance(value, list):
        value = sorted(map(str, value))
    shown = value if isinstance(value, str) else json.dumps(value)
    return (shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…") or "(empty)"


def _same_id(nodes: list[Node]) -> Iterator[Finding]:
    found: dict[Any, list[str]] = defaultdict(list)
    for one in nodes:
        if is_number(one.config.get("id")):
            found[one.config["id"]].append(one.address)
    for number, at in found.items():
        if len(at) > 1:
            why = f"{listed(at)}: two messages may get one id."
            step = "Give each nsqd a -node-id of its own (0 to 1023)."
            yield Finding(Level.WARN, f"nsqds share the node id {number}", why, step, ("nodes",))


# --- discovery ---


def _discovery(held: Contents) -> Iterator[Finding]:
    told = [one for one in held.lookupds if not one.error]
    known = {one.address: {_address(row) for row in one.nodes} for one in told}
    topics = {one.address: set(one.topics) for one in told}
    yield from _apart(known, "node")
    yield from _apart(topics, "topic")
    everywhere = {address for found in known.values() for address in found}
    for node in held.up():
        if told and not is_registered(node, everywhere):
            why = "It answers, and no nsqlookupd that was asked knows it: consumers don't find it."
            step = "Look at its -lookupd-tcp-address and at its log."
            path = ("nodes", node.address)
            yield Finding(Level.WARN, f"node {node.address} is not registered", why, step, path)
    named = {one for node in held.up() for one in texts(node.config, "nsqlookupd_tcp_addresses")}
    if named and not held.lookupds:
        why = f"nsqds register with {listed(sorted(named))}."
        step = "Give --lookupd-http-address to have them looked at."
        yield Finding(Level.NOTE, "no nsqlookupd was asked", why, step, ())
    for one in told:
        yield from _tombstones(one)


def is_registered(node: Node, known: set[str]) -> bool:
    """By the address that it tells others."""
    host = text(node.info, "broadcast_address")
    return node.address in known or f"{host}:{node.info.get('http_port')}" in known


def _address(row: Any) -> str:
    return f"{row.get('broadcast_address')}:{row.get('http_port')}"


def _apart(found: dict[str, set[str]], kind: str) -> Iterator[Finding]:
    """One finding for each nsqlookupd that lacks something."""
    everything = {name for names in found.values() for name in names}
    for lookupd, names in found.items():
        missing = sorted(everything - names)
        if missing:
            others = listed(one for one, has in found.items() if has & set(missing))
            why = f"{listed(missing)}: known to {others}."
            step = "See whether nsqds reach it: consumers that ask only this one miss them."
            what = f"nsqlookupd {lookupd} misses {kind}s"
            yield Finding(Level.WARN, what, why, step, ("lookup",))


def _tombstones(lookupd: Node) -> Iterator[Finding]:
    for row in lookupd.nodes:
        flags = row.get("tombstones")
        dead = [name for name, flag in zip(texts(row, "topics"), flags or (), strict=False) if flag
                ] if isinstance(flags, list) else []  # fmt: skip
        if dead:
            address = _address(row)
            why = f"nsqlookupd {lookupd.address} leaves it out of lookups of {listed(dead)}."
            step = "It ends by itself after nsqlookupd's -tombstone-lifetime."
            what = f"node {address} has tombstones"
            yield Finding(Level.NOTE, what, why, step, ("nodes", address))


# --- channels, and what is missing ---


def _consumers(nodes: list[Node]) -> Iterator[Finding]:
    """Of all nodes together: a consumer on one of them is one."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    told: dict[tuple[str, str], str] = {}  # the dead-letter topics
    for node in nodes:
        for topic in rows(node.stats, "topics"):
            for channel in rows(topic, "channels"):
                names = (text(topic, "topic_name"), text(channel, "channel_name"))
                told[names] = text(channel, "dead_letter_topic") or told.get(names, "")
                sums = found[names]
                for at, key in enumerate(("client_count", "depth", "in_flight_count")):
                    value = channel.get(key)
                    sums[at] += value if isinstance(value, int) else 0
    idle = []
    holders = snapshot.holders((*names, dead) for names, dead in told.items())
    for (name, part), (clients, depth, in_flight) in sorted(found.items()):
        if clients or is_internal(name) or (name, part) in holders:
            continue
        if depth + in_flight:
            count = depth + in_flight
            why = f"It has no consumer, and {wait(count)}."
            step = (
                "Start its consumers; delete it if nobody wants its messages: they fill the disk."
            )
            path = ("topics", name, part)
            what = f"nobody reads channel {name}/{part}"
            yield Finding(Level.WARN, what, why, step, path)
        else:
            idle.append(f"{name}/{part}")
    if idle:
        step = "Delete those that nobody needs: what is published from now on waits in them."
        yield Finding(
            Level.NOTE, "channels have no consumer", f"{listed(idle)}.", step, ("topics",)
        )


def _gaps(held: Contents) -> Iterator[Finding]:
    down = {one.place for one in (*held.nodes, *held.lookupds) if one.error}
    missing: dict[str, list[str]] = defaultdict(list)
    for one in held.failures:
        if one.place not in down:
            missing[one.place].append(f"{one.asked}: {one.reason}")
    names = {one.place: one.address for one in (*held.nodes, *held.lookupds)}
    for place, reasons in sorted(missing.items()):
        what = f"the bundle lacks answers of {names.get(place, place or 'this machine')}"
        step = "Gather again, with more time if it was slow."
        yield Finding(Level.NOTE, what, f"{listed(reasons)}.", step, ())
