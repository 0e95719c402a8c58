"""Asking every daemon of an installation for all that it says of itself.

nsqlookupds come first, because they say which nsqds there are; nsqds may be named, too. A daemon
that does not answer is written down as such, and the others are asked on. Everything is bounded:
the time of an answer, its size, the size of all, and the number of daemons.

Two samples of each nsqd's stats are taken some seconds apart, for rates; its profile is taken
meanwhile. How far a daemon's clock is from ours is told by the Date of its answers, which has whole
seconds: every answer narrows the bounds.

Paths that a daemon does not have (the official nsqd has no /connections) are no failure.

`make` does it all, from the addresses to the file.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetched, Fetcher
from penstock.nsqadmin.bundle import files, machine
from penstock.nsqadmin.bundle.files import Failure, Member, Spool
from penstock.nsqadmin.bundle.hiding import Kind
from penstock.nsqadmin.upstream import LOOKUPD, NSQD
from penstock.nsqd.options import FLAGS

Tell = Callable[[float, str], None]  # how much is done, 0 to 1, and what is being done
Extra = Callable[[Spool], None]  # adds files of the one who gathers

_WHERE = ("broadcast_address", "http_port")
_DATE_S = 1.0  # the Date of an answer may be so old


class Ask(NamedTuple):
    name: str
    kind: Kind
    path: str
    query: Mapping[str, str] = MappingProxyType({})
    is_everywhere: bool = True  # False: the official daemon does not have it


_INSIDE = (
    Ask("cmdline.txt", Kind.WORDS, "/debug/pprof/cmdline"),
    Ask("stacks.txt", Kind.TEXT, "/debug/pprof/goroutine", {"debug": "2"}),
    Ask("heap.txt", Kind.TEXT, "/debug/pprof/heap", {"debug": "1"}),
)
_STATS = {"format": "json"}
_NSQD = (
    Ask("info.json", Kind.JSON, "/info"),
    Ask("stats-1.json", Kind.JSON, "/stats", _STATS),
    Ask("connections.json", Kind.JSON, "/connections", is_everywhere=False),
    Ask("metrics.txt", Kind.METRICS, "/metrics", is_everywhere=False),
    *_INSIDE,
)
_LOOKUPD = (
    Ask("info.json", Kind.JSON, "/info"),
    Ask("topics.json", Kind.JSON, "/topics"),
    Ask("nodes.json", Kind.JSON, "/nodes"),
    Ask("registrations.json", Kind.JSON, "/debug"),
    Ask("metrics.txt", Kind.METRICS, "/metrics", is_everywhere=False),
    *_INSIDE,
)
_STEPS = {NSQD: len(_NSQD) + 4, LOOKUPD: len(_LOOKUPD) + 1}
_CONFIG_KEYS = tuple(sorted({
    flag.file_key for flag in FLAGS if flag.name not in ("version", "config", "verbose")
}))  # fmt: skip


def make_fetcher(seconds: int, tls: Any = None, connect_timeout_ns: int = 0) -> Fetcher:
    """One that waits for a profile, and takes no longer answers than a bundle may hold."""
    timeout_ns = int((seconds + limits.BUNDLE_ASK_S) * limits.SECOND)
    return Fetcher(
        connect_timeout_ns or limits.FETCH_CONNECT_NS, timeout_ns, tls,
        limits.BUNDLE_ANSWER_BYTES_MAX,
    )  # fmt: skip


@dataclass(frozen=True)
class Wish:
    who: str
    command: str  # as it was typed, or the page
    nsqds: tuple[str, ...] = ()
    lookupds: tuple[str, ...] = ()
    seconds: int = limits.BUNDLE_SECONDS


def file_name(now_s: float) -> str:
    return f"penstock-bundle-{datetime.fromtimestamp(now_s, UTC):%Y%m%d-%H%M%S}.zip"


async def make(
    path: Path, wish: Wish, fetcher: Fetcher, tell: Tell, extra: Extra | None = None
) -> list[Failure]:
    """Gather, and write the zip. What could not be had is in it, and returned. OSError when the
    zip can't be written."""
    begun_s = time.time()
    spool = Spool()
    try:
        await Gatherer(fetcher, spool, wish.seconds, tell).run(wish.nsqds, wish.lookupds)
        spool.add_json("machine/versions.json", machine.versions())
        spool.add_json("machine/limits.json", machine.limits_here())
        if extra is not None:
            extra(spool)
        tell(1.0, "writing")
        about = {
            "made": datetime.fromtimestamp(begun_s, UTC).isoformat(timespec="seconds"),
            "who": wish.who,
            "command": wish.command,
            "seconds": wish.seconds,
            "took_seconds": round(time.time() - begun_s, 3),
        }
        await asyncio.to_thread(files.write, spool, path, about)
        return spool.failures
    finally:
        spool.close()


