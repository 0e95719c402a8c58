"""A diagnostic bundle: one file with an installation's reports about itself. Bodies of messages are
never requested, and secrets never get in (`hiding.py`). docs/formats.md lists its files.

nsqlookupds are asked first, because they know nsqds; nsqds may be named, too. A daemon that does
not answer is written down as such, and the others are asked on. Everything is bounded: the time of
an answer, its size, the size of all, and the number of daemons.

Two samples of each nsqd's stats are taken some seconds apart, for rates; its profile is taken
meanwhile. The Date of an answer bounds how far a daemon's clock is from ours.

Paths that a daemon does not have (the official nsqd has no /connections) are no failure.
"""

import asyncio
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from penstock import __version__, limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import HttpAnswer
from penstock.nsqadmin.bundle.files import About, Failure, Member, Spool
from penstock.nsqadmin.upstream import LOOKUPD, NOT_OF_NSQ, NSQD, listed_in
from penstock.nsqd.options import FLAGS

Report = Callable[[float], None]  # how much is done, 0 to 1

_DATE_S = 1.0  # the Date of an answer may be so old


class Ask(NamedTuple):
    name: str
    path: str
    query: Mapping[str, str] = MappingProxyType({})
    is_everywhere: bool = True  # False: the official daemon does not have it


_INSIDE = (
    Ask("cmdline.txt", "/debug/pprof/cmdline"),
    Ask("stacks.txt", "/debug/pprof/goroutine", {"debug": "2"}),
    Ask("heap.txt", "/debug/pprof/heap", {"debug": "1"}),
)
_PROFILES = ("stacks.txt", "heap.txt", "profile.txt")
_FIRST, _LAST = (Ask(f"stats-{number}.json", "/stats", {"format": "json"}) for number in (1, 2))
_NSQD = (
    Ask("info.json", "/info"),
    Ask("connections.json", "/connections", is_everywhere=False),
    Ask("cluster.json", "/cluster", is_everywhere=False),
    Ask("metrics.txt", "/metrics", is_everywhere=False),
    *_INSIDE,
)
_LOOKUPD = (
    Ask("info.json", "/info"),
    Ask("topics.json", "/topics"),
    Ask("nodes.json", "/nodes"),
    Ask("registrations.json", "/debug"),
    Ask("metrics.txt", "/metrics", is_everywhere=False),
    *_INSIDE,
)
_STEPS = {NSQD: len(_NSQD) + 5, LOOKUPD: len(_LOOKUPD) + 1}
_CONFIG_KEYS = tuple(sorted({
    flag.file_key for flag in FLAGS if flag.name not in ("version", "config", "verbose")
}))  # fmt: skip


def make_fetcher(seconds: int, tls: Any = None) -> Fetcher:
    """A fetcher that waits for a profile, and accepts no longer answers than a bundle may hold."""
    timeout_ns = int((seconds + limits.BUNDLE_ASK_S) * limits.SECOND)
    return Fetcher(limits.FETCH_CONNECT_NS, timeout_ns, tls, limits.BUNDLE_ANSWER_BYTES_MAX)


def file_name(now_s: float) -> str:
    return f"penstock-bundle-{datetime.fromtimestamp(now_s, UTC):%Y%m%d-%H%M%S}.zip"


async def make(
    path: Path, nsqds: Iterable[str], lookupds: Iterable[str], about: About, tls: Any,
    report: Report,
) -> list[Failure]:  # fmt: skip
    """Gather, and write the zip. What could not be had is in it, and returned. OSError when the
    zip can't be written."""
    begun_s = time.time()
    spool, fetcher = Spool(path), make_fetcher(about.seconds, tls)
    try:
        await Gatherer(fetcher, spool, about.seconds, report).run(nsqds, lookupds)
        for name, facts in (("versions", _versions()), ("limits", _limits())):
            spool.put(f"machine/{name}.json", json.dumps(facts).encode())
        about.made = datetime.fromtimestamp(begun_s, UTC).isoformat(timespec="seconds")
        about.took_seconds = round(time.time() - begun_s, 3)
        await asyncio.to_thread(spool.finish, about)
        return spool.manifest.failures
    finally:
        await fetcher.close()
        spool.close()


