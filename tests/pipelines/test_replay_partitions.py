"""Replays of a topic with four partitions, of which one has 90 % of the messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from penstock import limits
from penstock.kernel import Section, encode_batch, murmur3_32
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Stage
from penstock.spark.brokerapi import BrokerApi

from .node import Node, bodies_of
from .test_replay import Replay

COUNTS = (30, 540, 20, 10)


class Filled(Node):
    def create(self, topic: str, partitions: int) -> None:
        self.daemon.post(f"/topic/create?topic={topic}&partition_num={partitions}")

    def fill(self, topic: str) -> None:
        """Each third message has a key, one of five."""
        with BrokerApi(self.url) as api:
            stages = []
            for number, count in enumerate(COUNTS):
                bodies = [b"%d-%d" % (number, n) for n in range(count)]
                keys = {n: key_of(bodies[n]) for n in range(0, count, 3)}
                data = encode_batch(bodies, 0, 0, 0, sections={Section.KEY: keys})
                stages.append(Stage(topic, number, "x"))
                api.ask(calls.stage(stages[-1], data))
            assert api.commit("filler", 0, stages).messages == sum(COUNTS)


def key_of(body: bytes) -> bytes:
    return b"k%d" % (int(body.split(b"-")[1]) % 5)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with Daemon(tmp_path_factory.mktemp("nsqd")) as daemon:
        node = Filled(daemon)
        node.create("orders", 4)
        node.fill("orders")
        yield node


@pytest.fixture(autouse=True)
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLAY_TASK_MESSAGES", 20)


def source(number: int) -> list[bytes]:
    return [b"%d-%d" % (number, n) for n in range(COUNTS[number])]


def test_each_keeps_its_number(spark: SparkSession, node: Filled, tmp_path: Path) -> None:
    """Stopped in its midst, and gone on with."""
    node.create("same", 6)
    replays = Replay(spark, node, tmp_path)
    given: dict[str, Any] = {"to": "same", "name": "same", "topics": ("orders",), "chunk": 100}
    replays.run(stop_after=3, **given)
    assert 0 < sum(map(len, bodies_of(node.url, "same"))) < sum(COUNTS)
    assert replays.state.what == "1 of 4 partitions"
    assert replays.state.logs["orders", 0] == (30, 30)
    read_to, end = replays.state.logs["orders", 1]
    assert (0 < read_to < 540, end) == (True, 540)
    replays.run(**given)
    assert replays.state.what == "4 of 4 partitions"
    assert replays.state.left_seconds == 0
    assert bodies_of(node.url, "same") == [*(source(number) for number in range(4)), [], []]


def test_a_target_with_fewer(spark: SparkSession, node: Filled, tmp_path: Path) -> None:
    """It grows in its midst: that is for the next replay."""
    node.create("fewer", 2)
    replays = Replay(spark, node, tmp_path)
    given: dict[str, Any] = {"to": "fewer", "name": "fewer", "topics": ("orders",), "chunk": 100}
    replays.run(stop_after=6, **given)
    assert '"partitions":2' in (replays.plans / "fewer.json").read_text()
    node.daemon.post("/topic/partition/expand?topic=fewer&partition_num=4")
    replays.run(**given)
    found = bodies_of(node.url, "fewer")
    for target in range(2):
        for number in range(4):
            mine = [body for body in found[target] if body.startswith(b"%d-" % number)]
            if number < 2:
                assert mine == (source(number) if number == target else [])
            else:
                assert mine == [
                    body for n, body in enumerate(source(number))
                    if (n % 3 and number % 2 == target)
                    or (n % 3 == 0 and murmur3_32(key_of(body)) % 2 == target)
                ]  # fmt: skip
    assert found[2:] == [[], []]
    wanted = [body for number in range(4) for body in source(number)]
    assert sorted(body for each in found for body in each) == sorted(wanted)
