"""Daemons that hang, talk nonsense or never end: each is written down, and the others are asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from penstock import limits
from penstock.nsqadmin.bundle.files import Spool
from penstock.nsqadmin.bundle.gather import Gatherer, make_fetcher
from penstock.nsqadmin.bundle.hiding import Kind

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The address of an HTTP server that answers everything so."""
    runner = web.AppRunner(_app(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


def _app(handler: Handler) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return app


async def gathered(nsqds: list[str], lookupds: list[str]) -> Spool:
    spool, fetcher = Spool(), make_fetcher(0)
    try:
        await Gatherer(fetcher, spool, 0).run(nsqds, lookupds)
    finally:
        await fetcher.close()
    return spool


def run(nsqd: Handler | None = None, lookupd: Handler | None = None) -> Spool:
    async def both() -> Spool:
        async with serving(nsqd or refuse) as first, serving(lookupd or refuse) as second:
            return await gathered([first] if nsqd else [], [second] if lookupd else [])

    return asyncio.run(both())


async def refuse(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


def failed(spool: Spool) -> dict[str, str]:
    return {one.asked: one.reason for one in spool.failures}


def names(spool: Spool) -> set[str]:
    return {one.name for one in spool.parts}


def read(spool: Spool, name: str) -> Any:
    return json.loads(spool.read(next(one for one in spool.parts if one.name == name)))


async def official(request: web.Request) -> web.StreamResponse:
    """An nsqd of others: no /connections and no /metrics, profiles in Go's form."""
    if request.path == "/ping":
        return web.Response(text="OK")
    if request.path in ("/info", "/stats"):
        return web.json_response({"version": "1.3.0", "topics": []})
    if request.path == "/config/log_level":
        return web.json_response(2)
    if request.path.startswith("/config/"):
        return web.json_response({"message": "INVALID_OPTION"}, status=400)
    if request.path == "/debug/pprof/heap":
        return web.Response(body=b"\x1f\x8bgo", content_type="application/octet-stream")
    if request.path.startswith("/debug/pprof/"):
        return web.Response(text="goroutine 1 [running]:")
    return web.json_response({"message": "NOT_FOUND"}, status=404)


def test_an_official_nsqd() -> None:
    spool = run(official)
    assert spool.failures == []
    assert read(spool, "nsqd/1/config.json") == {"log_level": 2}
    assert "nsqd/1/metrics.txt" not in names(spool)
    assert [one.name for one in spool.parts if one.kind is Kind.BINARY] == ["nsqd/1/heap.pprof"]
    spool.close()


def test_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first answer, too: it does not hold the whole gathering up."""
    monkeypatch.setattr(limits, "BUNDLE_DAEMON_S", 0.5)

    async def hang(request: web.Request) -> web.StreamResponse:
        if request.path == "/ping":
            return web.Response(text="OK")
        await asyncio.sleep(60)
        return web.Response()

    spool = run(hang)
    said = failed(spool)
    assert "no answer" in said["/info"]
    assert "not asked" in said["/config"]
    assert names(spool) == {"nsqd/1/ping.txt", "nsqd/1/facts.json"}
    spool.close()


def test_one_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUNDLE_ANSWER_BYTES_MAX", 1 << 16)

    async def endless(request: web.Request) -> web.StreamResponse:
        if request.path in ("/ping", "/info"):
            return await official(request)
        return web.Response(body=bytes(1 << 18))

    spool = run(endless)
    assert "more than 65536 bytes" in failed(spool)["/stats?format=json"]
    assert "nsqd/1/info.json" in names(spool)
    spool.close()


def test_one_that_talks_nonsense() -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xff\xfe{[password=geheim]", content_type="application/json")

    spool = run(nonsense, nonsense)
    assert failed(spool) == {}
    assert b"geheim" not in b"".join(spool.read(one) for one in spool.parts)
    assert [one.kind for one in spool.members] == ["nsqlookupd", "nsqd"]
    spool.close()


def test_nsqds_that_a_lookupd_knows() -> None:
    rows = [{"broadcast_address": "127.0.0.1", "http_port": 9}, {"broadcast_address": "x"}]
    good = [rows[0], {"broadcast_address": "fe80::1", "http_port": 7},
            {"broadcast_address": "y", "http_port": -1}]  # fmt: skip

    def lookupd(producers: list[dict[str, Any]]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response({"producers": producers, "topics": []})

        return answer

    spool = run(None, lookupd(good))
    assert [one.address for one in spool.members[1:]] == ["127.0.0.1:9", "[fe80::1]:7"]
    assert {one.place for one in spool.failures if one.asked == "/ping"} == {"nsqd/1", "nsqd/2"}
    spool.close()
    spool = run(None, lookupd(rows))  # a row that is none: nobody is made of it
    assert [one.address for one in spool.members[1:]] == ["127.0.0.1:9"]
    spool.close()


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUNDLE_DAEMONS_MAX", 2)
    spool = asyncio.run(gathered([f"127.0.0.1:{port}" for port in (9, 10, 11)], []))
    assert len(spool.members) == 2
    assert "too many" in failed(spool)["all"]
    spool.close()


async def test_progress_ends_at_the_whole() -> None:
    told: list[float] = []
    async with serving(official) as address:
        spool, fetcher = Spool(), make_fetcher(0)
        gatherer = Gatherer(fetcher, spool, 0, lambda share, words: told.append(share))
        await gatherer.run([address], [])
        await fetcher.close()
        spool.close()
    assert told == sorted(told)
    assert told[-1] > 0.8
