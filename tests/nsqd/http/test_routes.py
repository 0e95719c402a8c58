"""Conformance of nsqd's HTTP API: status, body and headers, in the order of the checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import each

from ..world import Running, ok, pub, u32

NSQ = ("X-Nsq-Content-Type", "nsq; version=1.0")
JSON = "application/json; charset=utf-8"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Limits low enough to hit."""
    flags = ("--max-msg-size=100", "--max-body-size=500", "--max-req-timeout=1s")
    with Running(tmp_path_factory.mktemp("small"), *flags) as running:
        assert running.request("POST", "/topic/create?topic=known").status == 200
        assert running.request("POST", "/channel/create?topic=known&channel=c").status == 200
        yield running


ERRORS = [
    ("POST", "/pub?topic=a;b", b"x", 400, "INVALID_REQUEST"),
    ("POST", "/pub?topic=%ff", b"x", 400, "INVALID_TOPIC"),
    ("POST", "/mpub?topic=t&binary=true", b"\0\0\0", 413, "BAD_BODY"),
    ("POST", "/mpub?topic=t&binary=true", u32(-1), 413, "BAD_BODY"),
    ("POST", "/mpub?topic=t&binary=", u32(1) + u32(5) + b"abc", 413, "BAD_MESSAGE"),
    ("POST", "/topic/create", b"", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/empty", b"", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/pause", b"", 400, "MISSING_ARG_TOPIC"),
    *[
        ("POST", f"/channel/{verb}{query}", b"", status, code)
        for verb in ("create", "delete", "empty", "pause", "unpause")
        for query, status, code in (
            ("", 400, "MISSING_ARG_TOPIC"),
            ("?channel=c", 400, "MISSING_ARG_TOPIC"),
            ("?topic=a$", 400, "INVALID_ARG_TOPIC"),
            ("?topic=none", 400, "MISSING_ARG_CHANNEL"),
            ("?topic=none&channel=", 400, "INVALID_ARG_CHANNEL"),
            ("?topic=none&channel=c", 404, "TOPIC_NOT_FOUND"),
        )
    ],
    *[
        ("POST", f"/channel/{verb}?topic=known&channel=none", b"", 404, "CHANNEL_NOT_FOUND")
        for verb in ("delete", "empty", "pause", "unpause")
    ],
]


@each(("method", "target", "body", "status", "code"), ERRORS)
def test_error(
    small: Running, method: str, target: str, body: bytes, status: int, code: str
) -> None:
    answer = small.request(method, target, body)
    expected = json.dumps({"message": code}, separators=(",", ":")).encode() if code else b""
    assert (answer.status, answer.body) == (status, expected)
    assert answer.headers["Content-Type"] == JSON
    assert NSQ in answer.headers.items()


def test_ping_and_stats_say_when_something_is_wrong(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
        nsqd.call(lambda: nsqd.daemon.broker.topics["t"].leader().group.stop("a bad disk"))
        answer = nsqd.request("GET", "/ping")
        assert (answer.status, answer.body) == (500, b"NOK - topic t: a bad disk")
        assert nsqd.stats()["health"] == "NOK - topic t: a bad disk"
        answer = nsqd.request("POST", "/pub?topic=t", b"x")
        assert (answer.status, answer.body) == (503, b'{"message":"FAILED a bad disk"}')


def test_broadcast_ports_are_told_instead_of_the_real_ones(tmp_path: Path) -> None:
    with Running(tmp_path, "--broadcast-tcp-port=5", "--broadcast-http-port=6") as nsqd:
        info = json.loads(nsqd.request("GET", "/info").body)
        assert (info["tcp_port"], info["http_port"]) == (5, 6)


def test_topics_and_channels_through_their_life(nsqd: Running) -> None:
    def post(target: str) -> None:
        answer = nsqd.request("POST", target)
        assert (answer.status, answer.body) == (200, b"")
        assert "Content-Type" not in answer.headers
        assert NSQ in answer.headers.items()

    def topic() -> dict[str, object]:
        found: dict[str, object] = nsqd.stats("&topic=life")["topics"][0]
        return found

    post("/topic/create?topic=life")
    post("/topic/create?topic=life")
    nsqd.request("POST", "/mpub?topic=life", b"1\n2\n3")
    assert topic()["depth"] == 3
    post("/topic/empty?topic=life")
    assert topic()["depth"] == 0
    post("/topic/pause?topic=life")
    assert topic()["paused"] is True
    post("/channel/create?topic=life&channel=c")
    nsqd.request("POST", "/mpub?topic=life", b"1\n2\n3")
    assert (topic()["depth"], nsqd.channel("life", "c")["depth"]) == (3, 0)
    post("/topic/unpause?topic=life")
    assert (topic()["depth"], nsqd.channel("life", "c")["depth"]) == (0, 3)
    post("/channel/pause?topic=life&channel=c")
    with nsqd.client() as client:
        client.send(b"SUB life c\nRDY 1\n")
        assert client.read() == ok()
        assert client.is_silent()
        post("/channel/unpause?topic=life&channel=c")
        message_id = client.message().id
        post("/channel/empty?topic=life&channel=c")
        row = nsqd.channel("life", "c")
        assert (row["depth"], row["in_flight_count"]) == (0, 0)
        assert client.ask(b"FIN %b\n" % message_id).data.endswith(b"failed ID not in flight")
    post("/channel/delete?topic=life&channel=c")
    assert topic()["channels"] == []
    post("/topic/delete?topic=life")
    assert nsqd.stats("&topic=life")["topics"] is None


def test_exiting(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
        nsqd.call(lambda: setattr(nsqd.daemon.broker, "exiting", True))
        for target in ("/pub?topic=t", "/mpub?topic=t", "/pub?topic=new", "/topic/create?topic=n"):
            answer = nsqd.request("POST", target, b"x")
            assert (answer.status, answer.body) == (503, b'{"message":"EXITING"}')
        for command, data in (
            (pub(b"t", b"x"), b"E_PUB_FAILED PUB failed exiting"),
            (pub(b"new", b"x"), b"E_PUB_FAILED PUB failed exiting"),
            (b"SUB new c\n", b"E_SUB_FAILED SUB failed exiting"),
        ):
            with nsqd.client() as client:
                assert client.ask(command).data == data
