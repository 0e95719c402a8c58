"""Conformance of the V2 protocol, byte by byte, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Refused, StorageError, WriteRefused
from penstock.log.partition import PartitionLog
from penstock.wire import frames
from penstock.wire.errors import reason_of

from .world import V2, Running, dpub, error, mpub, ok, pub

SUB = b"SUB conform c\n"

IDENTIFY = b"IDENTIFY\n" + frames.with_size(b"{}")
AUTH = b"AUTH\n" + frames.with_size(b"secret")


@pytest.fixture
def client(nsqd: Running) -> Iterator[V2]:
    with nsqd.client() as connected:
        yield connected


def test_another_client_does_not_own_the_message(client: V2, nsqd: Running) -> None:
    client.send(pub(b"owner", b"x") + b"SUB owner c\nRDY 1\n")
    assert [client.read(), client.read()] == [ok(), ok()]
    message_id = client.message().id
    with nsqd.client() as other:
        assert other.ask(b"SUB owner c\n") == ok()
        for verb, tail in ((b"FIN", b""), (b"REQ", b" 0"), (b"TOUCH", b"")):
            assert other.ask(b"%b %b%b\n" % (verb, message_id, tail)) == error(
                b"E_%b_FAILED %b %b failed client does not own message" % (verb, verb, message_id)
            )
        assert other.is_silent()


def test_a_consumer_too_many(tmp_path: Path) -> None:
    with Running(tmp_path, "--max-channel-consumers=1") as nsqd, nsqd.client() as first:
        assert first.ask(b"SUB t c\n") == ok()
        with nsqd.client() as second:
            assert second.ask(b"SUB t c\n") == error(
                b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"
            )
            assert second.is_closed()


def test_publishing_to_a_stopped_topic_names_the_reason(client: V2, nsqd: Running) -> None:
    assert client.ask(pub(b"stopped", b"x")) == ok()

    def stop() -> None:
        nsqd.daemon.broker.topics["stopped"].leader().group.stop("a bad disk")

    nsqd.call(stop)
    assert client.ask(pub(b"stopped", b"x")) == error(b"E_PUB_FAILED PUB failed a bad disk")
    assert client.is_closed()
    for command, code in (
        (mpub(b"stopped", [b"x"]), b"MPUB"),
        (dpub(b"stopped", 5, b"x"), b"DPUB"),
    ):
        with nsqd.client() as other:
            assert other.ask(command) == error(b"E_%b_FAILED %b failed a bad disk" % (code, code))


def test_a_write_that_was_refused_names_the_reason_and_the_next_one_may_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client, nsqd.client() as other:
        assert client.ask(pub(b"full_disk", b"x")) == ok()

        def refuse(*_: object) -> None:
            raise WriteRefused("/data", "no space left on device")

        monkeypatch.setattr(PartitionLog, "write", refuse)
        assert client.ask(pub(b"full_disk", b"x")) == error(
            b"E_PUB_FAILED PUB failed no space left on device"
        )
        assert client.is_closed()
        answer = nsqd.request("POST", "/pub?topic=full_disk", b"x")
        assert (answer.status, b"no space left on device" in answer.body) == (503, True)
        assert (
            nsqd.request("GET", "/ping").body == b"NOK - topic full_disk: no space left on device"
        )
        monkeypatch.undo()
        assert other.ask(pub(b"full_disk", b"x")) == ok()
        assert nsqd.request("GET", "/ping").body == b"OK"


def test_reasons() -> None:
    assert reason_of(Refused("exiting")) == b"exiting"
    assert reason_of(StorageError("/d", "is full")) == b"/d: is full"
