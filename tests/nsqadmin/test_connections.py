"""Connections as rows of a table, and that nobody is asked for them while nobody looks."""

from typing import Any

from penstock.errors import FetchFailed
from penstock.nsqadmin.connections import Connections, Row, from_stats, make_rows
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import NsqdAddress
from penstock.nsqadmin.watch import Watch

from .saying import Saying

NODE = "10.0.0.1:4151"
CONSUMER = {
    "serial": 1, "client_id": "till-7", "hostname": "till-7.shop", "remote_address": "10.0.0.7:5",
    "user_agent": "go-nsq/1.1.0", "connect_ts": 100, "topic": "orders", "channel": "mail",
    "ready_count": 10, "in_flight_count": 3, "message_count": 50, "finish_count": 40,
    "requeue_count": 7, "snappy": True, "tls": True, "tls_version": "tls1.3",
}  # fmt: skip
PRODUCER = {
    "serial": 2, "client_id": "web", "hostname": "h", "remote_address": "", "connect_ts": 100,
    "pub_counts": [{"topic": "bills", "count": 4}, {"topic": "orders", "count": 16}],
}  # fmt: skip


def row(one: dict[str, Any], before: dict[str, Row] | None = None, span_s: float = 0.0) -> Row:
    (found,) = make_rows(NODE, [one], before or {}, span_s).values()
    return found


def test_a_consumer() -> None:
    found = row(CONSUMER)
    assert (found["kind"], found["reads"], found["client"]) == (
        "consumer", "orders/mail", "till-7.shop",
    )  # fmt: skip
    assert [found[key] for key in ("in_flight", "ready", "finished", "requeued", "received")] == [
        3, 10, 40, 7, 50,
    ]  # fmt: skip
    assert (found["transport"], found["rate"]) == ("tls1.3, snappy", 0.0)


def test_a_producer_and_both_and_neither() -> None:
    found = row(PRODUCER)
    assert (found["kind"], found["writes"], found["published"]) == ("producer", "bills, orders", 20)
    assert (found["remote"], found["client"]) == ("unix socket", "web (h)")
    assert row(CONSUMER | {"pub_counts": PRODUCER["pub_counts"]})["kind"] == "both"
    assert row({"serial": 3})["kind"] == "idle"


def test_a_rate_is_the_change_since_the_last_reading_and_never_negative() -> None:
    before = make_rows(NODE, [CONSUMER], {}, 0.0)
    assert row(CONSUMER | {"message_count": 60}, before, 4.0)["rate"] == 2.5
    assert row(CONSUMER | {"message_count": 1}, before, 4.0)["rate"] == 0.0
    assert row(CONSUMER, before, 4.0) == next(iter(before.values()))


def test_connections_of_an_official_nsqd_come_from_its_stats() -> None:
    client = {key: value for key, value in CONSUMER.items() if key not in ("serial", "topic")}
    channel = {"channel_name": "mail", "clients": [client]}
    document = {
        "topics": [{"topic_name": "orders", "channels": [channel]}],
        "producers": [client | {"pub_counts": [{"topic": "a", "count": 2}]}, PRODUCER],
    }
    rows = make_rows(NODE, from_stats(document), {}, 0.0)
    assert [(one["kind"], one["published"]) for one in rows.values()] == [
        ("both", 2), ("producer", 20),
    ]  # fmt: skip
    assert from_stats({"topics": None, "producers": None}) == []


class _Watch(Watch):
    """Looks when it is told to."""

    def __init__(self) -> None:
        self.listening: list[Any] = []
        producer = NsqdAddress("h", "10.0.0.1", 4150, 4151, "1")
        self.latest = Snapshot(1.0, {NODE: NodeState(NODE, producer)})

    def listen(self, listener: Any) -> Any:
        self.listening.append(listener)
        return lambda: self.listening.remove(listener)


def ours(address: str, path: str) -> Any:
    return {"connections": [CONSUMER]}


def official(address: str, path: str) -> Any:
    if path == "/connections":
        return FetchFailed(address, "got response 404", 404)
    return {"topics": [], "producers": [PRODUCER]}


async def test_nodes_are_asked_only_while_somebody_looks() -> None:
    watch, upstream = _Watch(), Saying(ours)
    connections = Connections(upstream, watch)
    got: list[list[Row]] = []
    (look,) = watch.listening
    look(watch.latest)
    assert upstream.asked == []
    end, end_other = connections.listen(got.append), connections.listen(got.append)
    await connections.ready()
    assert upstream.asked == ["/connections"]  # once for both
    assert [len(rows) for rows in got] == [1, 1]
    end()
    end_other()
    look(watch.latest)
    assert (upstream.asked, connections.latest) == (["/connections"], [])


async def test_an_official_nsqd_is_asked_for_events_once() -> None:
    watch, upstream = _Watch(), Saying(official)
    connections = Connections(upstream, watch)
    for _ in range(2):
        end = connections.listen(lambda rows: None)
        await connections.ready()
        assert [one["kind"] for one in connections.latest] == ["producer"]
        end()
        watch.listening[0](watch.latest)
    assert upstream.asked == ["/connections", "/stats", "/stats"]


async def test_a_foreign_server_keeps_nobody_from_being_shown() -> None:
    other = "10.0.0.2:80"
    watch, upstream = _Watch(), Saying(lambda at, path: {} if at == other else ours(at, path))
    watch.latest.nodes[other] = NodeState(other, NsqdAddress("x", "10.0.0.2", 0, 80, ""))
    connections = Connections(upstream, watch)
    connections.listen(lambda rows: None)
    await connections.ready()
    assert [one["node"] for one in connections.latest] == [NODE]


async def test_a_foreign_server_is_not_among_the_nodes() -> None:
    other, info = "10.0.0.2:80", {"hostname": "h", "http_port": 4151}
    stats = {other: {"topics": [5]}, NODE: {"topics": [{"topic_name": "orders"}]}}
    upstream = Saying(lambda at, path: info if path == "/info" else stats[at])
    upstream.lookupds, upstream.nsqds = (), (NODE, other)
    found, warning = await upstream.producers()
    assert [one.address for one in found] == [NODE]
    assert warning.startswith(f"WARNING: {other} does not answer as NSQ does")
    assert await upstream.topics() == (["orders"], warning)


async def test_connections_of_a_silent_node_stay() -> None:
    watch, upstream = _Watch(), Saying(ours)
    connections = Connections(upstream, watch)
    connections.listen(lambda rows: None)
    await connections.ready()
    watch.latest.nodes[NODE].error = "timed out"
    await connections._ask(watch.latest)
    (found,) = connections.latest
    assert (found["channel"], found["stale"]) == ("mail", True)
