"""Each rule finds its fault, and a healthy installation has none."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.nsqadmin.attention import Level, findings, folded, of_runs
from penstock.nsqadmin.history import Measures, Sample
from penstock.nsqadmin.pages.overview import facts_of
from penstock.nsqadmin.replication import Replication, read
from penstock.nsqadmin.runs import RunOffset, Runs
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.upstream import NsqdAddress
from penstock.pipelines.runs import RunStatus, encode


def samples(depths: Sequence[float], out: float = 1.0, in_flight: float = 0.0) -> list[Sample]:
    """Over two minutes."""
    found = []
    for number, depth in enumerate(depths):
        values = Measures(depth=depth, out_rate=out, in_flight=in_flight)
        time_s = 1000.0 + 120.0 * number / (len(depths) - 1)
        found.append(Sample(time_s, values))
    return found


def judged(
    recent: Sequence[Sample] = (), document: dict[str, Any] | None = None, error: str = "",
    topic: dict[str, Any] | None = None, **channel: Any,
) -> list[tuple[Level, str]]:  # fmt: skip
    node = NodeState("n:1", NsqdAddress("n", "n", 1, 1, ""), document or {"health": "OK"})
    node.error = error
    state = TopicState("t", channels={"c": ChannelState("t", "c", **channel)}, **(topic or {}))
    snapshot = Snapshot(1.0, {"n:1": node}, {"t": state})
    return [(one.level, one.what) for one in findings(snapshot, lambda name: recent)]


def test_a_healthy_installation() -> None:
    assert judged(samples([5, 4, 6, 5] * 4), clients=2, depth=5, finish_rate=10.0) == []


def test_a_disk_that_is_gone_is_the_size_of_none() -> None:
    disks = ({"free_bytes": None, "size_bytes": None}, {"free_bytes": 7}, [1], None)
    nodes = {str(disk): NodeState("n:1", NsqdAddress("n", "n", 1, 1, ""), {"disk": disk})
             for disk in disks}  # fmt: skip
    assert findings(Snapshot(1.0, nodes), lambda name: ()) == []
    assert facts_of(Snapshot(1.0, nodes))["Disk left"] == ("7 B", "on the fullest node")


@pytest.mark.parametrize(
    ("given", "level", "what"),
    [
        ({"document": {"health": "NOK - disk"}}, Level.BAD, "node n:1 is not healthy"),
        ({"document": {"health": "OK", "disk": {"sync_slowest_seconds": 0.4}}},
         Level.WARN, "node n:1 syncs slowly"),
        ({"document": {"health": "OK", "disk": {"free_bytes": 1, "size_bytes": 100}}},
         Level.WARN, "node n:1 runs out of disk"),
        ({"topic": {"damaged": 1}}, Level.BAD, "topic t is damaged"),
        ({"paused": True, "depth": 3}, Level.NOTE, "channel t/c is paused"),
        ({"depth": 30, "recent": samples(range(18, 31))}, Level.WARN, "nobody reads channel t/c"),
        ({"depth": 3000, "clients": 1, "recent": samples(range(1800, 3100, 100))},
         Level.WARN, "channel t/c falls behind"),
        ({"timeout_rate": 5.0, "finish_rate": 10.0}, Level.WARN, "channel t/c times out"),
    ],
)  # fmt: skip
def test_each_rule(given: dict[str, Any], level: Level, what: str) -> None:
    assert judged(**given) == [(level, what)]


def test_a_node_that_was_taken_away_is_a_fault_with_messages_or_in_a_cluster() -> None:
    levels = []
    for depth, known in ((0, {}), (3, {}), (0, {1: "n:1"})):
        rows = [{"topic_name": "t", "depth": depth}]
        node = NodeState("n:1", NsqdAddress("n", "n", 1, 1, ""), {"topics": rows}, error="refused")
        node.seen_s, node.is_listed = 1.0, False
        snapshot = Snapshot(1.0, {"n:1": node}, cluster=Replication("c", known=known))
        levels += [one.level for one in findings(snapshot, lambda name: ())]
    assert levels == [Level.WARN, Level.BAD, Level.BAD]


def test_a_channel_that_was_only_just_seen_is_not_judged() -> None:
    short = samples([3] * 13, out=0.0)[:5]
    assert judged(short, clients=1, depth=3) == []


def test_the_worst_come_first_and_causes_before_effects() -> None:
    stuck = {"clients": 1, "depth": 3, "recent": samples([3] * 13, out=0.0), "dead_letters": 1}
    found = judged(error="refused", topic={"refusals": ["full"]}, **stuck)
    bad = ["node n:1 does not answer", "topic t refuses publishes", "channel t/c is stuck"]
    last = (Level.WARN, "channel t/c has dead letters")
    assert found == [*((Level.BAD, what) for what in bad), last]


def test_many_of_a_kind_hide_no_others() -> None:
    topics = {f"t{n}": TopicState(f"t{n}", refusals=["full"], damaged=1) for n in range(99)}
    found = list(folded(findings(Snapshot(topics=topics), lambda name: ())))
    assert [one.what for one in found[5::6]] == ["94 more: damaged", "94 more: refuses publishes"]


# --- runs of pipelines ---


def run_states(**changed: Any) -> Runs:
    runs = Runs()
    values: dict[str, Any] = {"pipeline": "audit", "state": "running", "name": "nightly",
                              "host": "h", "pid": 7}  # fmt: skip
    for seq in range(40):
        facts = values | (changed if seq == 39 else {})
        facts = {"lag_rows": changed.get("lag", 0) * seq} | facts
        facts.pop("lag", None)
        body = RunStatus(run="r1", seq=seq, time_s=1000.0 + 10 * seq, started_s=1000.0, **facts)
        runs.take(RunOffset("n:1", seq), encode(body), 1000.0 + 10 * seq)
    return runs


@pytest.mark.parametrize(
    ("changed", "level", "what", "why"),
    [
        ({"state": "failed", "reason": "gone"}, Level.BAD, "pipeline nightly failed", "gone."),
        ({"lag": 1000}, Level.WARN, "pipeline nightly falls behind", "18,000 more than"),
        (
            {"state": "finished", "code": 1, "outcome": "3 findings"},
            Level.WARN, "pipeline nightly has something to tell", "3 findings.",
        ),
        ({"state": "finished", "code": 1}, Level.WARN, "pipeline nightly has", "code is 1."),
    ],
)  # fmt: skip
def test_runs_that_need_attention(
    changed: dict[str, Any], level: Level, what: str, why: str
) -> None:
    (found,) = of_runs(run_states(**changed), 1500.0)
    assert (found.level, found.path) == (level, ("pipelines", "r1"))
    assert found.what.startswith(what)
    assert why in found.why
    assert of_runs(run_states(**changed), 1500.0 + 2 * 86400) == [] or "lag" in changed


def test_a_run_that_fell_silent() -> None:
    runs = run_states()
    runs.looked("n:1", 1390.0 + 300)
    (found,) = of_runs(runs, 1390.0 + 300)
    assert (found.level, found.what) == (Level.BAD, "pipeline nightly fell silent")
    assert "for 5 min," in found.why
    assert "process 7 on h" in found.next_step


@pytest.mark.parametrize("phase", ["running", "stopped", "finished"])
def test_healthy_runs(phase: str) -> None:
    assert of_runs(run_states(state=phase, code=0), 1500.0) == []


def copies(partition: int, *in_sync: int, leader: int | None = 0) -> dict[str, Any]:
    """As `/cluster` has them."""
    return {
        "topic": "t", "partition": partition, "leader": leader, "epoch": 4, "in_sync": in_sync,
        "preferred": [0, 1, 2], "replicas": 3, "under_replicated": len(in_sync) < 3,
        "offline": leader is None, "since_seconds": 40.0 + partition, "min_in_sync": 2,
    }  # fmt: skip


def test_missing_replicas_are_one_finding_a_topic() -> None:
    nodes = [
        {"node": 0, "state": "active", "alive": True, "host": "n", "http_port": 1},
        {"node": 1, "state": "active", "alive": True, "host": "m", "http_port": 1},
        {"node": 2, "state": "active", "alive": False, "host": "o", "http_port": 1},
        {"node": 3, "state": "removed", "alive": False},
    ]
    partitions = [copies(0, 0, 1, 2), copies(1, 0, 2), copies(2, 0, 1), copies(3, 1, leader=None)]
    document = {"cluster": {"name": "c"}, "nodes": nodes, "partitions": partitions}
    found = read(document)
    offline, blocked, short = findings(Snapshot(cluster=found), lambda name: ())
    assert (blocked.level, blocked.what) == (Level.BAD, "topic t refuses publishes")
    assert blocked.next_step == "See whether these nodes run: 1 (m:1), 2 (o:1)."
    assert (offline.level, offline.what) == (Level.BAD, "topic t has no leader")
    assert offline.why == "Partition 3, for 43 s."
    assert offline.next_step.endswith("all that is acknowledged: 1.")
    assert (short.level, short.path) == (Level.WARN, ("topics", "t"))
    assert short.why == "Partition 2, for 42 s: a copy is not in sync."
    assert short.next_step == "See whether these nodes run: 2 (o:1)."
    assert found.trouble == (
        "Cluster c: 1 node silent (2), 1 partition without a leader, 1 partition refusing"
        " publishes, 3 partitions under-replicated."
    )
    assert [one.partition for one in found.of_node("m:1")] == [0, 2, 3]
    well = read(document | {"nodes": nodes[:2], "partitions": partitions[:1]})
    assert well.trouble == ""
    assert findings(Snapshot(cluster=well), lambda name: ()) == []
