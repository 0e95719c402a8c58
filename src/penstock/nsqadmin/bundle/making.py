"""One bundle, from the wish to the file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock import limits
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.bundle import machine, writing
from penstock.nsqadmin.bundle.form import Failure
from penstock.nsqadmin.bundle.gather import Gatherer, Tell
from penstock.nsqadmin.bundle.writing import Spool

Extra = Callable[[Spool], None]  # adds files of the one who gathers


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
        await asyncio.to_thread(writing.write, spool, path, about)
        return spool.failures
    finally:
        spool.close()
