"""A real daemon whose system has its clock set: delays and ages bear it, and it is reported. What
becomes of a clock that was wrong for long: `broker/topics/test_age.py`."""

import sys
import time
from pathlib import Path

import pytest

from .daemon import Daemon

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


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_delays_and_ages_bear_a_jump_of_an_hour(tmp_path: Path, jump_s: int) -> None:
    daemon = Shifted(tmp_path / "data")
    daemon.set_clock(0)
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
