"""Publishes over V2 while the disk is slow: so many bytes wait, and more are refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import limits
from penstock.log.sync import SyncJob

from .world import V2, Running, error, eventually, ok, pub

BODY = b"x" * 2_000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is not set, no sync ends."""
    found = threading.Event()
    run = SyncJob.run

    def wait_and_run(job: SyncJob) -> None:
        found.wait()
        run(job)

    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 1_000)
    monkeypatch.setattr(limits, "SYNC_AT_ONCE_NS", 0)  # all in threads
    monkeypatch.setattr(SyncJob, "run", wait_and_run)
    return found


@pytest.fixture
def nsqd(tmp_path: Path, gate: threading.Event) -> Iterator[Running]:
    with Running(tmp_path / "data", "--max-pub-waiting-size=3000") as running:
        assert running.request("POST", "/topic/create?topic=t").status == 200
        try:
            yield running
        finally:
            gate.set()


def crowd(nsqd: Running, stack: ExitStack) -> list[V2]:
    """One publish is being synced, one has the open batch, and one waits for room."""

    def reached(read: Callable[[Any], int]) -> bool:
        return nsqd.call(lambda: read(nsqd.daemon.broker.topics["t"].leader().tail)) > 0

    clients = []
    for read in (
        lambda tail: tail.sealed_count,
        lambda tail: tail.open_count,
        lambda tail: tail.waiting_bytes,
    ):
        client = stack.enter_context(nsqd.client())
        client.send(pub("t", BODY))
        eventually(partial(reached, read))
        clients.append(client)
    return clients


def test_publishes_beyond_the_bound_are_refused(nsqd: Running, gate: threading.Event) -> None:
    with ExitStack() as stack:
        clients = crowd(nsqd, stack)
        code = b"E_PUB_TOO_MUCH_WAITING %d bytes wait to be stored, 3000 may"
        size = len(BODY).to_bytes(4, "big")
        for command, waiting in (
            (pub("t", BODY), 4_000),
            (b"PUB_TRACE t\n" + (2_008).to_bytes(4, "big") + b"\0" * 8 + BODY, 4_000),
            (b"DPUB t 1000\n" + size + BODY, 5_000),  # the open batch is longer than it should be
        ):
            with nsqd.client() as late:
                assert late.ask(command) == error(code % waiting)
                assert late.is_closed()
        answer = nsqd.request("POST", "/pub?topic=t", BODY)
        assert (answer.status, answer.body) == (429, b'{"message":"E_PUB_TOO_MUCH_WAITING"}')
        with nsqd.client() as other:  # another topic waits for no one
            other.send(pub("u", BODY))
            gate.set()
            assert other.read() == ok()
        assert [client.read() for client in clients] == [ok()] * 3
        assert nsqd.answer_to(pub("t", BODY)) == ok()
