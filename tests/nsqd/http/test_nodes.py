"""`POST /cluster/node`: what an operator wants of a node."""

from __future__ import annotations

import json

import pytest

from penstock.cluster import keys
from penstock.cluster.coordinator import Page, Put, Transaction
from penstock.cluster.documents import (
    ACTIVE,
    DRAINING,
    MEMBERSHIP,
    NODE,
    RECORD,
    Membership,
    Node,
)
from penstock.cluster.view import View
from penstock.net.api import HttpError
from penstock.net.exchange import Request, Response
from penstock.nsqd.http.nodes import NodeStates
from penstock.replica.record import Member, Record
from sim.brokers.port import Port
from sim.store import Store


class Desk:
    """A cluster whose node 2 has an entry, as one of its nodes knows it."""

    def __init__(self) -> None:
        self.store = Store()
        self.port = Port(self.store)
        self.view = View()
        self.put(keys.member(2), MEMBERSHIP.encode(Membership(2, 1, "", 0, 7, 0, ACTIVE)))

    def put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))
        self.view.page(Page(self.store.revision, tuple(self.store.entries.values()), True))
        self.view.apply(10)

    def ask(self, query: str) -> tuple[int, str]:
        """The status, and the code with its reason."""
        answers: list[Response] = []
        path = "/cluster/node"
        request = Request("POST", path, query.encode(), b"", "r", "1.1", True, False, b"")
        serve = NodeStates(self.view, self.port).table()[path].serve
        try:
            serve(request, answers.append)
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
def desk() -> Desk:
    return Desk()


def test_the_state_goes_into_the_metadata(desk: Desk) -> None:
    assert desk.ask("node=2&state=draining") == (200, "")
    assert desk.state == DRAINING


def test_what_is_wrong_is_named(desk: Desk) -> None:
    asked = [
        desk.ask(query) for query in ("node=x&state=draining", "node=2", "node=3&state=active")
    ]
    assert asked == [
        (400, "INVALID_NODE: node 'x': a number is needed"),
        (400, "INVALID_STATE: state '': one of active, maintenance, draining, removed"),
        (404, "NODE_NOT_FOUND: the cluster has no node 3"),
    ]
    assert desk.state == ACTIVE


def test_a_node_is_forgotten_when_nothing_of_it_is_left(desk: Desk) -> None:
    node = Node(7, "h", 1, 2, "h", 3, "1", "", 0, 0)
    record = Record(5, 1, None, (Member(2, 2, 1),), 1, (2,))
    desk.put(keys.partition("t", 0), RECORD.encode(record))
    reason = "node 2 has a replica of t/0: drain it first"
    assert desk.ask("node=2&state=removed") == (409, f"NODE_HAS_REPLICAS: {reason}")
    desk.put(keys.node(2), NODE.encode(node))
    reason = "node 2 lives: stop it first"
    assert desk.ask("node=2&state=removed") == (409, f"NODE_LIVES: {reason}")
    assert desk.state == ACTIVE


def test_a_change_by_another_meanwhile_is_not_overwritten(desk: Desk) -> None:
    other = MEMBERSHIP.encode(Membership(2, 2, "", 0, 8, 0, ACTIVE))
    desk.store.transact(Transaction((), (Put(keys.member(2), other),)))  # not seen here yet
    assert desk.ask("node=2&state=draining") == (409, "NODE_CHANGED")
    assert desk.state == ACTIVE
