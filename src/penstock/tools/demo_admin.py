"""The demo's nsqadmin: the web UI beside the traffic, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from penstock.net.listener import Address

_NEEDED = ("nicegui", "fastapi", "uvicorn")
_STOP_S_MAX = 10.0


def missing() -> str:
    """What nsqadmin lacks here, "" when nothing."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""


class WebUi:
    """The process."""

    def __init__(self, address: Address, nsqd: Address, data_path: Path) -> None:
        self._address = address
        self._is_told = False
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.nsqadmin.main",
                f"--http-address={address}",
                f"--nsqd-http-address={nsqd}",
                f"--data-path={data_path / 'nsqadmin'}",
                f"--lake={data_path / 'lake'}",
                "--log-level=warn",
            ],
            start_new_session=True,  # Ctrl-C is the demo's to pass on, once
        )

    def news(self) -> str:
        """Once, when it answers or has ended; else "". It may take half a second."""
        if self._is_told:
            return ""
        code = self._process.poll()
        if code is not None:
            said = f"No web UI: nsqadmin ended with code {code}."
        elif self._answers():
            said = f"See and steer it all in a browser:  http://{self._address}"
        else:
            return ""
        self._is_told = True
        return said

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/ping", timeout=0.5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
