"""Verbs that change a channel of several replicas: answered when all that need it know of it."""

import asyncio
import json
import logging
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from broker.replicas.cluster_world import ORDERS, Cluster, Node
from broker.world import bodies
from penstock.limits import SECOND
from penstock.net.exchange import Response
from penstock.nsqd.http.deps import Call

from ..asked import BILLING, nothing, request, routes


class Asked:
    """A request to one node, and its answer when it has come."""

    def __init__(self, node: Node, target: str, body: bytes = b"") -> None:
        self.answers: list[Response] = []
        asyncio.run(self._ask(node, target, body))

    async def _ask(self, node: Node, target: str, body: bytes) -> None:
        routes(node, _fail).serve(request(target, body), self.answers.append)
        for _ in range(10):  # what is done in pieces
            await asyncio.sleep(0)

    @property
    def status(self) -> int:
        (answer,) = self.answers
        return answer.status

    @property
    def document(self) -> Any:
        (answer,) = self.answers
        return json.loads(answer.body)


def _fail(error: Exception) -> None:
    logging.error("a fault of the program", exc_info=error)


VERBS = {
    "seek": (f"/channel/setoffset?{BILLING}", b"virtual_queue:0"),
    "empty": (f"/channel/empty?{BILLING}", b""),
    "empty the topic": ("/topic/empty?topic=orders", b""),
    "finish": (f"/message/finish?{BILLING}&msgid={{id}}", b""),
    "finish by hand": (f"/channel/message/finish?{BILLING}&id={{id}}", b""),
    "fix": (f"/channel/fixconfirmed?{BILLING}", b""),
    "empty the delayed": (f"/channel/emptydelayed?{BILLING}", b""),
    "finish the retried": (f"/channel/finishmemdelayed?{BILLING}", b""),
    "send the delayed": (f"/channel/requeuedelayed?{BILLING}&offset=1", b""),
}


def ask(cluster: Cluster, verb: str, cut: int) -> Asked:
    """With a message in flight and one that is delayed, and a FIN on its way to one that is cut
    off: where the verb finds nothing to do, it waits for that."""
    node = cluster.nodes[0]
    cluster.publish(0, b"a", b"b")
    cluster.publish(0, b"later", due_ns=cluster.clock.wall_ns() + 1800 * SECOND)
    for _ in range(3):
        cluster.pass_ns(SECOND)  # the channel looks for what is delayed
    consumer = node.consume()
    first, second = consumer.take()
    cluster.cut.add(cut)
    consumer.finish(first)
    path, body = VERBS[verb]
    asked = Asked(node, path.format(id=second.id.decode()), body)
    cluster.run()
    return asked


@pytest.mark.parametrize("verb", VERBS)
def test_a_change_is_answered_once_the_in_sync_set_has_it(cluster: Cluster, verb: str) -> None:
    asked = ask(cluster, verb, cut=2)
    assert asked.answers == []
    cluster.cut.clear()
    cluster.unlink(cluster.nodes[2])
    cluster.link(cluster.nodes[2])
    cluster.run()
    assert asked.status == 200


@pytest.mark.parametrize("verb", VERBS)
def test_an_ended_leadership_makes_the_outcome_unknown(cluster: Cluster, verb: str) -> None:
    asked = ask(cluster, verb, cut=0)
    assert asked.answers == []
    cluster.cut.clear()
    cluster.elect(2)
    assert asked.status == 503
    assert asked.document["changed"] == "unknown"
    assert "ask again" in asked.document["message"]


def test_all_partitions_of_the_topic_are_waited_for() -> None:
    cluster = Cluster(replace(ORDERS, partitions=2, hash_partitions=2))
    cluster.place([0, 0])
    leaders = cluster.nodes[0].topic.leaders
    asked = Asked(cluster.nodes[0], f"/channel/empty?{BILLING}")
    held: list[object] = []
    leaders[0].when_held(held.append)
    waits = leaders[1].led
    assert waits is not None
    waits.machine.unlinked(2)  # the other partition's journal alone lacks one
    cluster.run()
    assert (held, asked.answers) == ([None], [])
    waits.machine.linked(2, 99)
    for node in cluster.up():
        node.engine.close()


# --- an operator's word that what is corrupt is not waited for ---


@pytest.fixture
def cluster_concede() -> Cluster:
    """Two messages, the first one corrupt on every disk, and node 1 leads."""
    cluster_concede = Cluster()
    cluster_concede.place([0])
    for word in (b"one", b"two"):
        cluster_concede.publish(0, word)
    for node in cluster_concede.nodes:
        segment = node.topic.replicas[0].log.segments[0].path
        node.disk.flip(segment, node.disk.content(segment).index(b"one"), 0)
    cluster_concede.elect(1)
    return cluster_concede


def test_a_concession_names_the_offsets_and_the_rest_is_delivered(cluster_concede: Cluster) -> None:
    consumer = cluster_concede.nodes[1].consume()
    cluster_concede.pass_ns(SECOND)
    assert consumer.take() == []
    asked = Asked(cluster_concede.nodes[1], "/topic/concede?topic=orders&partition=0")
    cluster_concede.run()
    assert (asked.status, asked.document) == (
        200,
        {"topic_name": "orders", "conceded": [{"partition": 0, "from": 0, "to": 1}]},
    )
    cluster_concede.pass_ns(SECOND)
    assert bodies(consumer.take()) == [b"two"]


def test_only_corrupt_offsets_are_conceded(cluster_concede: Cluster) -> None:
    asked = Asked(cluster_concede.nodes[1], "/topic/concede?topic=orders")
    cluster_concede.run()
    assert asked.document["conceded"] == []


# --- long work of a request: the loop is for others in between ---


async def test_others_have_their_turn_between_two_pieces() -> None:
    """A piece of all work together, not one of each."""
    done: list[str] = []

    def guard(request: Any, answer: Any, act: Any) -> None:
        act()

    def work(name: str) -> Generator[None, None, str]:
        for piece in (1, 2):
            done.append(f"{name}{piece}")
            yield
        return name

    deps: Any = SimpleNamespace(long_work=asyncio.Lock())
    for name in "ab":
        Call(deps, guard, request("/"), nothing).in_turns(work(name), done.append)
    for _ in range(12):
        done.append("turn")
        await asyncio.sleep(0)
    assert "".join(done).replace("turn", " ").split() == ["a1b1", "a2", "b2", "a", "b"]
