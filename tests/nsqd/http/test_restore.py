"""`GET /cluster/memory` and `POST /cluster/restore`: metadata is made from what nodes know."""

import json
from typing import Any

import msgspec
import pytest

from penstock.broker.topics.settings import ChannelSettings, TopicSettings
from penstock.broker.topics.topic_file import ChannelEntry
from penstock.cluster import keys
from penstock.cluster.coordinator import KeyPage, Put, Reading, Transaction
from penstock.cluster.documents import (
    ACTIVE,
    CHANNEL,
    CLUSTER,
    DRAINING,
    MEMBERSHIP,
    NODE,
    RECORD,
    TOPIC,
    Channel,
    Cluster,
    Membership,
    NodeDocument,
    Topic,
)
from penstock.cluster.metadata_topics import (
    CREATED,
    EXTENDED,
    as_settings,
    channel_document,
    cluster_topic,
)
from penstock.cluster.view import View
from penstock.net.api import HttpError
from penstock.net.exchange import Request, Response
from penstock.nsqd.cluster_state import change_node
from penstock.nsqd.http.restore import Restoring, memory_document, memory_of
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.store import Store

SETTINGS = as_settings(TopicSettings(durability="disk"), **{CREATED: 5, EXTENDED: True})
ORDERS = Topic(7, 3, 1, True, SETTINGS, False, ())
WORK = Channel(7, 4, False, as_settings(ChannelSettings(), **{CREATED: 6}), False)
MEMBERS = Member(1, 101, 1), Member(2, 102, 1)
LED = PartitionRecord(7, 5, LeaderId(1, 11, 101), MEMBERS, 2, (1, 2))
PLACE = keys.PartitionName("orders", 0)


ROW = {"revision": 1, "created": 1, "document": {}}
NOTHING: dict[str, Any] = {"records": {}, "topics": {}, "channels": {}}


def memory(**given: Any) -> bytes:
    """A body with one node's answer."""
    one = {"node": 1, "uuid": "9", "revision": 1, "restorations": 0, **NOTHING, **given}
    return json.dumps({"memories": [one]}).encode()


class Desk:
    """Node 1, whose view has a topic; etcd can lose it."""

    def __init__(self) -> None:
        self.store = Store()
        self.view = View()
        self.put(keys.CLUSTER, CLUSTER.encode(Cluster(9, 1, 1, 0)))
        self.put(keys.topic("orders"), TOPIC.encode(ORDERS))
        self.put(keys.channel("orders", "work"), CHANNEL.encode(WORK))
        self.put(keys.partition(*PLACE), RECORD.encode(LED))
        self.view.meet(Reading(self.store.revision, self.store.entries[keys.CLUSTER]))
        self.view.page(KeyPage(self.store.revision, tuple(self.store.entries.values()), True))
        self.view.apply(10)
        self.memories = [
            json.loads(msgspec.json.encode(memory_document(node, self.view, ()))) for node in (1, 2)
        ]

    def put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def lose(self) -> None:
        self.store = Store()

    def restore(self, query: str = "", body: bytes | None = None) -> tuple[int, Any]:
        answers: list[Response] = []
        port = Port(self.store)
        data = json.dumps({"memories": self.memories}).encode() if body is None else body
        path = "/cluster/restore"
        request = Request("POST", path, query.encode(), data, "r", "1.1", True, False, b"")
        try:
            Restoring(1, self.view, {}, port).table()[path].serve(request, answers.append)
        except HttpError as error:
            return error.status, error.details["reason"]
        for _ in range(9):
            port.run(0)
        (answer,) = answers
        return answer.status, json.loads(answer.body)

    def document(self, key: str) -> bytes:
        return self.store.entries[key].value


def test_lost_records_are_restored() -> None:
    desk = Desk()
    desk.lose()
    status, plan = desk.restore("apply=true")
    assert (status, plan["applied"], plan["put"]) == (200, True, [["orders", 0]])
    assert (plan["topics"], plan["channels"]) == (["orders"], [["orders", "work"]])
    assert RECORD.decode("", desk.document(keys.partition(*PLACE))) == LED
    assert TOPIC.decode("", desk.document(keys.topic("orders"))) == ORDERS
    assert CLUSTER.decode("", desk.document(keys.CLUSTER)) == Cluster(9, 1, 1, 1)


def test_a_node_reports_its_records() -> None:
    desk, answers, path = Desk(), list[Response](), "/cluster/memory"
    request = Request("GET", path, b"", b"", "r", "1.1", True, False)
    Restoring(1, desk.view, {}, Port(desk.store)).table()[path].serve(request, answers.append)
    assert json.loads(answers[0].body) == desk.memories[0]


def test_a_node_that_is_silent_is_waited_for_unless_it_is_lost() -> None:
    desk = Desk()
    desk.lose()
    desk.memories = desk.memories[:1]
    status, plan = desk.restore("lost=2")
    assert (status, plan["applied"], plan["put"]) == (200, False, [["orders", 0]])
    assert desk.store.entries == {}  # a plan changes nothing
    _, plan = desk.restore("apply=true")
    (left,) = plan["left"]
    assert left["reason"] == (
        "nodes 2 have not reported, and may know of later changes: start them, and give the HTTP "
        "addresses of all nodes"
    )


