"""A real daemon whose system has its clock set: delays and ages bear it, and it is reported."""

import sys
import time
from pathlib import Path

import pytest

from .daemon import Daemon
from .lookupd import eventually

HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S

# The system's clock is ahead by the seconds that a file names.
SHIFTED = """
import sys, time
path, real = sys.argv.pop(1), time.time_ns
time.time_ns = lambda: real() + int(open(path).read() or 0) * 10**9
from penstock.nsqd.main import main
sys.exit(main())
"""


class Shifted(Daemon):
    @property
    def shift(self) -> Path:
        return self.data_path.parent / "shift"

    def set_clock(self, seconds: int) -> None:
        part = self.shift.with_suffix(".part")
        part.write_text(str(seconds))
        part.rename(self.shift)

    def command(self) -> list[str]:
        return [sys.executable, "-Wignore::ResourceWarning", "-c", SHIFTED, str(self.shift),
                *super().command()[3:]]  # fmt: skip

    def ping(self) -> str:
        status, body = self.http("GET", "/ping")
        assert status == 200
        return body.decode()


@pytest.fixture
def daemon(tmp_path: Path) -> Shifted:
    daemon = Shifted(tmp_path / "data")
    daemon.set_clock(0)
    return daemon


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_delays_and_ages_bear_a_jump_of_an_hour(daemon: Shifted, jump_s: int) -> None:
    with daemon:
        daemon.make("t", "c")
        daemon.post("/topic/config?topic=t&max_age=20m")
        daemon.post("/pub?topic=t", b"now")
        daemon.post("/pub?topic=t&defer=600000", b"later")
        daemon.post("/pub?topic=t&defer=2000", b"soon")
        daemon.set_clock(jump_s)
        time.sleep(1.5)  # a round of housekeeping
        row = daemon.channel_stats("t", "c")
        assert (row["depth"], row["expired_count"]) == (1, 0)
        assert row["deferred_count"] == 2
        time.sleep(2)
        row = daemon.channel_stats("t", "c")
        assert (row["depth"], row["deferred_count"], row["expired_count"]) == (2, 1, 0)
        assert "the system's clock was set" in daemon.stderr()


def test_a_clock_that_was_a_year_ahead_is_reported_and_ages_go_on(daemon: Shifted) -> None:
    with daemon:
        daemon.set_clock(YEAR_S)
        daemon.stop()
        daemon.start()
        daemon.make("t", "c")
        daemon.post("/topic/config?topic=t&max_age=3s")
        daemon.post("/pub?topic=t", b"ahead")
        daemon.set_clock(0)
        daemon.kill()
        daemon.start()
        assert daemon.ping().startswith("OK - warning: message ids and timestamps are ahead")
        assert "are ahead of the clock" in daemon.stats()["health"]
        daemon.post("/pub?topic=t", b"behind")
        assert daemon.channel_stats("t", "c")["depth"] == 2
        eventually(lambda: daemon.channel_stats("t", "c")["expired_count"] == 2)
        assert daemon.channel_stats("t", "c")["depth"] == 0
