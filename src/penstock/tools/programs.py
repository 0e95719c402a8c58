"""Daemons as processes of `penstock demo` and `penstock up`: each says what it has to say in a file
of its own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ConfigError
from penstock.net.listener import Address, listen, parse_address

ASKED = {"k": "killed", "s": "stopped", "p": "paused"}
_SIGNALS = {"k": signal.SIGKILL, "s": signal.SIGTERM, "p": signal.SIGSTOP}
_STOP_S_MAX = 30.0
_LINES_SHOWN = 8
_WEB_PACKAGES = ("nicegui", "fastapi", "uvicorn")


class Program:
    """A process that can be started again. What it says is in `said`."""

    def __init__(self, name: str, command: Sequence[str], said: Path) -> None:
        self.name, self.said = name, said
        self._command = list(command)
        self._asked = ""  # what was done to it
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._asked = ""
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )  # fmt: skip

    @property
    def state(self) -> str:
        code = None if self.process is None else self.process.poll()
        if code is not None:
            return self._asked or f"ended with code {code}"
        return {"": "running", "stopped": "stopping"}.get(self._asked, self._asked)

    def last_words(self) -> str:
        lines = self.said.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        return "\n".join([f"{self.name} {self.state}:", *lines])

    def do(self, key: str) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        was_paused = self._asked == "paused"
        self._asked = "" if key == "p" and was_paused else ASKED[key]
        if not (key == "p" and was_paused):
            self.process.send_signal(_SIGNALS[key])
        if was_paused:
            self.process.send_signal(signal.SIGCONT)

    def bring_back(self) -> None:
        if self._asked == "paused":
            self.do("p")
        elif self.process is None or self.process.poll() is not None:
            self.start()

    def end(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def daemon(name: str, module: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", module, *flags]
    return Program(name, command, directory / f"{name}.log")


def taken(addresses: Sequence[Address]) -> list[Address]:
    """Those that somebody has."""
    found = []
    for one in addresses:
        try:
            listen(one).close()
        except OSError:
            found.append(one)
    return found


def host_and_port(text: str) -> Address:
    """Raises ValueError of what curl or a browser could not be given: a unix socket, any port."""
    try:
        found = parse_address(text)
    except ConfigError:
        found = Address("", 0, text)
    if found.path or not found.port:
        raise ValueError(f"{text!r} is not host:port with a port of 1 to 65535")
    return found


def lacks_web() -> str:
    """What nsqadmin lacks here, "" when nothing."""
    if any(find_spec(name) is None for name in _WEB_PACKAGES):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""