@pytest.mark.parametrize(
    ("query", "body", "reason"),
    [
        ("", b"x", "not what GET /cluster/memory answers"),
        ("", b"[" * 100_000, "not what GET /cluster/memory answers"),
        ("", b'{"memories": [{"node": 1}]}', "missing required field `uuid`"),
        ("", b'{"memories": []}', "length >= 1 - at `$.memories`"),
        ("", memory(records=[1]), "Expected `object`, got `array`"),
        ("", memory(uuid="no number"), "invalid literal"),
        ("", memory(records={"x": ROW}), "x: a partition's key"),
        ("", memory(topics={"topics/": ROW}), "topics/: a name follows the prefix"),
        ("", memory(topics={"topics/a": ROW}), "topics/a"),
        ("lost=x", None, "lost 'x': numbers of nodes are needed"),
    ],
)
def test_invalid_requests_are_refused(query: str, body: bytes | None, reason: str) -> None:
    status, reply = Desk().restore(query, body)
    assert status == 400
    assert reason in reply


def test_topics_missing_in_the_view_come_from_the_files() -> None:
    """As where the node was started after etcd had lost everything."""
    desk = Desk()
    file = cluster_topic("orders", ORDERS, 1)
    file.channels.append(ChannelEntry("work", 4, 6))
    records = {PLACE: desk.view.partitions[PLACE]}
    memory = memory_of(memory_document(1, View(desk.view.remembered, records), [file]))
    assert memory.topics == {"orders": ORDERS._replace(replicas=2)}
    assert memory.channels[keys.ChannelName("orders", "work")].document == WORK
    assert memory.records == records


def test_a_channel_as_it_stands_on_disk() -> None:
    entry = ChannelEntry("work", 4, 6, True, skipped_partitions=[0, 5], skips_tests=True)
    found = channel_document(entry, 7)
    assert (found.number, found.paused) == (4, True)
    assert dict(found.settings).items() >= {"skipped_partitions": "21", "skips_tests": True}.items()


# --- `POST /cluster/node`: what an operator wants of a node ---


class NodesDesk:
    """A cluster whose node 2 has an entry, as one of its nodes knows it."""

    def __init__(self) -> None:
        self.store = Store()
        self.port = Port(self.store)
        self.view = View()
        self.put(keys.member(2), MEMBERSHIP.encode(Membership(2, 1, "", 0, 7, 0, ACTIVE)))

    def put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))
        self.view.page(KeyPage(self.store.revision, tuple(self.store.entries.values()), True))
        self.view.apply(10)

    def ask(self, query: str) -> tuple[int, str]:
        """The status, and the code with its reason."""
        answers: list[Response] = []
        path, data = "/cluster/node", query.encode()
        request = Request("POST", path, data, b"", "r", "1.1", True, False, b"")
        try:
            change_node(self.view, self.port, request, answers.append)
        except HttpError as error:
            return error.status, f"{error.code}: {error.details['reason']}"
        self.port.run(0)
        self.port.run(0)
        (answer,) = answers
        return answer.status, json.loads(answer.body)["message"] if answer.body else ""

    @property
    def state(self) -> str:
        return MEMBERSHIP.decode("", self.store.entries[keys.member(2)].value).state


@pytest.fixture
def desk() -> NodesDesk:
    return NodesDesk()


def test_the_state_goes_into_the_metadata(desk: NodesDesk) -> None:
    assert desk.ask("node=2&state=draining") == (200, "")
    assert desk.state == DRAINING


def test_invalid_states_are_named(desk: NodesDesk) -> None:
    asked = [
        desk.ask(query) for query in ("node=x&state=draining", "node=2", "node=3&state=active")
    ]
    assert asked == [
        (400, "INVALID_NODE: node 'x': a number is needed"),
        (400, "INVALID_STATE: state '': one of active, maintenance, draining, removed"),
        (404, "NODE_NOT_FOUND: the cluster has no node 3"),
    ]
    assert desk.state == ACTIVE


def test_a_node_is_removed_when_it_holds_no_replica(desk: NodesDesk) -> None:
    node = NodeDocument(7, "h", 1, 2, "h", 3, "1", "", 0, 0)
    record = PartitionRecord(5, 1, None, (Member(2, 2, 1),), 1, (2,))
    desk.put(keys.partition("t", 0), RECORD.encode(record))
    reason = "node 2 has a replica of t/0: drain it first"
    assert desk.ask("node=2&state=removed") == (409, f"NODE_HAS_REPLICAS: {reason}")
    desk.put(keys.member(2), MEMBERSHIP.encode(Membership(2, 1, "", 0, 7, 0, DRAINING)))
    reason = "node 2 has a replica of t/0: add a node that takes it"
    assert desk.ask("node=2&state=removed") == (409, f"NODE_HAS_REPLICAS: {reason}")
    desk.put(keys.node(2), NODE.encode(node))
    reason = "node 2 lives: stop it first"
    assert desk.ask("node=2&state=removed") == (409, f"NODE_LIVES: {reason}")
    assert desk.state == DRAINING


def test_a_change_by_another_meanwhile_is_not_overwritten(desk: NodesDesk) -> None:
    other = MEMBERSHIP.encode(Membership(2, 2, "", 0, 8, 0, ACTIVE))
    desk.store.transact(Transaction((), (Put(keys.member(2), other),)))  # not seen here yet
    assert desk.ask("node=2&state=draining") == (409, "NODE_CHANGED")
    assert desk.state == ACTIVE
