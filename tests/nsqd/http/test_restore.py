"""`GET /cluster/memory` and `POST /cluster/restore`: metadata is made from what nodes know."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from penstock.broker.settings import ChannelSettings, TopicSettings
from penstock.broker.topicfile import ChannelEntry
from penstock.cluster import keys
from penstock.cluster.coordinator import Page, Put, Reading, Transaction
from penstock.cluster.documents import CHANNEL, CLUSTER, RECORD, TOPIC, Channel, Cluster, Topic
from penstock.cluster.placed import CREATED, EXTENDED, as_settings, channel_document, placed_topic
from penstock.cluster.view import View
from penstock.net.api import HttpError
from penstock.net.exchange import Request, Response
from penstock.nsqd.http.restore import Restoring, memory_of, told_by
from penstock.replica.record import Member, Record, Seat
from sim.brokers.port import Port
from sim.store import Store

SETTINGS = as_settings(TopicSettings(durability="disk"), **{CREATED: 5, EXTENDED: True})
ORDERS = Topic(7, 3, 1, True, SETTINGS, False, ())
WORK = Channel(7, 4, False, as_settings(ChannelSettings(), **{CREATED: 6}), False)
MEMBERS = Member(1, 101, 1), Member(2, 102, 1)
LED = Record(7, 5, Seat(1, 11, 101), MEMBERS, 2, (1, 2))
PLACE = keys.PartitionName("orders", 0)


ROW = {"revision": 1, "created": 1, "document": {}}
NOTHING: dict[str, Any] = {"records": {}, "topics": {}, "channels": {}}


def told(**given: Any) -> bytes:
    """A body with one node's answer."""
    one = {"node": 1, "uuid": "9", "revision": 1, "restorations": 0, **NOTHING, **given}
    return json.dumps({"memories": [one]}).encode()


def as_json(told: Any) -> Any:
    return json.loads(msgspec.json.encode(told))


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
        self.view.page(Page(self.store.revision, tuple(self.store.entries.values()), True))
        self.view.apply(10)
        self.memories = [as_json(told_by(node, self.view, ())) for node in (1, 2)]

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


def test_what_was_lost_is_put_there_again() -> None:
    desk = Desk()
    desk.lose()
    status, plan = desk.restore("apply=true")
    assert (status, plan["applied"], plan["put"]) == (200, True, [["orders", 0]])
    assert (plan["topics"], plan["channels"]) == (["orders"], [["orders", "work"]])
    assert RECORD.decode("", desk.document(keys.partition(*PLACE))) == LED
    assert TOPIC.decode("", desk.document(keys.topic("orders"))) == ORDERS
    assert CLUSTER.decode("", desk.document(keys.CLUSTER)) == Cluster(9, 1, 1, 1)


def test_a_node_tells_what_it_knows() -> None:
    desk, answers, path = Desk(), list[Response](), "/cluster/memory"
    request = Request("GET", path, b"", b"", "r", "1.1", True, False)
    Restoring(1, desk.view, {}, Port(desk.store)).table()[path].serve(request, answers.append)
    assert json.loads(answers[0].body) == desk.memories[0]


def test_a_plan_changes_nothing() -> None:
    desk = Desk()
    desk.lose()
    status, plan = desk.restore()
    assert (status, plan["applied"], plan["put"]) == (200, False, [["orders", 0]])
    assert desk.store.entries == {}


def test_a_node_that_is_silent_is_waited_for_unless_it_is_lost() -> None:
    desk = Desk()
    desk.lose()
    desk.memories = desk.memories[:1]
    _, plan = desk.restore("apply=true")
    (left,) = plan["left"]
    assert left["reason"] == "it may be changed since: nodes 2 have not reported"
    _, plan = desk.restore("lost=2")
    assert plan["put"] == [["orders", 0]]


@pytest.mark.parametrize(
    ("query", "body", "reason"),
    [
        ("", b"x", "not what GET /cluster/memory answers"),
        ("", b"[" * 100_000, "not what GET /cluster/memory answers"),
        ("", b'{"memories": [{"node": 1}]}', "missing required field `uuid`"),
        ("", b'{"memories": []}', "length >= 1 - at `$.memories`"),
        ("", told(records=[1]), "Expected `object`, got `array`"),
        ("", told(uuid="no number"), "invalid literal"),
        ("", told(records={"x": ROW}), "x: a partition's key"),
        ("", told(topics={"topics/": ROW}), "topics/: no key of a topic"),
        ("", told(topics={"topics/a": ROW}), "topics/a"),
        ("lost=x", None, "lost 'x': numbers of nodes are needed"),
    ],
)
def test_what_cannot_be_understood_is_refused(query: str, body: bytes | None, reason: str) -> None:
    status, told = Desk().restore(query, body)
    assert status == 400
    assert reason in told


def test_what_the_view_lacks_is_told_from_the_files() -> None:
    """As where the node was started after etcd had lost everything."""
    desk = Desk()
    file = placed_topic("orders", ORDERS, 1).file()
    file.channels.append(ChannelEntry("work", 4, 6))
    records = {PLACE: desk.view.partitions[PLACE]}
    memory = memory_of(told_by(1, View(desk.view.remembered, records), [file]))
    assert memory.topics == {"orders": ORDERS._replace(replicas=2)}
    assert memory.channels[keys.ChannelName("orders", "work")].document == WORK
    assert memory.records == records


def test_a_channel_as_it_stands_on_disk() -> None:
    entry = ChannelEntry("work", 4, 6, True, skipped_partitions=[0, 5], skips_tests=True)
    found = channel_document(entry, 7)
    assert (found.number, found.paused) == (4, True)
    assert dict(found.settings).items() >= {"skipped_partitions": "21", "skips_tests": True}.items()
