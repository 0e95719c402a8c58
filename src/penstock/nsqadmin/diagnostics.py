"""Diagnostic bundles that nsqadmin gathers: one at a time, the last few kept.

A bundle is judged when it is made. Its file loses its name at once and stays open, so nothing is
left behind whatever becomes of the process. nsqadmin adds what it knows itself: its options, stores
and polling, and what its rules have found over the last minutes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin.attention import Finding, findings, of_runs
from penstock.nsqadmin.bundle import files
from penstock.nsqadmin.bundle.files import Failure, Spool
from penstock.nsqadmin.bundle.gather import BundleRequest, Report, file_name, make, make_fetcher
from penstock.nsqadmin.bundle.judge import FindingRow, judge
from penstock.nsqadmin.options import FLAGS, UNTOLD
from penstock.nsqadmin.watch import pause_s

if TYPE_CHECKING:
    from penstock.nsqadmin.deps import Deps

ACTION = "gather_diagnostics"  # in the audit log
_READ_BYTES = 1 << 16


class DiagnosticsBusy(PenstockError):
    """A bundle is being gathered; another would only repeat its requests."""


@dataclass
class Kept:
    """One bundle. `file` has no name any more."""

    id: str
    name: str  # to be saved as
    file: IO[bytes]
    size: int  # in bytes
    made_s: float
    who: str
    findings: list[Finding]
    failures: list[Failure]

    async def parts(self) -> AsyncIterator[bytes]:
        """Its bytes. Several may read at once: nobody moves the file's position."""
        position = 0
        while position < self.size:
            number = self.file.fileno()
            part = await asyncio.to_thread(os.pread, number, _READ_BYTES, position)
            if not part:
                return
            yield part
            position += len(part)


class Diagnostics:
    """The newest last."""

    def __init__(self, clock_s: Callable[[], float] = time.time) -> None:
        self._clock_s = clock_s
        self._kept: list[Kept] = []
        self._is_busy = False

    @property
    def kept(self) -> list[Kept]:
        self._forget_old()
        return list(self._kept)

    def find(self, id_: str) -> Kept | None:
        return next((one for one in self.kept if one.id == id_), None)

    async def make(
        self, deps: Deps, who: str, seconds: int, report: Report = lambda share, words: None
    ) -> Kept:
        """Raises DiagnosticsBusy, and OSError when there is no room for the file."""
        if self._is_busy:
            raise DiagnosticsBusy("a bundle is being gathered already: wait for it")
        self._is_busy = True
        try:
            kept = await self._make(deps, who, seconds, report)
        finally:
            self._is_busy = False
        self.keep(kept)
        return kept

    def keep(self, kept: Kept) -> None:
        self._kept.append(kept)
        self._forget_old()

    async def _make(self, deps: Deps, who: str, seconds: int, report: Report) -> Kept:
        await deps.watch.ready()
        request = BundleRequest(
            who, "nsqadmin", tuple(deps.watch.latest.nodes), deps.upstream.lookupds,
            seconds=seconds,
        )  # fmt: skip
        now_s = self._clock_s()
        folder = Path(tempfile.mkdtemp(prefix="penstock-diagnostics-"))
        fetcher = make_fetcher(
            seconds, deps.fetcher.tls, deps.options.http_client_connect_timeout_ns
        )
        try:
            path = folder / file_name(now_s)
            failures = await make(
                path, request, fetcher, report, lambda spool: add_facts(spool, deps)
            )
            found = await asyncio.to_thread(lambda: judge(files.read(str(path))))
            file = path.open("rb")
            return Kept(
                secrets.token_urlsafe(12), path.name, file, path.stat().st_size, now_s, who,
                found, failures,
            )  # fmt: skip
        finally:
            await fetcher.close()
            await asyncio.to_thread(shutil.rmtree, folder, True)

    def _forget_old(self) -> None:
        since_s = self._clock_s() - limits.BUNDLE_KEPT_S
        while self._kept and (
            len(self._kept) > limits.BUNDLE_KEPT or self._kept[0].made_s < since_s
        ):
            self._kept.pop(0).file.close()

    def close(self) -> None:
        while self._kept:
            self._kept.pop().file.close()


# --- nsqadmin's own data ---


def add_facts(spool: Spool, deps: Deps) -> None:
    latest = deps.watch.latest
    options = {flag.file_key: getattr(deps.options, flag.attribute) for flag in FLAGS
               if flag.name not in UNTOLD}  # fmt: skip
    spool.put_json("nsqadmin/config.json", options)
    spool.put_json("nsqadmin/stores.json", _stores(deps))
    interval_s = deps.options.poll_interval_ns / limits.SECOND
    nodes = [
        {
            "address": node.address,
            "answers_s": [round(one, 4) for one in node.took_s],
            "pause_s": round(pause_s(interval_s, node), 3),
            "error": node.error,
        }
        for node in latest.nodes.values()
    ]
    polling = {"interval_s": interval_s, "errors": list(latest.errors), "nodes": nodes}
    spool.put_json("nsqadmin/polling.json", polling)
    found = [*findings(latest, deps.history.window), *of_runs(deps.runs.runs, time.time())]
    rows = [FindingRow(*one[:-1]) for one in found]
    spool.put_json("nsqadmin/attention.json", {"findings": rows})


def _stores(deps: Deps) -> dict[str, Any]:
    """Their sizes, without their contents."""
    sizes = {}
    for path in sorted((*deps.data_path.glob("admin.db*"), *deps.data_path.glob("history.db*"))):
        try:
            sizes[path.name] = path.stat().st_size
        except OSError:
            continue  # a journal that has just gone
    return {"bytes": sizes, "user_count": len(deps.store.users())}
