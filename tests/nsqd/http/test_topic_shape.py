"""How topics get their number of partitions, and headers: over HTTP, and by the daemon's option."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.context import Change
from penstock.broker.topic import Topic
from penstock.nsqd.dialogue import commands_of

from ..world import Running, ok


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os") as running:
        yield running


def post(nsqd: Running, target: str) -> tuple[int, str]:
    """The status, and the code of an error."""
    answer = nsqd.request("POST", target)
    return answer.status, json.loads(answer.body)["message"] if answer.body else ""


def find(nsqd: Running, name: str) -> Topic:
    return nsqd.daemon.broker.topics[name]


def test_as_many_as_were_asked_for(nsqd: Running) -> None:
    assert post(nsqd, "/topic/create?topic=t&partition_num=8") == (200, "")
    topic = find(nsqd, "t")
    assert (sorted(topic.replicas), topic.hash_partitions) == (list(range(8)), 8)
    assert not topic.extended
    assert post(nsqd, "/topic/create?topic=one") == (200, "")
    assert sorted(find(nsqd, "one").replicas) == [0]


def test_the_same_again_is_no_error(nsqd: Running) -> None:
    for _ in range(2):
        assert post(nsqd, "/topic/create?topic=t&partition_num=2&extend=true") == (200, "")
    assert post(nsqd, "/topic/create?topic=t") == (200, "")
    assert post(nsqd, "/topic/create?topic=t&extend=false") == (200, "")
    assert find(nsqd, "t").extended


def test_another_shape_is_a_conflict(nsqd: Running) -> None:
    post(nsqd, "/topic/create?topic=t&partition_num=2")
    status, said = post(nsqd, "/topic/create?topic=t&partition_num=3")
    assert status == 409
    assert said.startswith("PARTITION_NUM_DIFFERS topic t has 2; ")
    assert "/topic/partition/expand" in said
    status, said = post(nsqd, "/topic/create?topic=t&extend=true")
    assert status == 409
    assert said.startswith("NOT_EXTENDED topic t exists and is not extended: ")
    assert len(find(nsqd, "t").replicas) == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("partition_num=0", "INVALID_ARG_PARTITION_NUM '0': a whole number, 1 to 255"),
        ("partition_num=256", "INVALID_ARG_PARTITION_NUM '256': a whole number, 1 to 255"),
        ("partition_num=-1", "INVALID_ARG_PARTITION_NUM '-1': a whole number, 1 to 255"),
        ("partition_num=", "INVALID_ARG_PARTITION_NUM '': a whole number, 1 to 255"),
        ("partition_num=two", "INVALID_ARG_PARTITION_NUM 'two': a whole number, 1 to 255"),
        ("replicator=3",
         "INVALID_ARG_REPLICATOR '3': a node by itself, and an ephemeral topic, keep 1 copy; "
         "others need --cluster"),
        ("extend=maybe", "INVALID_ARG_EXTEND 'maybe': one of true, 1, false, 0"),
    ],
)  # fmt: skip
def test_bad_values_name_the_rule(nsqd: Running, query: str, said: str) -> None:
    assert post(nsqd, f"/topic/create?topic=t&{query}") == (400, said)
    assert "t" not in nsqd.daemon.broker.topics


def test_our_own_topics_have_one(nsqd: Running) -> None:
    status, said = post(nsqd, "/topic/create?topic=_pipelines&partition_num=2")
    assert (status, said[:31]) == (400, "INVALID_ARG_PARTITION_NUM '2': ")
    assert post(nsqd, "/topic/create?topic=_pipelines&partition_num=1") == (200, "")


def test_the_default_is_for_whoever_makes_a_topic(tmp_path: Path) -> None:
    flags = ("--durability=os", "--default-partitions=3")
    with Running(tmp_path / "data", *flags) as nsqd:
        assert nsqd.request("POST", "/pub?topic=by_http", b"x").status == 200
        with nsqd.client() as client:
            assert client.ask(b"SUB by_sub c\n") == ok()
        post(nsqd, "/topic/create?topic=by_hand")
        post(nsqd, "/topic/create?topic=chosen&partition_num=2")
        post(nsqd, "/topic/create?topic=gone%23ephemeral")
        post(nsqd, "/topic/create?topic=_pipelines")
        counts = {name: len(topic.replicas) for name, topic in nsqd.daemon.broker.topics.items()}
        assert counts == {
            "by_http": 3, "by_sub": 3, "by_hand": 3, "chosen": 2, "gone#ephemeral": 1,
            "_pipelines": 1,
        }  # fmt: skip
    with Running(tmp_path / "data", "--durability=os", "--default-partitions=5") as nsqd:
        assert len(find(nsqd, "by_http").replicas) == 3  # what is there stays


def test_an_nsqlookupd_that_knows_partitions_hears_of_growth(nsqd: Running) -> None:
    post(nsqd, "/topic/create?topic=t&partition_num=2")
    topic = find(nsqd, "t")
    nsqd.call(lambda: nsqd.daemon.broker.grow_topic(topic, 3))
    assert commands_of(Change.TOPIC_RESHAPED, topic, None, True) == [
        "REGISTER t 0", "REGISTER t 1", "REGISTER t 2",
        "META t partition_num=3 extend_support=false",
    ]  # fmt: skip
    assert commands_of(Change.TOPIC_RESHAPED, topic, None, False) == []


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/topic/partition/expand", 400, "MISSING_ARG_TOPIC"),
        ("/topic/partition/expand?topic=none&partition_num=2", 404, "TOPIC_NOT_FOUND"),
        ("/topic/partition/expand?topic=t", 400, "MISSING_ARG_PARTITION_NUM"),
        ("/topic/partition/expand?topic=t&partition_num=0", 400, "INVALID_ARG_PARTITION_NUM '0'"),
        ("/topic/partition/expand?topic=t&partition_num=9&rehash=x", 400, "INVALID_ARG_REHASH 'x'"),
        ("/topic/partition/expand?topic=t&partition_num=1", 409, "GROWTH_REFUSED topic t has 2 "),
        ("/topic/meta/update?topic=none", 404, "TOPIC_NOT_FOUND"),
        ("/topic/meta/update?topic=t&upgradeext=2", 400, "INVALID_ARG_UPGRADEEXT '2'"),
    ],
)
def test_growth_that_is_refused(nsqd: Running, target: str, status: int, said: str) -> None:
    post(nsqd, "/topic/create?topic=t&partition_num=2")
    answered, message = post(nsqd, target)
    assert (answered, message[: len(said)]) == (status, said)
    assert len(find(nsqd, "t").replicas) == 2


def test_headers_can_be_had_later(nsqd: Running) -> None:
    post(nsqd, "/topic/create?topic=t")
    assert post(nsqd, "/topic/meta/update?topic=t") == (200, "")
    assert not find(nsqd, "t").extended
    for _ in range(2):
        assert post(nsqd, "/topic/meta/update?topic=t&upgradeext=true") == (200, "")
    assert find(nsqd, "t").extended
