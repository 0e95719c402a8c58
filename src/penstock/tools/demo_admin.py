"""The demo's nsqadmin: the web UI beside the traffic, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from penstock.net.listener import Address

_NEEDED = ("nicegui", "fastapi", "uvicorn")
_STOP_S_MAX = 10.0


def missing() -> str:
    """What nsqadmin lacks here, "" when nothing."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""


def start(address: Address, nsqd: Address, data_path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
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


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