class Gatherer:
    def __init__(
        self, fetcher: Fetcher, spool: Spool, seconds: int, report: Report = lambda share: None
    ) -> None:
        self.fetcher = fetcher
        self.spool = spool
        self.seconds = seconds
        self.at_once = asyncio.Semaphore(limits.BUNDLE_AT_ONCE)
        self._report = report
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
            self.spool.fail(one.folder, "all", "not asked: there are too many daemons")
        del found[limits.BUNDLE_DAEMONS_MAX :]
        self.spool.manifest.daemons += found
        self._steps += _STEPS[kind] * len(found)
        return found

    def step(self, count: int = 1) -> None:
        self._done += count
        self._report(self._done / self._steps)


class _Daemon:
    def __init__(self, gatherer: Gatherer, member: Member) -> None:
        self._gatherer = gatherer
        self._spool = gatherer.spool
        self._address = member.address
        self._folder = member.folder
        self._deadline_s = float("inf")  # nothing more is asked then
        self._clock_s = float("-inf"), float("inf")  # its clock less ours is between these
        self._sample_times_s: list[float] = []

    async def lookupd(self) -> list[str]:
        """The nsqds that it knows."""
        async with self._gatherer.at_once:
            if not await self._ping():
                self._gatherer.step(len(_LOOKUPD))
                return []
            answers = {one.name: await self._ask(one) for one in _LOOKUPD}
            await self._add_facts()
            try:
                found = listed_in({self._address: json.loads(answers["nodes.json"])})
            except (*NOT_OF_NSQ, RecursionError):
                return []
            # The others serve HTTP on a unix socket, or not at all.
            return [one.address for one in found if one.http_port > 0 and one.broadcast_address]

    async def nsqd(self) -> None:
        seconds = self._gatherer.seconds
        async with self._gatherer.at_once:
            if not await self._ping():
                self._gatherer.step(_STEPS[NSQD] - 1)
                return
            begun_s = time.monotonic()
            for one in (_FIRST, *_NSQD):
                await self._ask(one)
            await self._config()
            if seconds:
                query = {"seconds": str(seconds)}
                profile = Ask("profile.txt", "/debug/pprof/profile", query)
                await self._ask(profile, seconds + limits.BUNDLE_ASK_S)
                await asyncio.sleep(max(0.0, begun_s + seconds - time.monotonic()))
            await self._ask(_LAST)
            await self._add_facts()

    async def _ping(self) -> bool:
        """Is it alive? Its answer names its troubles."""
        self._deadline_s = time.monotonic() + limits.BUNDLE_DAEMON_S + 2 * self._gatherer.seconds
        try:
            answer = await self._get("/ping")
        except FetchFailed as error:
            self._spool.fail(self._folder, "/ping", error.reason)
            return False
        text = b"%d " % answer.status + answer.body
        await self._spool.add(f"{self._folder}/ping.txt", text, "/ping")
        self._gatherer.step()
        return True

    async def _ask(self, ask: Ask, timeout_s: float = limits.BUNDLE_ASK_S) -> bytes:
        """The answer, b"" when there was none."""
        begun_s = time.monotonic()
        shown = f"{ask.path}?{urlencode(ask.query)}" if ask.query else ask.path
        try:
            answer = await self._get(shown, timeout_s)
        except FetchFailed as error:
            self._spool.fail(self._folder, shown, error.reason)
            return b""
        finally:
            self._gatherer.step()
        if answer.status != 200:
            if ask.is_everywhere or answer.status != 404:
                self._spool.fail(self._folder, shown, f"got response {answer.status}")
            return b""
        ended_s = time.monotonic()
        if ask.path == "/stats":
            self._sample_times_s.append(ended_s)
        name = ask.name
        is_text = not answer.headers.get("content-type", "").endswith("octet-stream")
        if name in _PROFILES and not is_text:  # Go's
            name = name.replace(".txt", ".pprof")
        took_ms = round((ended_s - begun_s) * 1000)
        await self._spool.add(f"{self._folder}/{name}", answer.body, shown, took_ms)
        return answer.body

    async def _get(self, path: str, timeout_s: float = limits.BUNDLE_ASK_S) -> HttpAnswer:
        address = self._address
        base = address if "://" in address else f"http://{address}"
        begun_s = time.time()
        timeout_s = min(timeout_s, self._deadline_s - time.monotonic())
        if timeout_s <= 0:
            raise FetchFailed(address, "not asked: its other answers took too long")
        asked = self._gatherer.fetcher.request("GET", f"{base.rstrip('/')}{path}")
        try:
            answer = await asyncio.wait_for(asked, timeout_s)
        except TimeoutError as error:
            raise FetchFailed(address, f"no answer in {timeout_s:g} s") from error
        self._note_clock(answer, begun_s, time.time())
        return answer

    def _note_clock(self, answer: HttpAnswer, begun_s: float, ended_s: float) -> None:
        try:
            said_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        low_s, high_s = self._clock_s
        self._clock_s = max(low_s, said_s - ended_s), min(high_s, said_s + 1 + _DATE_S - begun_s)

    async def _add_facts(self) -> None:
        found: dict[str, Any] = {"sample_times_s": self._sample_times_s}
        low_s, high_s = self._clock_s
        if low_s <= high_s < float("inf"):
            found["clock_offset_s"] = [round(low_s, 3), round(high_s, 3)]
        await self._spool.add(f"{self._folder}/facts.json", msgspec.json.encode(found))

    async def _config(self) -> None:
        """Every value of nsqd's own config; one failure suffices."""
        found: dict[str, Any] = {}
        keys = iter(_CONFIG_KEYS)

        async def ask() -> None:
            for key in keys:
                answer = await self._get(f"/config/{key}")
                if answer.status == 200:
                    found[key] = _config_value(answer)
                elif answer.status not in (400, 404):
                    raise FetchFailed(self._address, f"got response {answer.status}")

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(limits.BUNDLE_CONFIG_AT_ONCE):
                    tasks.create_task(ask())
        except* FetchFailed as failed:
            first = failed.exceptions[0]
            self._spool.fail(self._folder, "/config", getattr(first, "reason", str(first)))
        if found:
            data = json.dumps(dict(sorted(found.items()))).encode()
            await self._spool.add(f"{self._folder}/config.json", data)
        self._gatherer.step()


