"""nsqd is asked about single messages, by dry runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.daemon import Daemon
from penstock.nsqdapi.calls import Move
from penstock.pipelines.audit.asking import Answer, Asker
from penstock.spark.brokerapi import BrokerApi

from ..node import Node, numbered


class Moving:
    """A channel of which others finish messages all the time; it holds still after some asks."""

    def __init__(self, restless: int) -> None:
        self.asked, self._restless = 0, restless

    def message(self, topic: str, offset: int, partition: int) -> dict[str, Any]:
        return {"id": "00000000000000ab"}

    def move(self, topic: str, channel: str, offset: int, partition: int) -> Move:
        self.asked += 1
        left = max(self._restless - self.asked, 0)
        return Move(100, 0, left + (offset > 7))


@pytest.mark.parametrize(("restless", "said"), [(0, Answer.HELD), (5, Answer.HELD),
                                                (1000, Answer.UNKNOWN)])  # fmt: skip
def test_a_channel_that_moves_is_asked_again(restless: int, said: Answer) -> None:
    api: Any = Moving(restless)
    asker = Asker(api, "orders")
    assert asker("mail", 0, 7, "00000000000000ab") is said


def test_a_channel_is_asked_about_one_partition(daemon: Daemon) -> None:
    node = Node(daemon)
    daemon.post("/topic/create?topic=orders&partition_num=4")
    daemon.post("/channel/create?topic=orders&channel=mail")
    node.publish_to("orders", {1: numbered(3), 3: numbered(2)})
    with BrokerApi(node.url) as api, daemon.client() as consumer:
        asker = Asker(api, "orders")
        consumer.identify()
        consumer.sub("orders", "mail")
        consumer.rdy(5)
        taken = consumer.messages(5)
        where = {
            str(api.message("orders", offset, number)["id"]): (number, offset)
            for number, offset in ((1, 0), (1, 1), (1, 2), (3, 0), (3, 1))
        }
        done = {(1, 0), (3, 1)}
        for message in taken:
            if where[message.id.decode()] in done:
                consumer.fin(message.id)
        consumer.settle()
        for id, (number, offset) in where.items():
            wanted = Answer.DONE if (number, offset) in done else Answer.HELD
            assert asker("mail", number, offset, id) is wanted
            if offset < 2:  # of the other partition it is another message
                assert asker("mail", 4 - number, offset, id) is Answer.GONE


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "nsqd") as running:
        yield running
