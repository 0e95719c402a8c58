"""What a command waits for: the other replicas of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.hostedworld import Cluster
from penstock import kernel
from penstock.nsqd.waits import Waits
from penstock.wire.errors import Fault, WireFault


class Client:
    """A session that only waits and is resumed; its commands' errors are kept."""

    def __init__(self) -> None:
        self.waits, self.gone, self.awaits = False, False, None
        self.resumed, self.told = 0, list[object]()
        self.conn = SimpleNamespace(resume=self._resume)
        nothing: Any = None
        self.commands = Waits(nothing, nothing, self._guard)

    def _resume(self) -> None:
        self.resumed += 1

    def _guard(self, session: Any, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(session, *arguments)
        except WireFault as error:
            self.told.append(error)

    def wait(self, cluster: Cluster) -> None:
        session: Any = self
        leaders = cluster.nodes[0].topic.leaders
        self.commands.until_held(
            session, leaders, Fault.SUB_FAILED, lambda: self.told.append("held")
        )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(kernel)
    made.place([0])
    yield made
    for node in made.up():
        node.engine.close()


def test_what_is_held_already_is_answered_at_once(cluster: Cluster) -> None:
    Client().wait(cluster)
    cluster.run()
    client = Client()
    client.wait(cluster)
    assert (client.told, client.waits, client.resumed) == (["held"], False, 0)


def test_no_command_is_read_until_the_set_has_it(cluster: Cluster) -> None:
    client = Client()
    cluster.nodes[0].topic.find_channel("billing").empty()
    cluster.publish(0, b"a")
    cluster.cut.add(2)
    cluster.nodes[0].topic.find_channel("billing").seek(0)
    client.wait(cluster)
    cluster.run()
    assert (client.told, client.waits) == ([], True)
    cluster.cut.clear()
    cluster.unlink(cluster.nodes[2])
    cluster.link(cluster.nodes[2])
    cluster.run()
    assert (client.told, client.waits, client.resumed) == (["held"], False, 1)


def test_an_office_that_ends_is_an_error_of_the_command(cluster: Cluster) -> None:
    client = Client()
    cluster.cut.add(0)
    cluster.nodes[0].topic.find_channel("billing").empty()
    client.wait(cluster)
    cluster.cut.clear()
    cluster.elect(2)
    (error,) = client.told
    assert isinstance(error, WireFault)
    assert "ask again" in str(error)


def test_a_client_that_has_gone_hears_nothing(cluster: Cluster) -> None:
    client = Client()
    cluster.cut.add(2)
    cluster.nodes[0].topic.find_channel("billing").empty()
    client.wait(cluster)
    client.gone = True
    cluster.cut.clear()
    cluster.elect(2)
    assert client.told == []
