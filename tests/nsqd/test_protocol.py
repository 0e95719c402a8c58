"""Conformance of the V2 protocol, byte by byte, over real sockets."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replicas.cluster_world import Cluster
from penstock.broker.replicas.clustered_topic import when_held
from penstock.errors import WriteRefused
from penstock.kernel import BadPub, Verb
from penstock.log.partition import PartitionLog
from penstock.nsqd.publishing import bad_pub
from penstock.nsqd.waits import Waits
from penstock.wire.errors import Fault, WireFault

from .world import V2, Running, dpub, error, eventually, mpub, ok, pub


@pytest.fixture
def client(nsqd: Running) -> Iterator[V2]:
    with nsqd.client() as connected:
        yield connected


def test_publishing_to_a_stopped_topic_names_the_reason(client: V2, nsqd: Running) -> None:
    assert client.ask(pub("stopped", b"x")) == ok()

    def stop() -> None:
        nsqd.daemon.broker.topics["stopped"].leader().group.stop("a bad disk")

    nsqd.call(stop)
    assert client.ask(pub("stopped", b"x")) == error(b"E_PUB_FAILED PUB failed a bad disk")
    assert client.is_closed()
    for command, code in ((mpub("stopped", [b"x"]), b"MPUB"), (dpub("stopped", 5, b"x"), b"DPUB")):
        assert nsqd.answer_to(command) == error(b"E_%b_FAILED %b failed a bad disk" % (code, code))


def test_a_write_that_was_refused_names_the_reason_and_the_next_one_may_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client, nsqd.client() as other:
        assert client.ask(pub("full_disk", b"x")) == ok()

        def refuse(*_: object) -> None:
            raise WriteRefused("/data", "no space left on device")

        monkeypatch.setattr(PartitionLog, "write", refuse)
        assert client.ask(pub("full_disk", b"x")) == error(
            b"E_PUB_FAILED PUB failed no space left on device"
        )
        assert client.is_closed()
        answer = nsqd.request("POST", "/pub?topic=full_disk", b"x")
        text = b'{"message":"FAILED /data: no space left on device"}'
        assert (answer.status, answer.body) == (503, text)
        answer = nsqd.request("GET", "/ping")
        health = "NOK - topic full_disk: no space left on device"
        assert (answer.status, answer.body.decode()) == (500, health)
        assert nsqd.stats()["health"] == health
        monkeypatch.undo()
        assert other.ask(pub("full_disk", b"x")) == ok()
        assert nsqd.request("GET", "/ping").body == b"OK"


def test_every_malformed_publish_has_its_fault() -> None:
    texts = {
        bad_pub(verb, kind, b"t", 1, 2).data for verb in (Verb.PUB, Verb.MPUB) for kind in BadPub
    }
    assert len(texts) == 2 * len(BadPub) - 2  # a message is too big, alone or among others


# --- clients that say nothing, or read nothing ---


def test_without_heartbeats_there_is_no_deadline(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        client.identify(heartbeat_interval=-1)
        assert client.is_silent(2.3)


def test_a_client_that_does_not_read_is_hung_up_on(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client(heartbeat_interval=1000) as client:
        client.send(mpub("deaf", [b"x" * 100_000] * 40) * 4 + b"SUB deaf c\nRDY 2500\n")

        def is_gone() -> bool:
            with contextlib.suppress(ConnectionError):  # that it is gone, it may hear first
                client.send(b"NOP\n")
            return nsqd.stats()["producers"] is None

        eventually(is_gone)


# --- what a command waits for: the other replicas of a partition ---


class Client:
    """A session that only waits and is resumed; its commands' errors are kept."""

    def __init__(self) -> None:
        self.waits, self.gone, self.awaits = False, False, None
        self.resumed, self.answers = 0, list[object]()
        self.conn = SimpleNamespace(resume=self._resume)
        nothing: Any = None
        self.commands = Waits(nothing, nothing, self._guard)

    def _resume(self) -> None:
        self.resumed += 1

    def _guard(self, session: Any, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(session, *arguments)
        except WireFault as error:
            self.answers.append(error)

    def wait(self, cluster: Cluster) -> None:
        session: Any = self
        leaders = cluster.nodes[0].topic.leaders
        ask, held = partial(when_held, leaders), partial(self.answers.append, "held")
        self.commands.until(session, Fault.SUB_FAILED, ask, held)


def test_a_change_that_is_replicated_already_is_answered_at_once(cluster: Cluster) -> None:
    Client().wait(cluster)
    cluster.run()
    client = Client()
    client.wait(cluster)
    assert (client.answers, client.waits, client.resumed) == (["held"], False, 0)


def test_no_command_is_read_until_the_change_is_replicated(cluster: Cluster) -> None:
    client = Client()
    cluster.nodes[0].topic.find_channel("billing").empty()
    cluster.publish(0, b"a")
    cluster.cut.add(2)
    cluster.nodes[0].topic.find_channel("billing").seek({0: 0})
    client.wait(cluster)
    cluster.run()
    assert (client.answers, client.waits) == ([], True)
    cluster.cut.clear()
    cluster.unlink(cluster.nodes[2])
    cluster.link(cluster.nodes[2])
    cluster.run()
    assert (client.answers, client.waits, client.resumed) == (["held"], False, 1)


def test_a_leadership_that_ends_is_an_error_of_the_command(cluster: Cluster) -> None:
    client = Client()
    cluster.cut.add(0)
    cluster.nodes[0].topic.find_channel("billing").empty()
    client.wait(cluster)
    cluster.cut.clear()
    cluster.elect(2)
    (error,) = client.answers
    assert isinstance(error, WireFault)
    assert "ask again" in str(error)


def test_a_gone_client_gets_no_answer(cluster: Cluster) -> None:
    client = Client()
    cluster.cut.add(2)
    cluster.nodes[0].topic.find_channel("billing").empty()
    client.wait(cluster)
    client.gone = True
    cluster.cut.clear()
    cluster.elect(2)
    assert client.answers == []
