"""`/topic/config`: what is said, what is taken, what is refused."""

from pathlib import Path
from typing import Any

from penstock.broker.context import TopicChange
from penstock.nsqd.dialogue import commands_of

from ..world import Running, ok, running_with

DEFAULTS = {
    "durability": "os",
    "max_depth": 1000,
    "max_age": "0s",
    "retain_age": "24h0m0s",
    "retain_bytes": 1 << 30,
    "trace_rate": 0.0,
    "ordered": False,
    "disable_channel_auto_create": False,
}

nsqd = running_with("/topic/create?topic=t", flags=["--durability=os", "--max-depth=1000"])


def ask(nsqd: Running, method: str, query: str) -> tuple[int, Any]:
    return nsqd.ask(method, f"/topic/config?{query}")


def test_a_different_shape_is_reported(nsqd: Running) -> None:
    nsqd.request("POST", "/topic/create?topic=four&partition_num=4&extend=true")
    shape = {"partitions": 4, "hash_partitions": 4, "extended": True}
    assert ask(nsqd, "GET", "topic=four")[1] == {
        "topic_name": "four", **DEFAULTS, "own": [], **shape,
    }  # fmt: skip
    nsqd.request("POST", "/topic/create?topic=one&extend=true")
    assert ask(nsqd, "GET", "topic=one")[1]["extended"] is True
    assert "partitions" not in ask(nsqd, "GET", "topic=one")[1]


def test_settings_are_taken_together_and_given_back(nsqd: Running) -> None:
    query = (
        "topic=t&durability=disk&max_depth=5&max_age=90s&retain_age=0&retain_bytes=7&trace_rate=0.5"
        "&ordered=true&disable_channel_auto_create=true"
    )
    chosen = {
        "durability": "disk",
        "max_depth": 5,
        "max_age": "1m30s",
        "retain_age": "0s",
        "retain_bytes": 7,
        "trace_rate": 0.5,
        "ordered": True,
        "disable_channel_auto_create": True,
    }
    expected = (200, {"topic_name": "t", **chosen, "own": list(chosen)})
    assert ask(nsqd, "POST", query) == expected
    assert ask(nsqd, "GET", "topic=t") == expected
    status, answer = ask(nsqd, "POST", "topic=t&max_age=&durability=")
    assert status == 200
    assert answer["own"] == list(chosen)[1:2] + list(chosen)[3:]
    assert (answer["max_age"], answer["durability"], answer["max_depth"]) == ("0s", "os", 5)


# --- how topics get their number of partitions ---


def test_the_default_applies_to_new_topics(tmp_path: Path) -> None:
    flags = ("--durability=os", "--default-partitions=3")
    with Running(tmp_path / "data", *flags) as here:
        assert here.request("POST", "/pub?topic=by_http", b"x").status == 200
        assert here.answer_to(b"SUB by_sub c\n") == ok()
        here.post("/topic/create?topic=by_hand", "/topic/create?topic=chosen&partition_num=2")
        here.post("/topic/create?topic=gone%23ephemeral", "/topic/create?topic=_pipelines")
        counts = {name: len(topic.replicas) for name, topic in here.daemon.broker.topics.items()}
        assert counts == {
            "by_http": 3, "by_sub": 3, "by_hand": 3, "chosen": 2, "gone#ephemeral": 1,
            "_pipelines": 1,
        }  # fmt: skip
    with Running(tmp_path / "data", "--durability=os", "--default-partitions=5") as here:
        assert len(here.daemon.broker.topics["by_http"].replicas) == 3  # what is there stays


def test_nsqlookupd_learns_of_added_partitions(nsqd: Running) -> None:
    topic = nsqd.daemon.broker.topics["t"]
    nsqd.call(lambda: nsqd.daemon.broker.grow_topic(topic, 3))
    assert commands_of(TopicChange.TOPIC_RESHAPED, topic, None, True) == [
        "REGISTER t 0", "REGISTER t 1", "REGISTER t 2",
        "META t partition_num=3 extend_support=false",
    ]  # fmt: skip
    assert commands_of(TopicChange.TOPIC_RESHAPED, topic, None, False) == []
