"""What an operator wants of a node of the cluster: `POST /cluster/node?node=2&state=draining`.

The state goes into the metadata. The controller acts on it, in an nsqlookupd with `--cluster`.

| state | the node |
|---|---|
| `active` | has replicas and leads, as placement wants it |
| `maintenance` | keeps its replicas, leads nothing and gets nothing new |
| `draining` | gives up its replicas: others are made first |
| `removed` | is forgotten; refused while it lives or a replica is wanted there |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Settled, Transaction
from penstock.cluster.documents import MEMBERSHIP, REMOVED, STATES
from penstock.limits import NODE_ID_MAX
from penstock.net.api import EMPTY, POST, Answer, HttpError, Route, because, error_response
from penstock.net.exchange import Request
from penstock.net.query import parse_query, whole_number
from penstock.replication.leader import Outcome

if TYPE_CHECKING:
    from penstock.cluster.coordinator import Coordinator
    from penstock.cluster.view import View


class NodeStates:
    def __init__(self, view: View, coordinator: Coordinator) -> None:
        self._view = view
        self._coordinator = coordinator

    def table(self) -> dict[str, Route]:
        return {"/cluster/node": Route(POST, self._change)}

    def _change(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        text, state = parameters.get("node", ""), parameters.get("state", "")
        number = whole_number(text, NODE_ID_MAX)
        if number is None:
            raise because(400, "INVALID_NODE", f"node {text!r}: a number is needed")
        if state not in STATES:
            raise because(400, "INVALID_STATE", f"state {state!r}: one of {', '.join(STATES)}")
        held = self._view.memberships.get(number)
        if held is None:
            raise because(404, "NODE_NOT_FOUND", f"the cluster has no node {number}")
        if state == REMOVED:
            self._check_gone(number)
        key = keys.member(number)
        put = Put(key, MEMBERSHIP.encode(held.document._replace(state=state)))
        self._coordinator.transact(
            Transaction((RevisionIs(key, held.revision),), (put,)),
            lambda settled: _answer(settled, answer),
        )

    def _check_gone(self, number: int) -> None:
        if number in self._view.nodes:
            raise because(409, "NODE_LIVES", f"node {number} lives: stop it first")
        for name, held in self._view.partitions.items():
            record = held.document
            if number in record.wanted or record.member_on(number) is not None:
                where = f"{name.topic}/{name.number}"
                reason = f"node {number} has a replica of {where}: drain it first"
                raise because(409, "NODE_HAS_REPLICAS", reason)


def _answer(settled: Settled, answer: Answer) -> None:
    if settled.outcome is Outcome.DONE:
        answer(EMPTY)
    elif settled.outcome is Outcome.REFUSED:
        reason = "its entry has just been changed by another: try again"
        answer(error_response(because(409, "NODE_CHANGED", reason)))
    else:
        details = {"changed": "unknown"}
        answer(error_response(HttpError(503, "FAILED etcd does not answer", details=details)))
