"""Each planted fault is found, by name and weight, and a healthy installation has none."""

from collections.abc import Callable
from typing import Any

from cases import each
from penstock.nsqadmin.attention import Level
from penstock.nsqadmin.bundle.judge import judge, rows_of

from .made import Made

Change = Callable[[Made], Any]


def found(made: Made) -> list[tuple[Level, str]]:
    return [(one.level, one.what) for one in judge(made.bundle())]


def test_a_healthy_installation() -> None:
    assert found(Made()) == []


def config(key: str, value: Any, node: int = 2) -> Change:
    return lambda made: made.files[f"nsqd/{node}/config.json"].update({key: value})


def put(name: str, **values: Any) -> Change:
    return lambda made: made.files.setdefault(name, {}).update(values)


def down(folder: str) -> Change:
    """A daemon that did not answer has said nothing."""

    def corrupt(made: Made) -> None:
        for name in [one for one in made.files if one.startswith(f"{folder}/")]:
            del made.files[name]
        made.failures.append((folder, "/ping", "connection refused"))

    return corrupt


def channels(first: dict[str, Any], last: dict[str, Any]) -> Change:
    """What the two samples of one node say."""

    def corrupt(made: Made) -> None:
        made.channel(1).update(first)
        made.channel(2).update(last)

    return corrupt


def no_consumers(depth: int) -> Change:
    def corrupt(made: Made) -> None:
        for node in (1, 2, 3):
            for sample in (1, 2):
                held = {"depth": depth, "in_flight_count": 0, "client_count": 0, "clients": []}
                made.channel(sample, node).update(held)

    return corrupt


def stuck(made: Made) -> None:
    for node in (1, 2, 3):
        for sample in (1, 2):
            made.channel(sample, node).update(message_count=1000, oldest_age_seconds=900.0)


def copies(**values: Any) -> Change:
    """Told by a node of a cluster."""
    node = {"state": "active", "alive": True, "host": "10.0.0.2", "http_port": 4151}
    partition = {
        "topic": "orders", "partition": 0, "leader": 2, "epoch": 3, "in_sync": [2],
        "preferred": [2, 3], "replicas": 2, "under_replicated": False, "offline": False,
        "since_seconds": 9.0,
    }  # fmt: skip
    return put("nsqd/2/cluster.json", cluster={"name": "main"}, nodes=[{"node": 2, **node}],
               partitions=[{**partition, **values}])  # fmt: skip


BAD, WARN, NOTE = Level.BAD, Level.WARN, Level.NOTE
_CASES: list[tuple[Change, Level, str]] = [
    (down("nsqd/3"), BAD, "node 10.0.0.3:4151 does not answer"),
    (down("nsqlookupd/2"), BAD, "nsqlookupd 10.0.1.2:4161 does not answer"),
    (lambda made: made.files.update({"nsqd/1/ping.txt": "500 NOK - disk"}),
     BAD, "node 10.0.0.1:4151 is not healthy"),
    (put("nsqd/2/stats-2.json", start_time=9), BAD, "node 10.0.0.2:4151 has just started again"),
    (put("nsqd/2/info.json", version="0.2.0"), WARN, "nsqds have different versions"),
    (put("nsqlookupd/2/info.json", version="0.2.0"), WARN, "nsqlookupds have different versions"),
    (put("nsqd/2/facts.json", clock_offset_s=[4.0, 5.0]), WARN, "clocks are apart"),
    (put("nsqd/2/facts.json", clock_offset_s=[-9.0, -8.0]), WARN, "clocks are apart"),
    (config("durability", "os"), WARN, "nsqds differ in durability"),
    (config("msg_timeout", 1), WARN, "nsqds differ in msg_timeout"),
    (config("max_msg_size", 1), WARN, "nsqds differ in max_msg_size"),
    (config("segment_bytes", 1), NOTE, ""),
    (lambda made: [config("zone", f"rack-{n}", n)(made) for n in (1, 2)], NOTE, ""),
    (copies(leader=None, offline=True), BAD, "topic orders has no leader"),
    (config("id", 1), WARN, "nsqds share the node id 1"),
    (put("nsqlookupd/2/topics.json", topics=[]), WARN, "nsqlookupd 10.0.1.2:4161 misses topics"),
    (lambda made: made.files["nsqlookupd/2/nodes.json"]["producers"].pop(),
     WARN, "nsqlookupd 10.0.1.2:4161 misses nodes"),
    (lambda made: [made.files[f"nsqlookupd/{n}/nodes.json"]["producers"].pop() for n in (1, 2)],
     WARN, "node 10.0.0.3:4151 is not registered"),
    (lambda made: made.files["nsqlookupd/1/nodes.json"]["producers"][0].update(tombstones=[True]),
     NOTE, "node 10.0.0.1:4151 has tombstones"),
    (put("nsqd/1/stats-2.json", disk={"free_bytes": 10**8, "size_bytes": 10**9}),
     BAD, "node 10.0.0.1:4151 is below its disk watermark"),
    (put("nsqd/1/stats-2.json", disk={"free_bytes": 4 * 10**8, "size_bytes": 10**9}),
     WARN, "node 10.0.0.1:4151 is near its disk watermark"),
    (lambda made: made.files["machine/limits.json"]["memory"].update(MemAvailable=10**6),
     WARN, "this machine runs out of memory"),
    (put("machine/limits.json", cgroup={"memory.max": "1000", "memory.current": "990"}),
     WARN, "this container runs out of memory"),
    (no_consumers(50), WARN, "nobody reads channel orders/billing"),
    (no_consumers(0), NOTE, "channels have no consumer"),
    (channels({"depth": 2000}, {"depth": 9000}), WARN, "channel orders/billing falls behind"),
    (stuck, BAD, "channel orders/billing is stuck"),
    (lambda made: made.failures.append(("nsqd/1", "/debug/pprof/heap", "no answer in 10 s")),
     NOTE, "the bundle lacks answers of 10.0.0.1:4151"),
]  # fmt: skip


@each(("change", "level", "what"), _CASES)
def test_each_fault(change: Change, level: Level, what: str) -> None:
    made = Made()
    change(made)
    text = found(made)
    if not what:  # a value that only one node has told is no difference, nor is a node's own
        assert text == []
        return
    assert (level, what) in text
    assert max(text)[0] == level, text


def test_a_slow_consumer_is_not_stuck() -> None:
    """Five seconds without a finished message: the oldest of them is young."""
    made = Made()
    stuck(made)
    for node in (1, 2, 3):
        made.channel(2, node)["oldest_age_seconds"] = 8.0
    assert found(made) == []


def test_no_nodes() -> None:
    made = Made()
    made.files, made.members = {}, []
    assert found(made) == [(BAD, "no nsqd was found")]


def test_findings_name_the_place_the_reason_and_the_remedy() -> None:
    made = Made()
    down("nsqd/3")(made)
    rows = rows_of(judge(made.bundle()))
    assert rows[0] == {
        "level": "CRITICAL",
        "what": "node 10.0.0.3:4151 does not answer",
        "where": "nodes/10.0.0.3:4151",
        "why": "connection refused.",
        "next_step": "See whether the process runs and its port can be reached.",
    }


@each("wrong", [None, 7, "x", [], [7], {}, {"topics": 7}, {"topics": [{}, 7]}])
def test_any_answer_of_a_daemon_is_judged(wrong: Any) -> None:
    """What is not of the right form counts as not said; nothing breaks."""
    for name in Made().files:
        made = Made()
        made.files[name] = wrong
        judge(made.bundle())
