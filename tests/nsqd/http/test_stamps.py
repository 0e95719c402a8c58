"""Idempotent publishing over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..world import Running, u32


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path: Path = tmp_path_factory.mktemp("data")
    with Running(path) as nsqd:
        yield nsqd


def stored(nsqd: Running, topic: str) -> int:
    count: int = nsqd.stats(f"&topic={topic}")["topics"][0]["message_count"]
    return count


def test_a_repeat_is_answered_as_one(nsqd: Running) -> None:
    target = "/pub?topic=one&producer_id=5&producer_epoch=2&sequence="
    first, repeat = (nsqd.request("POST", target + "0", b"a") for _ in range(2))
    assert (first.status, first.body, repeat.status, repeat.body) == (200, b"OK", 200, b"OK")
    assert "X-Penstock-Repeated" not in first.headers
    assert repeat.headers["X-Penstock-Repeated"] == "true"
    assert nsqd.request("POST", target + "1", b"b").body == b"OK"
    assert stored(nsqd, "one") == 2


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


def test_a_drain_refuses_what_is_new_and_knows_what_is_stored(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd:
        target = "/pub?topic=t&producer_id=1&sequence="
        assert nsqd.request("POST", target + "0", b"a").status == 200
        nsqd.call(lambda: setattr(nsqd.daemon.broker, "draining", True))
        repeat = nsqd.request("POST", target + "0", b"a")
        assert (repeat.status, repeat.headers["X-Penstock-Repeated"]) == (200, "true")
        answer = nsqd.request("POST", target + "1", b"b")
        assert (answer.status, json.loads(answer.body)["taken"]) == (503, False)
        nsqd.call(lambda: setattr(nsqd.daemon.broker, "draining", False))
