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


def test_any_command_keeps_a_client_alive_and_heartbeats_go_on(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1500) as client:
        for _ in range(3):
            assert client.read() == HEARTBEAT
            client.send(b"NOP\n")
        assert client.ask(pub(b"alive", b"x")) == ok()


def test_the_deadline_counts_from_the_last_command(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        time.sleep(0.5)
        started = time.monotonic()
        client.send(b"NOP\n")
        heard = []
        with contextlib.suppress(EOFError):
            while True:
                heard.append(client.read())
        assert set(heard) == {HEARTBEAT}
        assert time.monotonic() - started > 1.95


def test_without_heartbeats_there_is_no_deadline_and_no_sub(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        client.identify(heartbeat_interval=-1)
        assert client.is_silent(2.3)
        assert client.ask(b"SUB quiet c\n").data == (
            b"E_INVALID cannot SUB with heartbeats disabled"
        )


def test_a_message_times_out_on_time(hasty: Running) -> None:
    with hasty.client() as client:
        client.send(pub(b"timeout", b"x") + b"SUB timeout c\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        started = time.monotonic()
        client.send(b"RDY 1\n")
        first = client.message()
        second = client.message()
        waited = time.monotonic() - started
        client.send(b"FIN %b\n" % second.id)
        row = hasty.channel("timeout", "c")
    assert (first.attempts, second.attempts, second.id) == (1, 2, first.id)
    assert waited > 0.145
    assert row["timeout_count"] >= 1
    assert row["requeue_count"] == 0


def test_touch_gives_more_time(hasty: Running) -> None:
    with hasty.client() as client:
        client.identify(msg_timeout=2000)
        client.send(pub(b"touched", b"x") + b"SUB touched c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        message = client.message()
        time.sleep(0.3)
        started = time.monotonic()
        client.send(b"TOUCH %b\n" % message.id)
        assert client.message().attempts == 2
        assert time.monotonic() - started > 1.95


def test_a_client_chooses_its_own_message_timeout(hasty: Running) -> None:
    with hasty.client(msg_timeout=1000) as client:
        client.send(pub(b"own", b"x") + b"SUB own c\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        started = time.monotonic()
        client.send(b"RDY 1\n")
        client.message()
        client.message()
        assert time.monotonic() - started > 0.98


def test_messages_of_a_gone_client_time_out_to_the_next(hasty: Running) -> None:
    with hasty.client(msg_timeout=1000) as client:
        client.send(pub(b"left", b"x") + b"SUB left c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.message()
    with hasty.client() as other:
        other.send(b"SUB left c\nRDY 1\n")
        assert other.read() == ok()
        assert other.message().attempts == 2


def test_a_default_client_waits_for_nothing(nsqd: Running) -> None:
    delays = []
    with nsqd.client(output_buffer_timeout=250, output_buffer_size=16384) as consumer:
        consumer.send(b"SUB prompt c\nRDY 100\n")
        assert consumer.read() == ok()
        with nsqd.client() as producer:
            for _ in range(30):
                started = time.monotonic()
                producer.send(pub(b"prompt", b"x"))
                consumer.message()
                delays.append(time.monotonic() - started)
                assert producer.read() == ok()
    assert sorted(delays)[15] < 0.2


def test_a_longer_output_timeout_is_honoured(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=500, output_buffer_size=16384) as client:
        client.send(b"SUB held c\nRDY 10\nNOP\n")
        assert client.read() == ok()
        with nsqd.client() as producer:
            started = time.monotonic()
            assert producer.ask(pub(b"held", b"x")) == ok()
        assert client.message().body == b"x"
        assert time.monotonic() - started > 0.45


def test_an_answer_does_not_wait_with_held_messages(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=30_000, output_buffer_size=16384) as client:
        client.send(b"SUB impatient c\nRDY 10\n")
        assert client.read() == ok()
        for _ in range(3):
            started = time.monotonic()
            client.send(pub(b"impatient", b"x"))
            while client.read() != ok():
                pass
            assert time.monotonic() - started < 15


def test_a_full_buffer_is_sent_before_its_time(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=30_000, output_buffer_size=64) as client:
        client.send(b"SUB full c\nRDY 10\n")
        assert client.read() == ok()
        with nsqd.client() as producer:
            assert producer.ask(pub(b"full", b"y" * 100)) == ok()
        assert client.message(15).body == b"y" * 100


def test_sampling_drops_the_rest_for_good(nsqd: Running) -> None:
    count = 1000
    with nsqd.client(sample_rate=30) as client:
        client.send(mpub(b"sampled", [b"x"] * count) + b"SUB sampled c\nRDY 2500\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        while (row := nsqd.channel("sampled", "c"))["depth"]:
            time.sleep(0.01)
        kept = row["in_flight_count"]
        for _ in range(kept):
            client.send(b"FIN %b\n" % client.message().id)
        assert client.is_silent(0.2)
    assert 0.2 * count < kept < 0.42 * count


def test_a_client_that_does_not_read_is_hung_up_on(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client(heartbeat_interval=1000) as client:
        client.send(mpub(b"deaf", [b"x" * 100_000] * 40) * 4 + b"SUB deaf c\nRDY 2500\n")

        def is_gone() -> bool:
            with contextlib.suppress(ConnectionError):  # that it is gone, it may hear first
                client.send(b"NOP\n")
            return nsqd.stats()["producers"] is None

        assert eventually(is_gone)
