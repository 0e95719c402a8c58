"""A drain: what is refused, what goes on, what is waited for, and the end."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from .world import V2, Running, error, eventually, ok, pub


def ask(nsqd: Running, method: str = "POST", query: str = "", path: str = "/drain") -> Any:
    status, document = nsqd.ask(method, f"{path}?{query}")
    assert status == 200
    return document


def subscriber(nsqd: Running) -> V2:
    client = nsqd.client()
    assert client.ask(b"SUB t c\n") == ok()
    return client


def has_ended(nsqd: Running) -> bool:
    return nsqd.daemon.ended.done()


def test_publishes_are_refused_and_deliveries_go_on(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd, subscriber(nsqd) as consumer:
        with nsqd.client() as publisher:
            assert publisher.ask(pub("t", b"1")) == ok()
            assert publisher.ask(pub("t", b"2")) == ok()
            assert ask(nsqd)["left"] == 2
            refused = error(b"E_PUB_FAILED PUB failed draining")
            assert publisher.ask(pub("t", b"3")) == refused
        assert nsqd.answer_to(pub("new", b"3")) == refused
        answer = nsqd.request("POST", "/pub?topic=t", b"3")
        assert (answer.status, answer.body) == (503, b'{"message":"FAILED draining"}')
        assert nsqd.stats()["draining"] is True
        assert b"Draining: " in nsqd.request("GET", "/stats").body
        consumer.send(b"RDY 1\n")
        first = consumer.message()
        consumer.send(b"FIN %b\n" % first.id)
        second = consumer.message()
        report = ask(nsqd, "GET")
        assert (report["state"], report["left"]) == ("draining", 1)
        counts = {"depth": 0, "in_flight_count": 1, "deferred_count": 0, "client_count": 1}
        names = {"topic_name": "t", "channel_name": "c", "paused": False, "waited_for": True}
        assert report["channels"] == [names | counts]
        assert not has_ended(nsqd)
        consumer.send(b"FIN %b\n" % second.id)
        eventually(lambda: has_ended(nsqd))


def test_a_delayed_message_is_waited_for_unless_told_otherwise(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd, subscriber(nsqd) as consumer:
        assert consumer.ask(b"DPUB t 3600000\n\0\0\0\1x") == ok()
        report = ask(nsqd)
        assert (report["left"], report["channels"][0]["deferred_count"]) == (1, 1)
        time.sleep(0.2)
        assert not has_ended(nsqd)
        report = ask(nsqd, query="delayed=false")
        assert (report["left"], report["waits_for_delayed"]) == (0, False)
        eventually(lambda: has_ended(nsqd))


def test_a_topic_without_a_channel_is_reported_and_waited_for_on_demand(nsqd: Running) -> None:
    assert nsqd.request("POST", "/pub?topic=t", b"x").status == 200
    report = ask(nsqd, query="topics=true")
    assert report["left"] == 1
    assert report["topics"] == [
        {"topic_name": "t", "depth": 1, "paused": False, "channel_count": 0, "waited_for": True}
    ]
    time.sleep(0.2)
    assert not has_ended(nsqd)
    assert ask(nsqd)["left"] == 0
    eventually(lambda: has_ended(nsqd))


def test_a_drain_does_not_wait_for_dead_letters(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd, subscriber(nsqd) as consumer:
        config = "/channel/config?topic=t&channel=c&max_attempts=1"
        assert nsqd.request("POST", config).status == 200
        assert consumer.ask(pub("t", b"bad")) == ok()
        assert ask(nsqd)["left"] == 1
        consumer.send(b"RDY 1\n")
        consumer.send(b"REQ %b 0\n" % consumer.message().id)
        eventually(lambda: has_ended(nsqd))
        nsqd.stop()
    with Running(tmp_path / "data") as nsqd:
        assert nsqd.channel("t", "c")["depth"] == 0
        assert nsqd.channel("t.c.dead", "redrive")["depth"] == 1
        report = ask(nsqd, "GET")
        assert (report["left"], report["channels"][0]["waited_for"]) == (0, False)
        assert ask(nsqd, query="topics=true")["left"] == 1
        answer = nsqd.request("POST", "/channel/redrive?topic=t&channel=c")
        assert (answer.status, answer.body) == (409, b'{"message":"FAILED draining"}')


def test_a_drain_can_be_cancelled(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd, subscriber(nsqd) as consumer:
        assert consumer.ask(pub("t", b"1")) == ok()
        ask(nsqd)
        assert ask(nsqd, path="/drain/cancel")["state"] == "off"
        assert "draining" not in nsqd.stats()
        assert consumer.ask(pub("t", b"2")) == ok()
        consumer.send(b"RDY 2\n")
        for _ in range(2):
            consumer.send(b"FIN %b\n" % consumer.message().id)
        eventually(lambda: ask(nsqd, "GET")["left"] == 0)
        time.sleep(0.2)
        assert not has_ended(nsqd)
        assert ask(nsqd, path="/drain/cancel")["state"] == "off"


def test_a_node_of_a_cluster_hands_over_before_it_refuses(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd:
        others = threading.Event()

        async def hand_over() -> None:
            while not others.is_set():
                await asyncio.sleep(0.01)

        nsqd.daemon.drain.hand_over = hand_over
        assert pub_over_http(nsqd) == 200
        assert ask(nsqd)["state"] == "draining"
        assert pub_over_http(nsqd) == 200
        others.set()
        eventually(lambda: pub_over_http(nsqd) == 503)
        status, document = nsqd.ask("POST", "/drain/cancel")
        assert (status, "restart it" in document["message"]) == (409, True)


def test_a_fault_in_handing_over_ends_the_daemon(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd:

        async def hand_over() -> None:
            raise KeyError("a fault")

        nsqd.daemon.drain.hand_over = hand_over
        assert ask(nsqd)["state"] == "draining"
        eventually(lambda: has_ended(nsqd))


def pub_over_http(nsqd: Running) -> int:
    return nsqd.request("POST", "/pub?topic=t", b"m").status
