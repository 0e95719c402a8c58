"""A real nsqlookupd in a process of its own."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .daemon import Daemon


class Lookupd(Daemon):
    """Keeps its ports when it is started again, so that those who know it find it."""

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "penstock.nsqlookupd.main",
            f"--tcp-address=127.0.0.1:{self.tcp_port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1",
            *self.flags,
        ]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tcp_port}"

    def get(self, path: str) -> Any:
        status, body = self.http("GET", path)
        return json.loads(body) if status == 200 else {"status": status}

    def knows(self, topic: str, *daemons: Daemon) -> bool:
        found = self.get(f"/lookup?topic={topic}").get("producers", [])
        return {row["tcp_port"] for row in found} == {daemon.tcp_port for daemon in daemons}


def nsqd(path: Path, *lookupds: str, flags: tuple[str, ...] = ()) -> Daemon:
    addresses = [f"--lookupd-tcp-address={address}" for address in lookupds]
    return Daemon(path, "--broadcast-address=127.0.0.1", *addresses, *flags)


def eventually(
    holds: Callable[[], object], timeout_s: float = 60.0, say: Callable[[], object] = str
) -> None:
    """`say` tells what is wrong when it does not come to be."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"it did not come to be in {timeout_s:.0f} s: {say()}")
        time.sleep(0.02)
