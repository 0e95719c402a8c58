"""Every client connection of every nsqd, polled only while a page shows them.

`Connections` rides on the watch: with each of its looks it asks the nodes that answer, if there is
a listener and the last answer was cheap enough, and gives everybody the same rows. A row is a value
that a table shows; one that has not changed is equal to the one before, so that only the others are
sent to a browser.

Our nsqd tells in `/connections`, in few bytes, also of those that neither read nor have published.
The official one has no such route: of it `/stats` with its clients is taken.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.nsqadmin.snapshot import Snapshot
from penstock.nsqadmin.upstream import NOT_OF_NSQ, Upstream
from penstock.nsqadmin.watch import Errand, Listeners, Watch

log = logging.getLogger("penstock.nsqadmin.connections")

Row = dict[str, Any]

CONSUMER, PRODUCER, BOTH, IDLE = "consumer", "producer", "both", "idle"
KINDS = (CONSUMER, PRODUCER, BOTH, IDLE)
_NOT_FOUND = 404
_TOOK_GROWTH = 1.25  # from answer to answer
_STATS = {"format": "json", "include_clients": "true", "include_mem": "false"}


class Connections:
    def __init__(self, upstream: Upstream, watch: Watch) -> None:
        self._upstream = upstream
        self._listeners = Listeners[list[Row]](lambda: self._on_snapshot(watch.latest))
        self.listen, self.ready = self._listeners.add, self._listeners.ready
        self._without_route: set[str] = set()  # nsqds that only have /stats
        self._look = Errand()
        self._nodes: dict[str, _Node] = {}
        self.latest: list[Row] = []
        watch.listen(self._on_snapshot)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        if not self._listeners:  # no page shows them any more: nothing is kept
            self.latest, self._nodes, self._look.due_s = [], {}, 0.0
            self._listeners.first.clear()
        elif self._look.is_due() and snapshot.nodes:
            self._look.begin(self._ask(snapshot))

    async def _ask(self, snapshot: Snapshot) -> None:
        await asyncio.gather(*(self._ask_node(one.address) for one in snapshot.nodes.values()
                               if one.is_up))  # fmt: skip
        for at in list(self._nodes):
            if at not in snapshot.nodes:
                del self._nodes[at]
            elif not snapshot.nodes[at].can_be_asked:
                self._nodes[at].grow_old()
        if not self._listeners:
            return  # the last one has left meanwhile
        took_s = max((one.took_s for one in self._nodes.values()), default=0.0)
        pause_s = min(took_s * limits.ADMIN_POLL_SHARE, limits.ADMIN_POLL_S_MAX)
        self._look.due_s = self._look.begun_s + pause_s
        self.latest = [row for at in sorted(self._nodes) for row in self._nodes[at].rows.values()]
        self._listeners.first.set()
        self._listeners.send(self.latest)

    async def _ask_node(self, address: str) -> None:
        begun_s = time.monotonic()
        known = self._nodes.get(address)
        try:
            found = await self._of_node(address)
            now_s = time.monotonic()
            rows = make_rows(address, found, known.rows if known else {},
                             now_s - known.at_s if known else 0.0)  # fmt: skip
        except (PenstockError, *NOT_OF_NSQ) as error:
            log.debug("%s does not tell of its connections: %s", address, error)
            if known is not None:
                known.grow_old()
            return  # the banner says who does not answer; what it said last stays
        took_s = now_s - begun_s
        if known is not None:  # a short one shows what it costs, a long one how busy all were
            took_s = min(took_s, known.took_s * _TOOK_GROWTH)
        self._nodes[address] = _Node(rows, now_s, took_s)

    async def _of_node(self, address: str) -> list[Row]:
        if address not in self._without_route:
            try:
                return list((await self._upstream.get(address, "/connections"))["connections"])
            except FetchFailed as error:
                if error.status != _NOT_FOUND:
                    raise
                self._without_route.add(address)
        return from_stats(await self._upstream.get(address, "/stats", _STATS))


@dataclass
class _Node:
    rows: dict[str, Row]
    at_s: float
    took_s: float

    def grow_old(self) -> None:
        """Its node is silent: the last answer stays, marked as stale."""
        self.rows = {key: row | {"stale": True, "rate": 0.0} for key, row in self.rows.items()}


def from_stats(document: Mapping[str, Any]) -> list[Row]:
    """From the `/stats` of an official nsqd, in the form of `/connections`."""
    found: dict[str, Row] = {}
    for topic in document.get("topics") or ():
        for channel in topic.get("channels") or ():
            for row in channel.get("clients") or ():
                names = {"topic": topic["topic_name"], "channel": channel["channel_name"]}
                found[_of_stats(row)] = row | names
    for row in document.get("producers") or ():
        key = _of_stats(row)
        found[key] = row | found[key] if key in found else row
        found[key]["pub_counts"] = row.get("pub_counts")
    return [row | {"serial": key} for key, row in found.items()]


def _of_stats(row: Row) -> str:
    return f"{row.get('remote_address', '')} {row.get('connect_ts', 0)} {row.get('client_id', '')}"


def make_rows(
    node: str, found: Iterable[Row], before: Mapping[str, Row], span_s: float
) -> dict[str, Row]:
    """By key. `before` is this old; a new connection has no rate yet."""
    rows = {}
    for one in found:
        key = f"{node} {one.get('serial', '')}"
        rows[key] = _row(key, node, one, before.get(key), span_s)
    return rows


def _row(key: str, node: str, one: Row, before: Row | None, span_s: float) -> Row:
    counts = one.get("pub_counts") or ()
    published = sum(int(count.get("count") or 0) for count in counts)
    reads = str(one.get("channel") or "")
    received = int(one.get("message_count") or 0) if reads else 0
    rate = 0.0
    if before is not None and span_s > 0:
        rate = (published + received - before["published"] - before["received"]) / span_s
    return {
        "key": key,
        "kind": _kind(bool(reads), published > 0),
        "client": _client(one),
        "remote": str(one.get("remote_address") or "unix socket"),
        "agent": str(one.get("user_agent") or ""),
        "reads": f"{one.get('topic', '')}/{reads}" if reads else "",
        "topic": str(one.get("topic", "")) if reads else "",
        "channel": reads,
        "writes": ", ".join(str(count.get("topic", "")) for count in counts),
        "node": node,
        "in_flight": int(one.get("in_flight_count") or 0),
        "ready": int(one.get("ready_count") or 0),
        "finished": int(one.get("finish_count") or 0),
        "requeued": int(one.get("requeue_count") or 0),
        "received": received,
        "published": published,
        "rate": round(max(rate, 0.0), 1),
        "transport": transport(one),
        "since": int(one.get("connect_ts") or 0),
    }


def _kind(reads: bool, writes: bool) -> str:
    if reads:
        return BOTH if writes else CONSUMER
    return PRODUCER if writes else IDLE


def _client(one: Row) -> str:
    """Its name: the host, and the id if that adds something."""
    host, name = str(one.get("hostname") or ""), str(one.get("client_id") or "")
    if not host or not name or host == name or host.split(".")[0] == name:
        return host or name
    return f"{name} ({host})"


def transport(one: Row) -> str:
    """The options of a connection beside TCP, and its throttling."""
    found = []
    if one.get("tls"):
        found.append(f"{one.get('tls_version') or 'TLS'} {one.get('tls_cipher_suite', '')}".strip())
    found += [key for key in ("snappy", "deflate") if one.get(key)]
    if one.get("sample_rate"):
        found.append(f"{one['sample_rate']} % sampled")
    if one.get("authed"):
        found.append(f"authed {one.get('auth_identity', '')}".strip())
    found += [str(one[key]) for key in ("topology_region", "topology_zone") if one.get(key)]
    return ", ".join(found)
