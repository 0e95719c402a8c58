"""What nsqlookupd says of a cluster: the registry that its metadata feeds, answers that wait for a
leader, and changes that are passed on."""

import asyncio
import json
from typing import Any

import pytest

from net.scripted import Daemons
from penstock.cluster import keys
from penstock.cluster.coordinator import Delete, Put, Transaction
from penstock.cluster.documents import (
    CHANNEL,
    CLUSTER,
    NODE,
    RECORD,
    TOPIC,
    Channel,
    Cluster,
    Lookup,
    NodeDocument,
    Topic,
)
from penstock.errors import FetchFailed
from penstock.limits import ABSENCE_GRACE_NS, CONTROLLER_SETTLE_NS, NODE_LEASE_NS
from penstock.net.exchange import Request, Response
from penstock.net.outgoing import HttpAnswer
from penstock.nsqlookupd.cluster import ClusterLookup
from penstock.nsqlookupd.registry import Meta
from penstock.nsqlookupd.routes import Routes
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.store import Store

from .world import ABOUT, S, World

TICK_NS = S // 10
FOLLOWED_S = (NODE_LEASE_NS + ABSENCE_GRACE_NS) / S + 1  # then absence counts
LIFE, LATER_LIFE = 7, 8


class Desk(World):
    """One nsqlookupd and the coordinator, with nodes 1 to 3. `store`: with that of another one."""

    def __init__(self, store: Store | None = None, host: str = "l1") -> None:
        super().__init__()
        self.store = store or Store()
        if store is None:
            self.put(keys.CLUSTER, CLUSTER.encode(Cluster(0xC1, 1, 1, 0)))
            for number in (1, 2, 3):
                self.put_node(number)
        self.port, self.nsqds, self.faults = Port(self.store), Daemons(), list[Exception]()
        self.cluster = ClusterLookup(
            "test", Lookup(host, 4160, 4161, "1"), self.port, self.registry, self.clock,
            self.nsqds, self.faults.append,  # type: ignore[arg-type]
        )  # fmt: skip
        self.routes = Routes(self.registry, self.clock, lambda: 0, ABOUT, self.cluster)

    # --- the metadata ---

    def put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def delete(self, key: str) -> None:
        self.store.transact(Transaction((), (Delete(key),)))

    def put_node(self, number: int, incarnation: int = LIFE) -> None:
        node = NodeDocument(incarnation, f"h{number}", 4150, 4151, "r", 4154, "0.1.0", "z", 0, 0)
        self.put(keys.node(number), NODE.encode(node))

    def put_topic(
        self, *leaders: int | None, name: str = "t", identity: int = 5, deleted: bool = False,
        **settings: Any,
    ) -> None:  # fmt: skip
        """A partition for each of the leaders; None: it has none at present."""
        chosen = tuple(sorted(settings.items()))
        topic = Topic(identity, 3, max(len(leaders), 1), False, chosen, deleted, ())
        self.put(keys.topic(name), TOPIC.encode(topic))
        for number, leader in enumerate(leaders):
            self.put_leader(number, leader, name, identity)

    def put_leader(
        self,
        number: int,
        leader: int | None,
        name: str = "t",
        identity: int = 5,
        incarnation: int = LIFE,
    ) -> None:
        entry = self.store.entries.get(keys.partition(name, number))
        known = RECORD.decode("", entry.value) if entry is not None else None
        epoch = known.epoch + 1 if known is not None else 1
        members = tuple(Member(node, node, 1) for node in (1, 2, 3))
        leader_id = LeaderId(leader, incarnation, leader) if leader is not None else None
        record = PartitionRecord(identity, epoch, leader_id, members, 2, (1, 2, 3))
        self.put(keys.partition(name, number), RECORD.encode(record))

    def put_channel(self, name: str, identity: int = 5, deleted: bool = False) -> None:
        self.put(keys.channel("t", name), CHANNEL.encode(Channel(identity, 1, False, (), deleted)))

    # --- the nsqlookupd ---

    def run(self, seconds: float = 0.5) -> None:
        asyncio.run(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.pass_ns(TICK_NS)
            now_ns = self.clock.mono_ns()
            self.store.run_out(now_ns)
            self.port.run(now_ns)
            await self.cluster.look()
            await asyncio.sleep(0)
        self.registry.validate()

    def ask(self, target: str, method: str = "GET", fields: bytes = b"") -> list[Response]:
        """The answer, once there is one."""
        path, _, query = target.partition("?")
        answers: list[Response] = []
        request = Request(method, path, query.encode(), b"", "r", "1.1", True, False, fields)
        self.routes.serve(request, answers.append)
        return answers

    def get(self, target: str) -> Any:
        (answer,) = self.ask(target)
        return json.loads(answer.body) if answer.status == 200 else answer.status

    def hosts(self, target: str) -> list[str]:
        return [row["broadcast_address"] for row in self.get(target)["producers"]]

    def led(self, topic: str = "t") -> dict[str, str]:
        found = self.get(f"/lookup?topic={topic}")
        return {n: row["broadcast_address"] for n, row in found.get("partitions", {}).items()}

    async def change(self, target: str, fields: bytes = b"") -> Response:
        answers = self.ask(target, "POST", fields)
        for _ in range(50):
            await self._run(0.1)
            if answers:
                return answers[0]
        raise AssertionError("no answer")


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- what the metadata says ---


def test_each_partition_is_where_its_leader_is(desk: Desk) -> None:
    desk.put_channel("mail")
    desk.put_topic(1, 2, 1, extended=True, ordered=True, disable_channel_auto_create=True)
    desk.run()
    found = desk.get("/lookup?topic=t&metainfo=true")
    assert desk.hosts("/lookup?topic=t") == ["h1", "h2"]
    assert (desk.led(), found["channels"]) == ({"0": "h1", "1": "h2", "2": "h1"}, ["mail"])
    assert desk.registry.meta_of("t") == Meta(3, True, True, True, 3)
    assert found["meta"]["replica"] == 3
    nodes = desk.get("/nodes")["producers"]
    assert [(row["broadcast_address"], row["topics"]) for row in nodes] == [
        ("h1", ["t"]), ("h2", ["t"]), ("h3", []),
    ]  # fmt: skip
    desk.clock.pass_ns(3600 * S)  # nobody pings: that they live is in the metadata
    assert len(desk.get("/nodes")["producers"]) == 3


def test_leaders_move_and_nodes_come_and_go(desk: Desk) -> None:
    desk.put_topic(1, 2)
    desk.run(FOLLOWED_S)
    desk.put_leader(0, 3)
    desk.run()
    assert desk.led() == {"0": "h3", "1": "h2"}
    desk.delete(keys.node(2))
    desk.run()
    assert desk.registry.unled_ns("t") is not None
    assert desk.hosts("/nodes") == ["h1", "h3"]
    desk.put_node(2, LATER_LIFE)  # it has not been elected since
    desk.run()
    assert desk.registry.unled_ns("t", 1) is not None
    desk.put_leader(1, 2, incarnation=LATER_LIFE)
    desk.run()
    assert desk.led() == {"0": "h3", "1": "h2"}


def test_the_next_leader_is_listed_before_it_leads(desk: Desk) -> None:
    desk.put_topic(2)
    desk.put_channel("mail")
    desk.run(FOLLOWED_S)
    assert desk.hosts("/lookup?topic=t") == ["h1", "h2"]
    assert desk.hosts("/lookup?topic=t&partition=0") == ["h2"]
    assert desk.led() == {"0": "h2"}
    desk.delete(keys.node(1))
    desk.run()
    assert desk.hosts("/lookup?topic=t") == ["h2"]
    desk.put_node(1)
    desk.run()
    assert desk.hosts("/lookup?topic=t") == ["h1", "h2"]


def test_leftovers_of_a_deleted_topic_do_not_join_the_next(desk: Desk) -> None:
    desk.put_channel("old")
    desk.put_topic(1, 2)
    desk.run()
    desk.put_topic(deleted=True)
    desk.run()
    assert (desk.get("/topics"), desk.get("/lookup?topic=t")) == ({"topics": []}, 404)
    desk.put_topic(3, identity=6)  # of the old one partition 1 and a channel are still there
    desk.put_channel("new", identity=6)
    desk.run()
    assert desk.led() == {"0": "h3"}
    assert desk.get("/channels?topic=t") == {"channels": ["new"]}
    desk.put_channel("new", identity=6, deleted=True)
    desk.run()
    assert desk.get("/channels?topic=t") == {"channels": []}


def test_a_node_that_registers_too_is_listed_once(desk: Desk) -> None:
    desk.put_topic(2)
    desk.run()
    client = desk.identified(broadcast_address="h2")
    other = desk.identified("9.9.9.9:9", broadcast_address="no node of the cluster")
    client.feed(b"REGISTER t c\nREGISTER later\nREGISTER gone#ephemeral\n")
    desk.put_topic(1, name="later")
    desk.run()
    assert (desk.led("t"), desk.led("later")) == ({"0": "h2"}, {"0": "h1"})
    assert len(desk.get("/lookup?topic=later")["producers"]) == 1
    assert len(desk.get("/lookup?topic=gone%23ephemeral")["producers"]) == 1
    rows = {row["broadcast_address"]: row["topics"] for row in desk.get("/nodes")["producers"]}
    assert len(rows) == len(desk.get("/nodes")["producers"]) == 4
    assert rows["h2"] == ["gone#ephemeral", "t"]
    assert desk.registry.unled_ns("t") is None
    for one in (client, other):
        one.lost()
    desk.run()
    assert len(desk.get("/nodes")["producers"]) == 3
    assert desk.registry.unled_ns("t", 0) is not None  # it may have died: a lookup waits


# --- while there is no leader, or no etcd ---


def test_a_lookup_waits_for_the_next_leader(desk: Desk) -> None:
    desk.put_topic(1, 2)
    desk.put_topic(3, name="other")
    desk.run()
    desk.put_leader(1, None)
    desk.run()
    answers = desk.ask("/lookup?topic=t")
    assert desk.led("other") == {"0": "h3"}  # at once, as is the partition that is led
    assert len(desk.get("/lookup?topic=t&partition=0")["producers"]) == 1
    desk.run(2)
    assert answers == []
    desk.put_leader(1, 3)
    desk.run(0.3)
    (answer,) = answers
    assert list(json.loads(answer.body)["partitions"]) == ["0", "1"]


def test_it_waits_for_three_seconds_at_most_after_the_loss(desk: Desk) -> None:
    """pynsq gives up after two: it would never find what is led, while something is not."""
    desk.put_topic(1, 2)
    desk.run(FOLLOWED_S)
    desk.delete(keys.node(2))
    desk.run(0.2)
    answers = desk.ask("/lookup?topic=t")
    desk.run(2.7)
    assert answers == []
    desk.run(0.4)
    assert list(json.loads(answers[0].body)["partitions"]) == ["0"]
    assert desk.led() == {"0": "h1"}  # at once
    desk.put_leader(0, None)
    desk.run(0.2)
    assert desk.ask("/lookup?topic=t") == []  # there is a new one to wait for
    assert desk.ask("/lookup?topic=t&partition=1") != []
    assert desk.get("/lookup?topic=none") == 404


def test_without_etcd_ping_says_so_and_the_rest_goes_on(desk: Desk) -> None:
    desk.port.is_cut = True
    desk.run(3)
    (refused,) = desk.ask("/lookup?topic=t")  # nobody knows whether there is one
    assert (refused.status, b"not known yet: no answer" in refused.body) == (503, True)
    desk.port.is_cut = False
    desk.put_topic(1)
    desk.run(2)
    assert desk.get("/info")["cluster"] == {"name": "test", "uuid": f"{0xC1:032x}"}
    desk.port.is_cut = True
    desk.run(9)
    assert desk.ask("/ping")[0].body == b"OK"
    desk.run(14)
    (ping,) = desk.ask("/ping")
    assert ping.status == 500
    assert ping.body.startswith(b"NOK - etcd has not been followed for ")
    assert desk.led() == {"0": "h1"}
    desk.port.is_cut = False
    desk.run(3)
    assert desk.ask("/ping")[0].status == 200


def test_an_outage_of_etcd_that_ends_the_leases_drops_nobody(desk: Desk) -> None:
    desk.put_topic(1, 2)
    desk.run(FOLLOWED_S)
    desk.port.is_cut = True
    desk.run(5)
    for number in (1, 2, 3):
        desk.delete(keys.node(number))
    desk.port.is_cut = False
    desk.run(4)
    assert desk.led() == {"0": "h1", "1": "h2"}
    desk.put_node(1)
    desk.run(FOLLOWED_S)
    assert [row["broadcast_address"] for row in desk.get("/nodes")["producers"]] == ["h1"]
    assert desk.registry.unled_ns("t", 1) is not None


def test_each_nsqlookupd_lists_all_and_names_the_same_leader(desk: Desk) -> None:
    desk.run(3)
    second = Desk(desk.store, "l2")
    second.clock.pass_ns(desk.clock.mono_ns() - second.clock.mono_ns())
    second.run(3)
    desk.run()
    found = desk.get("/listlookup")
    assert found == second.get("/listlookup")
    assert [row["ID"] for row in found["lookupdnodes"]] == ["l1:4160", "l2:4160"]
    assert found["lookupdleader"]["ID"] == "l1:4160"
    second.run(6)  # the first one has not kept its lease meanwhile
    assert second.get("/listlookup")["lookupdleader"]["ID"] == "l2:4160"


# --- changes ---

SECRET = b"\r\nauthorization: Bearer s3cret"


def test_a_change_is_passed_on_to_a_node_that_can_be_reached(desk: Desk) -> None:
    desk.put_topic(2, name="there")
    desk.run()

    def made() -> HttpAnswer:
        desk.put_topic(3, 1)
        return HttpAnswer(200, b"", {})

    desk.nsqds.answers = [FetchFailed("u", "refused", sent=False), made]
    answer = asyncio.run(desk.change("/topic/create?topic=t&partition_num=2&extend=a%26b", SECRET))
    assert answer.status == 200
    assert desk.led() == {"0": "h3", "1": "h1"}  # whoever looks next finds it
    query = "/topic/create?topic=t&partition_num=2&extend=a%26b"
    assert [url for url, _, _ in desk.nsqds.asked] == [
        f"POST http://h1:4151{query}", f"POST http://h2:4151{query}"
    ]  # fmt: skip
    assert desk.nsqds.asked[0][2] == "Bearer s3cret"
    refusal = HttpAnswer(409, b'{"message":"NO"}', {"content-type": "application/json"})
    desk.nsqds.answers = [refusal]
    answer = asyncio.run(desk.change("/topic/partition/expand?topic=there&partition_num=1"))
    assert (answer.status, answer.body) == (409, b'{"message":"NO"}')
    assert desk.nsqds.asked[-1][0].startswith("POST http://h2:")  # its leader


def test_a_channel_of_a_topic_that_is_not_there_is_refused_by_a_node(desk: Desk) -> None:
    desk.run()
    desk.nsqds.answers = [HttpAnswer(404, b'{"message":"TOPIC_NOT_FOUND"}', {})]
    answer = asyncio.run(desk.change("/channel/create?topic=none&channel=c"))
    assert (answer.status, answer.body) == (404, b'{"message":"TOPIC_NOT_FOUND"}')


def test_a_deletion_through_another_nsqlookupd_counts(desk: Desk) -> None:
    desk.put_topic(2)
    desk.run()
    desk.nsqds.answers = [HttpAnswer(404, b'{"message":"TOPIC_NOT_FOUND"}', {})]
    answer = asyncio.run(desk.change("/topic/delete?topic=t"))
    assert (answer.status, answer.body) == (200, b"")


def test_a_request_that_may_have_arrived_is_not_repeated(desk: Desk) -> None:
    desk.put_topic(2)
    desk.run()
    desk.nsqds.answers = [FetchFailed("u", "timed out")]
    answer = asyncio.run(desk.change("/channel/create?topic=t&channel=c"))
    document = json.loads(answer.body)
    assert (answer.status, document["changed"]) == (503, "unknown")
    for number in (1, 2, 3):
        desk.delete(keys.node(number))
    desk.run()
    answer = asyncio.run(desk.change("/topic/delete?topic=t"))
    assert (answer.status, b"can be reached: none is alive" in answer.body) == (503, True)
    assert len(desk.nsqds.asked) == 1


def test_other_topics_are_registered_at_the_nsqlookupd(desk: Desk) -> None:
    desk.run()
    assert desk.ask("/topic/create?topic=t%23ephemeral", "POST")[0].status == 200
    assert desk.get("/topics") == {"topics": ["t#ephemeral"]}
    assert desk.ask("/topic/delete?topic=t%23ephemeral", "POST")[0].status == 200
    for target, status in (
        ("/topic/delete?topic=none", 200),
        ("/topic/partition/expand?topic=none&partition_num=2", 404),
        ("/topic/create?topic=a$", 400),
        ("/channel/create?topic=t", 400),
    ):
        assert desk.ask(target, "POST")[0].status == status, target
    assert desk.nsqds.asked == []


# --- the controller as an nsqlookupd runs it: who holds the key, and what it writes ---


SETTLED_S = CONTROLLER_SETTLE_NS / S + 2


def test_one_nsqlookupd_acts_and_another_takes_over() -> None:
    one = Desk()
    other = Desk(one.store, "l2")
    for _ in range(round(SETTLED_S)):
        one.run(1)
        other.run(1)
    acts = one.cluster.controller.acts
    assert acts is not other.cluster.controller.acts
    left = other if acts else one
    left.run(2 * SETTLED_S)  # the lease of the one that acts runs out
    assert left.cluster.controller.acts
