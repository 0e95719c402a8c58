"""Heartbeats, deadlines, timeouts and held output, on the real clock with short intervals.

What is measured is that nothing comes too early. That it comes at all is what `read` waits for, and
it waits longer than a loaded machine needs. Where a fault would make it come later, the interval is
so long that the bound on the time leaves a loaded machine enough too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .world import HEARTBEAT, Running, eventually, mpub, ok, pub

FAST = ("--msg-timeout=150ms", "--max-msg-timeout=5s")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("hasty"), *FAST) as running:
        yield running


def test_a_silent_client_gets_two_heartbeats_and_the_end(nsqd: Running) -> None:
    started = time.monotonic()
    with nsqd.client(heartbeat_interval=1500) as client:
        assert client.read() == HEARTBEAT
        first = time.monotonic() - started
        assert client.read() == HEARTBEAT
        second = time.monotonic() - started
        assert client.is_closed()
    assert first > 1.45
    assert second > 2.95


def test_without_heartbeats_there_is_no_deadline_and_no_sub(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        client.identify(heartbeat_interval=-1)
        assert client.is_silent(2.3)
        assert client.ask(b"SUB quiet c\n").data == (
            b"E_INVALID cannot SUB with heartbeats disabled"
        )


def test_a_full_buffer_is_sent_before_its_time(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=30_000, output_buffer_size=64) as client:
        client.send(b"SUB full c\nRDY 10\n")
        assert client.read() == ok()
        with nsqd.client() as producer:
            assert producer.ask(pub(b"full", b"y" * 100)) == ok()
        assert client.message(15).body == b"y" * 100


def test_a_client_that_does_not_read_is_hung_up_on(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client(heartbeat_interval=1000) as client:
        client.send(mpub(b"deaf", [b"x" * 100_000] * 40) * 4 + b"SUB deaf c\nRDY 2500\n")

        def is_gone() -> bool:
            with contextlib.suppress(ConnectionError):  # that it is gone, it may hear first
                client.send(b"NOP\n")
            return nsqd.stats()["producers"] is None

        assert eventually(is_gone)
