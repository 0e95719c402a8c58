"""`penstock cluster` against documents that nodes might answer."""

import json
from typing import Any

import pytest

from penstock.net.outgoing import HttpAnswer
from penstock.tools.nodes import Node, NodeFailed

from .utilities import Run, out_of

Row = dict[str, Any]
PLACE = {"host": "::1", "tcp_port": 4150, "http_port": 4151, "version": "1", "zone": "",
         "replication_address": "::1:4154"}  # fmt: skip


def partition(number: int, leader: int | None, in_sync: list[int], **more: Any) -> Row:
    return {
        "topic": "orders", "partition": number, "leader": leader, "epoch": 3, "in_sync": in_sync,
        "min_in_sync": 2, "preferred": [0, 1, 2], "under_replicated": len(in_sync) < 3,
        "offline": leader is None, "since_seconds": 0.0, "end_offset": 7, "committed_offset": 7,
        "replicas": 3, **more,
    }  # fmt: skip


PLAN = {
    "applied": False, "put": [["orders", 0]], "kept": 2, "topics": ["orders"],
    "channels": [["orders", "work"]],
    "left": [{"topic": "jobs", "partition": 1, "reason": "its topic is deleted"}],
}  # fmt: skip


class Nodes:
    """Three nodes that answer alike, as node 0 does."""

    def __init__(self, penstock: Run) -> None:
        self.penstock = penstock
        self.partitions = [partition(0, 0, [0, 1, 2]), partition(1, 1, [0, 1, 2])]
        self.alive = [True] * 3
        self.is_known = False  # where a node was that is down
        self.states = ["active"] * 3
        self.health, self.trouble = "OK", ""
        self.failure: NodeFailed | None = None
        self.posted: list[str] = []

    def exchange(self, node: Node, method: str, target: str, *_: object) -> HttpAnswer:
        if self.failure is not None:
            raise self.failure
        if method == "POST":
            self.posted.append(target)
            return HttpAnswer(200, json.dumps(PLAN).encode() if "restore" in target else b"", {})
        if target == "/cluster/memory":
            memory = {"node": 0, "records": {}, "topics": {}, "channels": {}}
            return HttpAnswer(200, json.dumps(memory).encode(), {})
        nodes = [
            {"node": node, "state": self.states[node], "generation": 1, "alive": alive,
             "linked": alive, **(PLACE if alive or self.is_known else {})}
            for node, alive in enumerate(self.alive)
        ]  # fmt: skip
        document = {"cluster": {"name": "test", "uuid": "0"}, "node": 0, "generation": 1,
                    "trouble": self.trouble, "health": self.health, "nodes": nodes,
                    "partitions": self.partitions, "topics": [], "version": ""}  # fmt: skip
        return HttpAnswer(200, json.dumps(document).encode(), {})

    def says(self, code: int, verb: str, *words: str) -> str:
        """All that it writes, when it ends with this code."""
        result = self.penstock("cluster", verb, "--nsqd-http-address=node0:4151", *words)
        assert result[0] == code, result
        return result[1] + result[2]

    def check(self, code: int) -> str:
        return self.says(code, "check")


