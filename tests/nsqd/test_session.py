"""Heartbeats, deadlines, timeouts and held output, on the real clock with short intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .world import HEARTBEAT, Running, mpub, ok, pub

FAST = ("--msg-timeout=150ms", "--max-msg-timeout=2s")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("hasty"), *FAST) as running:
        yield running


def test_a_silent_client_gets_two_heartbeats_and_the_end(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        started = time.monotonic()
        assert client.read() == HEARTBEAT
        first = time.monotonic() - started
        assert client.read() == HEARTBEAT
        second = time.monotonic() - started
        assert client.is_closed()
        end = time.monotonic() - started
    assert 0.95 < first < 1.5
    assert 1.95 < second < 2.6
    assert 1.95 < end < 3.0


def test_any_command_keeps_a_client_alive_and_heartbeats_go_on(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        for _ in range(3):
            assert client.read() == HEARTBEAT
            client.send(b"NOP\n")
        time.sleep(0.3)
        assert client.ask(pub(b"alive", b"x")) == ok()


def test_the_deadline_counts_from_the_last_command(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        time.sleep(0.5)
        client.send(b"NOP\n")
        started = time.monotonic()
        assert client.read() == HEARTBEAT
        assert client.read() == HEARTBEAT
        assert client.is_closed()
        assert 1.9 < time.monotonic() - started < 3.0


def test_without_heartbeats_there_is_no_deadline_and_no_sub(nsqd: Running) -> None:
    with nsqd.client(heartbeat_interval=1000) as client:
        client.identify(heartbeat_interval=-1)
        assert client.is_silent(2.3)
        assert client.ask(b"SUB quiet c\n").data == (
            b"E_INVALID cannot SUB with heartbeats disabled"
        )


def test_a_message_times_out_on_time(hasty: Running) -> None:
    with hasty.client() as client:
        client.send(pub(b"timeout", b"x") + b"SUB timeout c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        first = client.message()
        started = time.monotonic()
        second = client.message()
        waited = time.monotonic() - started
    assert (first.attempts, second.attempts, second.id) == (1, 2, first.id)
    assert 0.14 < waited < 0.4
    row = hasty.channel("timeout", "c")
    assert (row["timeout_count"], row["requeue_count"]) == (1, 0)


def test_touch_gives_more_time(hasty: Running) -> None:
    with hasty.client() as client:
        client.send(pub(b"touched", b"x") + b"SUB touched c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        message = client.message()
        started = time.monotonic()
        for _ in range(3):
            time.sleep(0.1)
            client.send(b"TOUCH %b\n" % message.id)
        assert client.message().attempts == 2
        assert 0.43 < time.monotonic() - started < 0.8


def test_a_client_chooses_its_own_message_timeout(hasty: Running) -> None:
    with hasty.client(msg_timeout=1000) as client:
        client.send(pub(b"own", b"x") + b"SUB own c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.message()
        started = time.monotonic()
        client.message()
        assert 0.98 < time.monotonic() - started < 1.4


def test_messages_of_a_gone_client_time_out_to_the_next(hasty: Running) -> None:
    with hasty.client() as client:
        client.send(pub(b"left", b"x") + b"SUB left c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.message()
    with hasty.client() as other:
        other.send(b"SUB left c\nRDY 1\n")
        assert other.read() == ok()
        assert other.message(0.5).attempts == 2


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
    assert sorted(delays)[15] < 0.02


def test_a_longer_output_timeout_is_honoured(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=500, output_buffer_size=16384) as client:
        client.send(b"SUB held c\nRDY 10\nNOP\n")
        assert client.read() == ok()
        with nsqd.client() as producer:
            assert producer.ask(pub(b"held", b"x")) == ok()
        started = time.monotonic()
        assert client.message().body == b"x"
        assert 0.4 < time.monotonic() - started < 1.0


def test_an_answer_does_not_wait_with_held_messages(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=3000, output_buffer_size=16384) as client:
        client.send(b"SUB impatient c\nRDY 10\n")
        assert client.read() == ok()
        for _ in range(3):
            started = time.monotonic()
            client.send(pub(b"impatient", b"x"))
            while client.read() != ok():
                pass
            assert time.monotonic() - started < 1.0


def test_a_full_buffer_is_sent_before_its_time(nsqd: Running) -> None:
    with nsqd.client(output_buffer_timeout=5000, output_buffer_size=64) as client:
        client.send(b"SUB full c\nRDY 10\n")
        assert client.read() == ok()
        with nsqd.client() as producer:
            assert producer.ask(pub(b"full", b"y" * 100)) == ok()
        assert client.message(1.0).body == b"y" * 100


def test_sampling_drops_the_rest_for_good(nsqd: Running) -> None:
    count = 1000
    with nsqd.client(sample_rate=30) as client:
        client.send(mpub(b"sampled", [b"x"] * count) + b"SUB sampled c\nRDY 2500\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        received = 0
        while nsqd.channel("sampled", "c")["depth"]:
            time.sleep(0.01)
        try:
            while True:
                message = client.message(0.2)
                client.send(b"FIN %b\n" % message.id)
                received += 1
        except TimeoutError:
            pass
    assert 0.2 * count < received < 0.42 * count


def test_a_client_that_does_not_read_is_hung_up_on(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client(heartbeat_interval=1000) as client:
        client.send(mpub(b"deaf", [b"x" * 100_000] * 40) * 4 + b"SUB deaf c\nRDY 2500\n")
        started = time.monotonic()
        while nsqd.stats()["producers"] and time.monotonic() - started < 5:
            client.send(b"NOP\n")
            time.sleep(0.1)
        assert nsqd.stats()["producers"] is None
