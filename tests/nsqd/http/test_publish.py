"""Publishing over HTTP: what many requests share, and packs that come whole or not at all."""

import json
import socket
import threading
from pathlib import Path

import pytest

from penstock.wire import frames

from ..world import TIMEOUT_SECONDS, Running, eventually, running_with, u32

nsqd = running_with()

REQUEST = b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"
CONNECTIONS = 40


def sync_count(nsqd: Running) -> int:
    counts: list[int] = nsqd.call(lambda: nsqd.daemon._pool.times.read()[0])
    return sum(counts)


def connect(nsqd: Running) -> socket.socket:
    address = nsqd.daemon.http_address
    return socket.create_connection((address.host, address.port), TIMEOUT_SECONDS)


def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while data.count(b"HTTP/1.1 ") < count or not data.endswith(b"OK"):
        data += sock.recv(65536)
    return data


@pytest.mark.parametrize("pipelined", [False, True])
def test_publishes_that_come_together_share_a_sync(tmp_path: Path, pipelined: bool) -> None:
    with Running(tmp_path, "--durability=disk") as nsqd:
        socks = [connect(nsqd) for _ in range(1 if pipelined else CONNECTIONS)]
        each = CONNECTIONS // len(socks)
        for sock in socks:
            sock.sendall(REQUEST)
            received(sock, 1)
        before = sync_count(nsqd)
        gate = threading.Event()
        nsqd.loop.call_soon_threadsafe(gate.wait)  # nothing is served until all have asked
        for sock in socks:
            sock.sendall(REQUEST * each)
        gate.set()
        assert all(received(sock, each).count(b"200 OK") == each for sock in socks)
        assert sync_count(nsqd) - before < CONNECTIONS / 4
        total = len(socks) + CONNECTIONS
        assert nsqd.stats("&topic=t")["topics"][0]["message_count"] == total
        for sock in socks:
            sock.close()


def test_a_broken_pack_leaves_nothing(nsqd: Running) -> None:
    body = frames.encode_bodies([b"a", b"b"])
    assert nsqd.request("POST", "/mpub?topic=t&binary=true", body).body == b"OK"
    for broken in (body[:-1], u32(3) + body[4:], body[:9] + u32(0) + body[13:]):
        assert nsqd.request("POST", "/mpub?topic=t&binary=true", broken).status == 413
    assert nsqd.stats("&topic=t")["topics"][0]["message_count"] == 2


@pytest.mark.parametrize("query", ["", "&binary=true"])
def test_a_pack_may_be_delayed(nsqd: Running, query: str) -> None:
    nsqd.post("/topic/create?topic=t", "/channel/create?topic=t&channel=c")
    body = frames.encode_bodies([b"a", b"b"]) if query else b"a\nb"
    assert nsqd.request("POST", f"/mpub?topic=t&defer=60000{query}", body).body == b"OK"
    eventually(lambda: nsqd.channel("t", "c")["deferred_count"] == 2)
    assert nsqd.request("POST", f"/mpub?topic=t&defer=x{query}", body).status == 400


# --- idempotent publishing ---


def stored(nsqd: Running, topic: str) -> int:
    count: int = nsqd.stats(f"&topic={topic}")["topics"][0]["message_count"]
    return count


def test_gaps_and_fences(nsqd: Running) -> None:
    target = "/pub?topic=two&producer_id=5&producer_epoch=2&sequence="
    gap = nsqd.request("POST", target + "4", b"a")
    assert (gap.status, json.loads(gap.body)) == (409, {"message": "SEQUENCE_GAP", "expected": 0})
    nsqd.request("POST", target + "0", b"a")
    fenced = nsqd.request("POST", "/pub?topic=two&producer_id=5&sequence=1", b"a")
    assert fenced.status == 409
    assert json.loads(fenced.body) == {"message": "PRODUCER_FENCED", "epoch": 2}
    assert stored(nsqd, "two") == 1


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", b"a\n\nbb\nc"),
        ("&binary=true", u32(3) + u32(1) + b"a" + u32(2) + b"bb" + u32(1) + b"c"),
    ],
)
def test_packs(nsqd: Running, query: str, body: bytes) -> None:
    topic = f"pack{len(query)}"
    target = f"/mpub?topic={topic}&producer_id=18446744073709551615{query}&sequence="
    assert nsqd.request("POST", target + "0", body).body == b"OK"
    assert nsqd.request("POST", target + "0", body).headers["X-Penstock-Repeated"] == "true"
    assert nsqd.request("POST", target + "3", body).body == b"OK"
    assert stored(nsqd, topic) == 6
    overlap = nsqd.request("POST", target + "5", body)
    assert (overlap.status, json.loads(overlap.body)["expected"]) == (409, 6)


def test_a_drain_refuses_new_publishes_and_confirms_repeats(nsqd: Running) -> None:
    target = "/pub?topic=t&producer_id=1&sequence="
    assert nsqd.request("POST", target + "0", b"a").status == 200
    nsqd.call(lambda: nsqd.daemon.broker.refuse(draining=True))
    repeat = nsqd.request("POST", target + "0", b"a")
    assert (repeat.status, repeat.headers["X-Penstock-Repeated"]) == (200, "true")
    answer = nsqd.request("POST", target + "1", b"b")
    assert (answer.status, json.loads(answer.body)["taken"]) == (503, False)
    nsqd.call(lambda: nsqd.daemon.broker.refuse(draining=False))
