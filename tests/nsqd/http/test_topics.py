"""`/topic/config`: what is said, what is taken, what is refused."""

import json
from pathlib import Path
from typing import Any

from penstock.broker.context import TopicChange
from penstock.broker.topics.topic import Topic
from penstock.nsqd.dialogue import commands_of

from ..world import Running, error, ok, pub, running_with

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


def test_another_shape_is_said(nsqd: Running) -> None:
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
    status, told = ask(nsqd, "POST", "topic=t&max_age=&durability=")
    assert status == 200
    assert told["own"] == list(chosen)[1:2] + list(chosen)[3:]
    assert (told["max_age"], told["durability"], told["max_depth"]) == ("0s", "os", 5)


def test_a_full_topic_says_so_everywhere(nsqd: Running) -> None:
    assert ask(nsqd, "POST", "topic=t&max_depth=2")[0] == 200
    with nsqd.client() as client:
        client.send(pub(b"t", b"1") + pub(b"t", b"2") + pub(b"t", b"3"))
        full = b"topic depth limit of 2 messages is reached"
        assert [client.read() for _ in range(3)] == [
            ok(),
            ok(),
            error(b"E_PUB_FAILED PUB failed " + full),
        ]
    answer = nsqd.request("POST", "/pub?topic=t", b"4")
    assert (answer.status, json.loads(answer.body)["message"]) == (503, f"FAILED {full.decode()}")
    with nsqd.client() as client:
        assert client.ask(b"DPUB t 10\n\0\0\0\1x") == error(b"E_DPUB_FAILED DPUB failed " + full)
    assert nsqd.request("POST", "/topic/empty?topic=t").status == 200
    with nsqd.client() as client:
        assert client.ask(pub(b"t", b"5")) == ok()


# --- how topics get their number of partitions ---

here = running_with(flags=["--durability=os"])


def post(here: Running, target: str) -> tuple[int, str]:
    """The status, and the code of an error."""
    status, document = here.ask("POST", target)
    return status, document["message"] if document else ""


def find(here: Running, name: str) -> Topic:
    return here.daemon.broker.topics[name]


def test_as_many_as_were_asked_for(here: Running) -> None:
    assert post(here, "/topic/create?topic=t&partition_num=8") == (200, "")
    topic = find(here, "t")
    assert (sorted(topic.replicas), topic.hash_partitions) == (list(range(8)), 8)
    assert not topic.extended
    assert post(here, "/topic/create?topic=one") == (200, "")
    assert sorted(find(here, "one").replicas) == [0]


def test_another_shape_is_a_conflict(here: Running) -> None:
    post(here, "/topic/create?topic=t&partition_num=2")
    status, said = post(here, "/topic/create?topic=t&partition_num=3")
    assert status == 409
    assert said.startswith("PARTITION_NUM_DIFFERS topic t has 2; ")
    assert "/topic/partition/expand" in said
    status, said = post(here, "/topic/create?topic=t&extend=true")
    assert status == 409
    assert said.startswith("NOT_EXTENDED topic t exists and is not extended: ")
    assert len(find(here, "t").replicas) == 2


def test_the_default_is_for_whoever_makes_a_topic(tmp_path: Path) -> None:
    flags = ("--durability=os", "--default-partitions=3")
    with Running(tmp_path / "data", *flags) as here:
        assert here.request("POST", "/pub?topic=by_http", b"x").status == 200
        with here.client() as client:
            assert client.ask(b"SUB by_sub c\n") == ok()
        post(here, "/topic/create?topic=by_hand")
        post(here, "/topic/create?topic=chosen&partition_num=2")
        post(here, "/topic/create?topic=gone%23ephemeral")
        post(here, "/topic/create?topic=_pipelines")
        counts = {name: len(topic.replicas) for name, topic in here.daemon.broker.topics.items()}
        assert counts == {
            "by_http": 3, "by_sub": 3, "by_hand": 3, "chosen": 2, "gone#ephemeral": 1,
            "_pipelines": 1,
        }  # fmt: skip
    with Running(tmp_path / "data", "--durability=os", "--default-partitions=5") as here:
        assert len(find(here, "by_http").replicas) == 3  # what is there stays


def test_an_nsqlookupd_that_knows_partitions_hears_of_growth(here: Running) -> None:
    post(here, "/topic/create?topic=t&partition_num=2")
    topic = find(here, "t")
    here.call(lambda: here.daemon.broker.grow_topic(topic, 3))
    assert commands_of(TopicChange.TOPIC_RESHAPED, topic, None, True) == [
        "REGISTER t 0", "REGISTER t 1", "REGISTER t 2",
        "META t partition_num=3 extend_support=false",
    ]  # fmt: skip
    assert commands_of(TopicChange.TOPIC_RESHAPED, topic, None, False) == []


def test_headers_can_be_had_later(here: Running) -> None:
    post(here, "/topic/create?topic=t")
    assert post(here, "/topic/meta/update?topic=t") == (200, "")
    assert not find(here, "t").extended
    for _ in range(2):
        assert post(here, "/topic/meta/update?topic=t&upgradeext=true") == (200, "")
    assert find(here, "t").extended