class Gatherer:
    def __init__(
        self, fetcher: Fetcher, spool: Spool, seconds: int, tell: Tell = lambda share, words: None
    ) -> None:
        self.fetcher = fetcher
        self.spool = spool
        self.seconds = seconds
        self.at_once = asyncio.Semaphore(limits.BUNDLE_AT_ONCE)
        self._tell = tell
        self._steps = self._done = 0

    async def run(self, nsqds: Iterable[str], lookupds: Iterable[str]) -> None:
        asked = self._members(LOOKUPD, lookupds)
        known = await asyncio.gather(*(_Daemon(self, one).lookupd() for one in asked))
        addresses = [*nsqds, *(address for one in known for address in one)]
        members = self._members(NSQD, addresses)
        await asyncio.gather(*(_Daemon(self, one).nsqd() for one in members))

    def _members(self, kind: str, addresses: Iterable[str]) -> list[Member]:
        found = [Member(f"{kind}/{number}", kind, address)
                 for number, address in enumerate(dict.fromkeys(addresses), 1)]  # fmt: skip
        for one in found[limits.BUNDLE_DAEMONS_MAX :]:
            self.spool.fail(one.place, "all", "not asked: there are too many daemons")
        del found[limits.BUNDLE_DAEMONS_MAX :]
        self.spool.members += found
        self._steps += _STEPS[kind] * len(found)
        return found

    def step(self, words: str, count: int) -> None:
        self._done += count
        self._tell(min(1.0, self._done / max(1, self._steps)), words)