@pytest.fixture
def nodes(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes(penstock)
    monkeypatch.setattr(Node, "exchange", lambda node, *rest: nodes.exchange(node, *rest))
    return nodes


def test_all_is_well(nodes: Nodes) -> None:
    assert nodes.check(0) == "PENSTOCK OK\n"
    document = json.loads(nodes.says(0, "status", "--json"))
    assert document["findings"] == []
    assert [row["leads"] for row in document["rows"]] == [1, 1, 0]
    for verb in ("status", "nodes", "topics", "partitions"):
        assert nodes.says(0, verb).startswith(
            "TOPIC" if verb in ("topics", "partitions") else "NODE"
        )


def test_a_node_is_down(nodes: Nodes) -> None:
    nodes.alive[2] = False
    nodes.partitions = [partition(n, 0, [0, 1], since_seconds=192.0) for n in range(5)]
    names = "orders/0, orders/1, orders/2 and 2 more"
    assert nodes.check(1) == (
        f"PENSTOCK WARNING - {names}: under-replicated, without node 2, since 3m12s. Start node 2:"
        " it catches up by itself; node 2 is down, since 3m12s."
        " Start its nsqd, or replace it (--cluster-replace) if it is gone for good\n"
    )
    assert "down" in nodes.says(0, "nodes")
    nodes.is_known = True
    code, text, _ = nodes.penstock("check", "--nsqd-http-address=node0:4151")
    assert (code, "1 node silent (2), 5 partitions under-replicated" in text) == (1, True)
    assert "; node 2 at [::1]:4151 is down, since" in nodes.check(1)
    assert json.loads(nodes.says(0, "topics", "--json"))["rows"][0]["under_replicated"] == 5


def test_a_follower_that_failed_repeatedly_is_held_off(nodes: Nodes) -> None:
    nodes.partitions = [partition(0, 0, [0, 1])]
    assert "without node 2. It catches up; if the lag does not fall" in nodes.check(1)
    nodes.partitions[0]["followers"] = [{"node": 2, "lag": 0, "held_off_seconds": 41.7}]
    assert "It has failed repeatedly: it counts again in 42 s" in nodes.check(1)


def test_a_node_that_is_drained_and_down_is_to_be_removed(nodes: Nodes) -> None:
    nodes.alive[2], nodes.states[2] = False, "draining"
    nodes.partitions = [partition(0, 0, [0, 1], preferred=[0, 1])]
    assert nodes.check(1).endswith("is down. Nothing is left on it: penstock cluster remove 2\n")


def test_a_node_that_keeps_what_no_other_can_take_asks_for_a_node(nodes: Nodes) -> None:
    nodes.states[2] = "draining"
    assert nodes.check(1) == (
        "PENSTOCK WARNING - node 2 is drained, and keeps orders/0, orders/1: no other node can take"
        " a replica. Add a node\n"
    )
    nodes.alive[2], nodes.partitions = False, [partition(0, 0, [0, 1])]
    text = nodes.check(1)
    assert "without node 2. Add a node: it gets a replica; node 2 is down. Add a node: it" in text
    assert "Start" not in text


def test_a_node_that_is_not_well(nodes: Nodes) -> None:
    nodes.health = "NOK - free disk is below 1 GiB"
    assert nodes.check(1).startswith("PENSTOCK WARNING - node 0: NOK - free disk is below 1 GiB")


def test_lost_metadata_names_the_restore(nodes: Nodes) -> None:
    nodes.trouble = "etcd does not answer"
    assert nodes.check(1).endswith("Look at etcd\n")
    nodes.trouble = "the metadata in etcd is not trusted: the coordinator knows no cluster"
    assert nodes.check(1).endswith("and rebuild what it has lost: penstock cluster restore\n")


def test_a_desired_state_goes_to_one_of_several_nodes(nodes: Nodes) -> None:
    """It passes on to the others what is about a topic; they would do it again."""
    three = [f"--nsqd-http-address=node{number}:4151" for number in range(3)]
    done = "node0:4151: pause topic orders: done\n"
    assert nodes.penstock("topic", "pause", "orders", *three) == (0, done, "")
    assert nodes.posted == ["/topic/pause?topic=orders"]
    assert nodes.penstock("topic", "pause", "own#ephemeral", *three)[0] == 0
    assert len(nodes.posted) == 1 + 3


def test_a_topic_from_when_there_were_fewer_nodes(nodes: Nodes) -> None:
    nodes.partitions = [partition(0, 0, [0, 1], preferred=[0, 1])]
    assert "orders/0: fewer replicas than its topic wants. Add a node: it gets one." in nodes.check(
        1
    )


def test_partitions_without_publishes_come_first(nodes: Nodes) -> None:
    nodes.alive[1:] = [False, False]
    nodes.partitions = [
        partition(0, 0, [0, 2], since_seconds=1.0),
        partition(1, None, [1, 2], since_seconds=12.0),
        partition(2, 0, [0, 1, 2]),
    ]
    assert nodes.check(2).startswith("PENSTOCK CRITICAL - orders/0, orders/2: no publishes")
    found = json.loads(nodes.says(0, "status", "--json"))["findings"]
    assert [(one["level"], one["text"]) for one in found[:2]] == [
        ("CRITICAL", "orders/0, orders/2: no publishes, 1 of 2 needed in sync"),
        ("CRITICAL", "orders/1: offline, no leader; in sync is nodes 1, 2"),
    ]
    assert found[1]["since_seconds"] == 12.0
    assert found[1]["do"] == "Start nodes 1, 2: one of them leads then, and nothing is lost"
    assert nodes.says(0, "partitions", "orders").startswith("orders/0")


def test_only_nodes_that_are_down_are_to_be_started(nodes: Nodes) -> None:
    nodes.partitions = [partition(0, None, [0, 1, 2])]
    assert "One of them leads within seconds; if none does, look at their logs" in nodes.check(2)
    nodes.alive[2] = False
    assert "in sync is nodes 0, 1, 2. Start node 2: one of them leads then" in nodes.check(2)


def test_a_leader_is_believed_before_others(nodes: Nodes) -> None:
    """All three answer here as node 0 does, so what leads there is known best."""
    followers = [{"node": 1, "end_offset": 4, "lag": 3}, {"node": 2, "end_offset": 7, "lag": 0}]
    nodes.partitions = [partition(0, 0, [0, 1, 2], followers=followers)]
    assert json.loads(nodes.says(0, "partitions", "--json"))["rows"][0]["lag"] == 3


def test_a_node_by_itself_says_how_to_make_a_cluster(nodes: Nodes) -> None:
    nodes.failure = NodeFailed("node0:4151", "404 NO_CLUSTER", 404, "NO_CLUSTER")
    assert "nsqd --cluster=etcd://HOST:2379/NAME" in nodes.says(2, "status")
    assert nodes.check(3).startswith("PENSTOCK UNKNOWN")


def test_nobody_answers(penstock: Run) -> None:
    address = "--nsqd-http-address=127.0.0.1:1"
    answer = out_of(penstock("cluster", "check", address), 2)
    assert answer.startswith("PENSTOCK CRITICAL - 127.0.0.1:1: no answer")
    assert penstock("cluster", "nodes", address)[0] == 1
    assert penstock("cluster", "check", "--fly")[0] == 3


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("drain", "draining"),
        ("maintain", "maintenance"),
        ("activate", "active"),
        ("remove", "removed"),
    ],
)
def test_desired_states_of_a_node(nodes: Nodes, verb: str, state: str) -> None:
    yes = ["--yes"] if verb == "remove" else []
    assert nodes.says(0, verb, "2", *yes) == f"node 2: {state}\n"
    assert nodes.posted == [f"/cluster/node?node=2&state={state}"]
    assert json.loads(nodes.says(0, verb, "2", "--json", *yes)) == {"node": 2, "state": state}


def test_a_node_is_removed_only_when_somebody_confirms(nodes: Nodes) -> None:
    assert "remove node 2 from the cluster: give --yes" in nodes.says(1, "remove", "2")
    assert nodes.posted == []


def test_metadata_is_restored_when_somebody_confirms(nodes: Nodes) -> None:
    """A plan is shown first. What is left as it was is a failure."""
    answer = nodes.says(1, "restore")
    assert "nodes 0 have said what they remember" in answer
    assert "1 partitions are put back: orders/0" in answer
    assert "jobs/1 is left as it is: its topic is deleted" in answer
    assert "restore the metadata of cluster test: give --yes" in answer
    assert nodes.posted == ["/cluster/restore?lost="]
    nodes.says(1, "restore", "--lost", "3", "--lost", "4", "--yes")
    assert nodes.posted[1:] == [
        "/cluster/restore?lost=3%2C4", "/cluster/restore?lost=3%2C4&apply=true",
    ]  # fmt: skip
