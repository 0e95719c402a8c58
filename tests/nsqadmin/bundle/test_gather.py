"""Daemons that hang, talk nonsense or never end: each is written down, and the others are asked."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.answering import Answer, Answering
from penstock import limits
from penstock.nsqadmin.bundle.files import About, Bundle, Spool, read
from penstock.nsqadmin.bundle.gather import Gatherer, make_fetcher

Say = Callable[[str], Answer]  # by the path


class Daemon(Answering):
    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say = say

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return self.say(urlsplit(path).path)


def answer_of(body: bytes | str, kind: str = "text/plain", status: int = 200) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return status, data, {"Content-Type": kind}


def json_answer(document: Any, status: int = 200) -> Answer:
    return answer_of(json.dumps(document), "application/json", status)


async def gathered(path: Path, nsqds: list[str], lookupds: list[str]) -> Bundle:
    spool, fetcher = Spool(path / "b.zip"), make_fetcher(0)
    try:
        await Gatherer(fetcher, spool, 0).run(nsqds, lookupds)
        spool.finish(About())
    finally:
        await fetcher.close()
        spool.close()
    return read(str(path / "b.zip"))


def run(path: Path, nsqd: Say | None = None, lookupd: Say | None = None) -> Bundle:
    with Daemon(nsqd or refuse) as first, Daemon(lookupd or refuse) as second:
        asked = [first.address] if nsqd else [], [second.address] if lookupd else []
        return asyncio.run(gathered(path, *asked))


def refuse(path: str) -> Answer:
    return answer_of("", status=500)


def failed(bundle: Bundle) -> dict[str, str]:
    return {one.asked: one.reason for one in bundle.manifest.failures}


def names(bundle: Bundle) -> set[str]:
    return {one.name for one in bundle.manifest.files}


def official(path: str) -> Answer:
    """An nsqd of others: no /connections and no /metrics, profiles in Go's form."""
    if path == "/ping":
        return answer_of("OK")
    if path in ("/info", "/stats"):
        return json_answer({"version": "1.3.0", "topics": []})
    if path == "/config/log_level":
        return json_answer(2)
    if path.startswith("/config/"):
        return json_answer({"message": "INVALID_OPTION"}, 400)
    if path == "/debug/pprof/heap":
        return answer_of(b"\x1f\x8bgo", "application/octet-stream")
    if path.startswith("/debug/pprof/"):
        return answer_of("goroutine 1 [running]:")
    return json_answer({"message": "NOT_FOUND"}, 404)


def test_an_official_nsqd(tmp_path: Path) -> None:
    bundle = run(tmp_path, official)
    assert failed(bundle) == {}
    assert bundle.document("nsqd/1/config.json", dict[str, Any]) == {"log_level": 2}
    assert "nsqd/1/metrics.txt" not in names(bundle)
    assert [one for one in names(bundle) if one.endswith(".pprof")] == ["nsqd/1/heap.pprof"]


def test_a_node_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After its first answer, too: it does not hold the whole gathering up."""
    monkeypatch.setattr(limits, "BUNDLE_DAEMON_S", 0.5)

    is_over = threading.Event()

    def hang(path: str) -> Answer:
        if path != "/ping":
            is_over.wait(60)
        return answer_of("OK")

    bundle = run(tmp_path, hang)
    is_over.set()
    assert "no answer" in bundle.manifest.failures[0].reason
    assert "not asked" in failed(bundle)["/config"]
    assert names(bundle) == {"nsqd/1/ping.txt", "nsqd/1/facts.json"}


def test_an_endless_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "BUNDLE_ANSWER_BYTES_MAX", 1 << 16)

    def endless(path: str) -> Answer:
        return official(path) if path in ("/ping", "/info") else answer_of(bytes(1 << 18))

    bundle = run(tmp_path, endless)
    assert "more than 65536 bytes" in failed(bundle)["/stats?format=json"]
    assert "nsqd/1/info.json" in names(bundle)


def test_an_invalid_answer(tmp_path: Path) -> None:
    nonsense = answer_of(b"\xff\xfe{[password=geheim]", "application/json")
    bundle = run(tmp_path, lambda _: nonsense, lambda _: nonsense)
    assert failed(bundle) == {}
    assert "geheim" not in "".join(map(bundle.text, names(bundle)))
    assert [one.kind for one in bundle.manifest.daemons] == ["nsqlookupd", "nsqd"]


def test_nsqds_that_a_lookupd_knows(tmp_path: Path) -> None:
    """A row that is none: nobody is made of it."""
    rows = [{"broadcast_address": "127.0.0.1", "http_port": 9}, {"broadcast_address": "x"},
            {"broadcast_address": "fe80::1", "http_port": 7},
            {"broadcast_address": "y", "http_port": -1}]  # fmt: skip
    known = json_answer({"producers": rows, "topics": []})
    manifest = run(tmp_path, None, lambda _: known).manifest
    assert [one.address for one in manifest.daemons[1:]] == ["127.0.0.1:9", "[fe80::1]:7"]
    assert {one.folder for one in manifest.failures if one.asked == "/ping"} == {"nsqd/1", "nsqd/2"}