class _Daemon:
    """One of them: what it is asked, and what we notice while it answers."""

    def __init__(self, gatherer: Gatherer, member: Member) -> None:
        self._gatherer = gatherer
        self._spool = gatherer.spool
        self._member = member
        self._deadline_s = float("inf")  # nothing more is asked then
        self._clock_s = float("-inf"), float("inf")  # its clock less ours is between these
        self._sample_times_s: list[float] = []

    async def lookupd(self) -> list[str]:
        """The nsqds that it knows."""
        async with self._gatherer.at_once:
            if not await self._ping():
                self._step("does not answer", len(_LOOKUPD))
                return []
            answers = {one.name: await self._ask(one) for one in _LOOKUPD}
            self._add_facts()
            return _nsqds_of(answers["nodes.json"])

    async def nsqd(self) -> None:
        seconds = self._gatherer.seconds
        async with self._gatherer.at_once:
            if not await self._ping():
                self._step("does not answer", _STEPS[NSQD] - 1)
                return
            begun_s = 0.0
            for one in _NSQD:
                if one.name == "stats-1.json":
                    begun_s = time.monotonic()
                await self._ask(one)
            await self._config()
            if seconds:
                self._step(f"second sample in {seconds} s", 0)
                query = {"seconds": str(seconds)}
                profile = Ask("profile.txt", Kind.TEXT, "/debug/pprof/profile", query)
                await self._ask(profile, seconds + limits.BUNDLE_ASK_S)
                await asyncio.sleep(max(0.0, begun_s + seconds - time.monotonic()))
            await self._ask(Ask("stats-2.json", Kind.JSON, "/stats", _STATS))
            self._add_facts()

    async def _ping(self) -> bool:
        """Whether it is there at all. One that says what ails it is."""
        seconds = limits.BUNDLE_DAEMON_S + 2 * self._gatherer.seconds
        self._deadline_s = time.monotonic() + seconds
        try:
            answer = await self._get("/ping", {})
        except FetchFailed as error:
            self._spool.fail(self._member.place, "/ping", error.reason)
            return False
        name = f"{self._member.place}/ping.txt"
        self._spool.add(name, Kind.TEXT, b"%d " % answer.status + answer.body, "/ping")
        self._step("/ping")
        return True

    async def _ask(self, ask: Ask, timeout_s: float = limits.BUNDLE_ASK_S) -> bytes:
        """The answer, b"" when there was none."""
        begun_s, place = time.monotonic(), self._member.place
        shown = f"{ask.path}?{urlencode(ask.query)}" if ask.query else ask.path
        try:
            answer = await self._get(ask.path, ask.query, timeout_s)
        except FetchFailed as error:
            self._spool.fail(place, shown, error.reason)
            return b""
        finally:
            self._step(ask.path)
        if answer.status != 200:
            if ask.is_everywhere or answer.status != 404:
                self._spool.fail(place, shown, f"got response {answer.status}")
            return b""
        ended_s = time.monotonic()
        if ask.path == "/stats":
            self._sample_times_s.append(ended_s)
        kind, took_ms = _kind(ask, answer), round((ended_s - begun_s) * 1000)
        name = ask.name.replace(".txt", ".pprof") if kind is Kind.BINARY else ask.name
        await self._spool.add_answer(f"{place}/{name}", kind, answer.body, shown, took_ms)
        return answer.body

    async def _get(
        self, path: str, query: Mapping[str, str], timeout_s: float = limits.BUNDLE_ASK_S
    ) -> Fetched:
        address = self._member.address
        base = address if "://" in address else f"http://{address}"
        url = f"{base.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        begun_s = time.time()
        timeout_s = min(timeout_s, self._deadline_s - time.monotonic())
        if timeout_s <= 0:
            raise FetchFailed(address, "not asked: its other answers took too long")
        try:
            answer = await asyncio.wait_for(self._gatherer.fetcher.request("GET", url), timeout_s)
        except TimeoutError as error:
            raise FetchFailed(address, f"no answer in {timeout_s:g} s") from error
        self._note_clock(answer, begun_s, time.time())
        return answer

    def _note_clock(self, answer: Fetched, begun_s: float, ended_s: float) -> None:
        try:
            said_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        low_s, high_s = self._clock_s
        self._clock_s = max(low_s, said_s - ended_s), min(high_s, said_s + 1 + _DATE_S - begun_s)

    def _add_facts(self) -> None:
        found: dict[str, Any] = {"sample_times_s": self._sample_times_s}
        low_s, high_s = self._clock_s
        if low_s <= high_s < float("inf"):
            found["clock_offset_s"] = [round(low_s, 3), round(high_s, 3)]
        self._spool.add_json(f"{self._member.place}/facts.json", found)

    async def _config(self) -> None:
        """Every value of nsqd's own config."""
        found: dict[str, Any] = {}
        at_once = asyncio.Semaphore(limits.BUNDLE_CONFIG_AT_ONCE)
        failed = ""

        async def ask(key: str) -> None:
            nonlocal failed
            async with at_once:
                if failed:
                    return  # one failure says enough
                try:
                    answer = await self._get(f"/config/{key}", {})
                except FetchFailed as error:
                    failed = error.reason
                    return
            if answer.status == 200:
                found[key] = _config_value(answer)
            elif answer.status not in (400, 404):
                failed = f"got response {answer.status}"

        await asyncio.gather(*map(ask, _CONFIG_KEYS))
        if failed:
            self._spool.fail(self._member.place, "/config", failed)
        if found:
            self._spool.add_json(f"{self._member.place}/config.json", dict(sorted(found.items())))
        self._step("/config")

    def _step(self, words: str, count: int = 1) -> None:
        self._gatherer.step(f"{self._member.address} {words}", count)


def _config_value(answer: Fetched) -> Any:
    text = answer.body.decode("utf-8", "replace")
    if answer.headers.get("content-type", "").startswith("text/plain"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _kind(ask: Ask, answer: Fetched) -> Kind:
    """Go's profiles are no text."""
    if ask.kind is Kind.TEXT and answer.headers.get("content-type", "").endswith("octet-stream"):
        return Kind.BINARY
    return ask.kind


def _nsqds_of(nodes: bytes) -> list[str]:
    """The HTTP addresses in an answer of nsqlookupd."""
    try:
        rows = json.loads(nodes)["producers"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    found = map(_address, rows) if isinstance(rows, list) else ()
    return [one for one in found if one]


def _address(row: Any) -> str:
    """ "" for one that serves HTTP on a unix socket, or not at all."""
    host, port = (row.get(key) for key in _WHERE) if isinstance(row, dict) else ("", 0)
    if not isinstance(host, str) or not isinstance(port, int) or port <= 0 or not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
