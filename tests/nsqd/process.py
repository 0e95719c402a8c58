"""nsqd as a process of its own, with its log in a file."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from penstock.net.listener import Address

NSQD = [sys.executable, "-m", "penstock.nsqd.main"]
WAIT_SECONDS = 60


class Process:
    def __init__(self, data_path: Path, *flags: str) -> None:
        self.log = data_path.parent / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *NSQD,
                    f"--data-path={data_path}",
                    "--tcp-address=127.0.0.1:0",
                    "--http-address=127.0.0.1:0",
                    *flags,
                ],
                stderr=log,
            )
        self.tcp = self._wait_for(r"INFO: TCP: listening on 127\.0\.0\.1:(\d+)$")
        self.http = self._wait_for(r"INFO: HTTP: listening on 127\.0\.0\.1:(\d+)$")

    def _wait_for(self, line: str) -> Address:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.findall(line, self.log.read_text(), re.MULTILINE)
            if found:
                return Address("127.0.0.1", int(found[-1]), "")
            time.sleep(0.02)
        raise AssertionError(f"no line like {line}:\n{self.log.read_text()}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)
