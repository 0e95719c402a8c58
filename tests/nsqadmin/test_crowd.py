"""Pages that were opened and left leave nothing behind; pages that nobody opens are few."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.lookupd import eventually
from penstock import limits

from . import sockets
from .conftest import Installation
from .running import Admin

PATHS = ["/", "/topics", "/topics/left", "/topics/left/behind", "/nodes", "/counter", "/lookup"]
OPENED = 2  # times each path
ASKED = 45
WAIT_S = 60.0
TASKS_MAX = 30  # without pages there are ten or twenty


class Counting(Admin):
    def command(self) -> list[str]:
        command = super().command()
        at = command.index("-m")
        return [*command[:at], str(Path(__file__).with_name("counting.py")), *command[at + 2 :]]

    def counts(self) -> dict[str, int]:
        path = Path(os.environ["COUNTS"])
        path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        eventually(path.exists, WAIT_S, self.stderr)
        counts: dict[str, int] = json.loads(path.read_text())
        return counts

    def counts_once_left(self) -> dict[str, int]:
        """When no page is left, and no task of one."""
        deadline_s = time.monotonic() + WAIT_S
        while (counts := self.counts())["clients"] or counts["tasks"] > TASKS_MAX:
            assert time.monotonic() < deadline_s, counts
            time.sleep(0.1)
        return counts


@pytest.fixture
def admin(
    tmp_path: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Counting]:
    monkeypatch.setenv("COUNTS", str(tmp_path / "counts"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    installation.nsqd.make("left", "behind")
    with Counting(tmp_path / "admin", installation.of_nsqd) as admin:
        yield admin


async def open_and_leave(admin: Admin, times: int) -> None:
    for path in PATHS * times:
        page = sockets.drawn(admin, path)
        async with sockets.socket(admin, page) as client:
            await sockets.settle(client, page)


def test_pages_leave_nothing_behind(admin: Counting) -> None:
    asyncio.run(open_and_leave(admin, 1))
    before = admin.counts_once_left()
    assert before["elements"] == 0
    asyncio.run(open_and_leave(admin, OPENED))
    for number in range(ASKED):
        assert admin.request("GET", PATHS[number % len(PATHS)])[0] == 200
    # Those that were left just now may still be waited for.
    assert admin.counts()["waiting"] <= limits.ADMIN_PAGES_WAITING + OPENED * len(PATHS)
    after = admin.counts_once_left()
    assert after["elements"] == 0
    assert after["listeners"] == before["listeners"]
    assert after["callers"] == 0
