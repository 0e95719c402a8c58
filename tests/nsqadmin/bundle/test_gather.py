"""Daemons that hang, talk nonsense or never end: each is written down, and the others are asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from penstock import limits
from penstock.nsqadmin.bundle.files import About, Bundle, Spool, read
from penstock.nsqadmin.bundle.gather import Gatherer, make_fetcher

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


async def gathered(path: Path, nsqds: list[str], lookupds: list[str]) -> Bundle:
    spool, fetcher = Spool(path / "b.zip"), make_fetcher(0)
    try:
        await Gatherer(fetcher, spool, 0).run(nsqds, lookupds)
        spool.finish(About())
    finally:
        await fetcher.close()
        spool.close()
    return read(str(path / "b.zip"))


def run(path: Path, nsqd: Handler | None = None, lookupd: Handler | None = None) -> Bundle:
    async def both() -> Bundle:
        async with serving(nsqd or refuse) as first, serving(lookupd or refuse) as second:
            return await gathered(path, [first] if nsqd else [], [second] if lookupd else [])

    return asyncio.run(both())


async def refuse(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


def failed(bundle: Bundle) -> dict[str, str]:
    return {one.asked: one.reason for one in bundle.manifest.failures}


def names(bundle: Bundle) -> set[str]:
    return {one.name for one in bundle.manifest.files}


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


def test_an_official_nsqd(tmp_path: Path) -> None:
    bundle = run(tmp_path, official)
    assert failed(bundle) == {}
    assert bundle.document("nsqd/1/config.json", dict[str, Any]) == {"log_level": 2}
    assert "nsqd/1/metrics.txt" not in names(bundle)
    assert [one for one in names(bundle) if one.endswith(".pprof")] == ["nsqd/1/heap.pprof"]


def test_one_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After its first answer, too: it does not hold the whole gathering up."""
    monkeypatch.setattr(limits, "BUNDLE_DAEMON_S", 0.5)

    async def hang(request: web.Request) -> web.StreamResponse:
        if request.path == "/ping":
            return web.Response(text="OK")
        await asyncio.sleep(60)
        return web.Response()

    bundle = run(tmp_path, hang)
    assert "no answer" in bundle.manifest.failures[0].reason
    assert "not asked" in failed(bundle)["/config"]
    assert names(bundle) == {"nsqd/1/ping.txt", "nsqd/1/facts.json"}


def test_one_that_never_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "BUNDLE_ANSWER_BYTES_MAX", 1 << 16)

    async def endless(request: web.Request) -> web.StreamResponse:
        if request.path in ("/ping", "/info"):
            return await official(request)
        return web.Response(body=bytes(1 << 18))

    bundle = run(tmp_path, endless)
    assert "more than 65536 bytes" in failed(bundle)["/stats?format=json"]
    assert "nsqd/1/info.json" in names(bundle)


def test_one_that_talks_nonsense(tmp_path: Path) -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xff\xfe{[password=geheim]", content_type="application/json")

    bundle = run(tmp_path, nonsense, nonsense)
    assert failed(bundle) == {}
    assert "geheim" not in "".join(map(bundle.text, names(bundle)))
    assert [one.kind for one in bundle.manifest.daemons] == ["nsqlookupd", "nsqd"]


def test_nsqds_that_a_lookupd_knows(tmp_path: Path) -> None:
    """A row that is none: nobody is made of it."""
    rows = [{"broadcast_address": "127.0.0.1", "http_port": 9}, {"broadcast_address": "x"},
            {"broadcast_address": "fe80::1", "http_port": 7},
            {"broadcast_address": "y", "http_port": -1}]  # fmt: skip

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"producers": rows, "topics": []})

    manifest = run(tmp_path, None, answer).manifest
    assert [one.address for one in manifest.daemons[1:]] == ["127.0.0.1:9", "[fe80::1]:7"]
    assert {one.place for one in manifest.failures if one.asked == "/ping"} == {"nsqd/1", "nsqd/2"}


def test_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "BUNDLE_DAEMONS_MAX", 2)
    addresses = [f"127.0.0.1:{port}" for port in (9, 10, 11)]
    bundle = asyncio.run(gathered(tmp_path, addresses, []))
    assert len(bundle.manifest.daemons) == 2
    assert "too many" in failed(bundle)["all"]