def _config_value(answer: HttpAnswer) -> Any:
    text = answer.body.decode("utf-8", "replace")
    if answer.headers.get("content-type", "").startswith("text/plain"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- this machine, without personal data ---

_PACKAGES = (
    "cramjam", "cython", "duckdb", "deltalake", "fastapi", "httptools", "msgspec", "nicegui",
    "pyarrow", "pyspark", "starlette", "uvicorn",
)  # fmt: skip
_LIMITS = ("NOFILE", "NPROC", "AS", "CORE", "FSIZE", "MEMLOCK", "STACK")
_MEMORY = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree")
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    "memory.max", "memory.current", "memory.high", "memory.events", "cpu.max", "cpu.stat",
    "pids.max", "pids.current", "io.max",
)  # fmt: skip


def _versions() -> dict[str, Any]:
    packages, distribution = {}, ""
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    with suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {
        "penstock": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": distribution,
        "packages": packages,
    }


def _limits() -> dict[str, Any]:
    kinds = ((name, getattr(resource, f"RLIMIT_{name}", None)) for name in _LIMITS)
    found = {name: resource.getrlimit(kind) for name, kind in kinds if kind is not None}
    memory = (line.partition(":") for line in _read(Path("/proc/meminfo")).splitlines())
    own = _read(Path("/proc/self/cgroup")).rpartition("::")[2].lstrip("/")
    cgroup = {name: _read(_CGROUP / own / name) or _read(_CGROUP / name) for name in _CGROUP_FILES}
    return {
        "ulimits": {
            name.lower(): ["unlimited" if one == resource.RLIM_INFINITY else one for one in pair]
            for name, pair in found.items()
        },
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if sys.platform == "linux" else None,
        "load": list(os.getloadavg()),
        "memory": {name: int(kib.split()[0]) * 1024 for name, _, kib in memory if name in _MEMORY},
        "cgroup": {name: text for name, text in cgroup.items() if text},
        "environment": sorted(name for name in os.environ if name.startswith("PENSTOCK_")),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
