"""Daemons as processes of `penstock demo` and `penstock up`, each with a file for its output:
started together, watched, and ended together.
"""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.net.listener import ListenAddress, listen
from penstock.tools.output import DONE
from penstock.tools.utility import Live, pause, until_signal

ASKED = {"k": "killed", "s": "stopped", "p": "paused"}
_SIGNALS = {"k": signal.SIGKILL, "s": signal.SIGTERM, "p": signal.SIGSTOP}
# SIGHUP: the terminal closed. A second one changes nothing: no daemon is left behind.
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_STOP_S_MAX = 30.0
_LINES_SHOWN = 8
_WEB_PACKAGES = ("nicegui", "fastapi", "uvicorn")
STILL_STARTING_S = 5.0  # between two words about it: a busy machine needs half a minute


class Program:
    """A process that can be restarted. Its output goes into `output`."""

    def __init__(self, name: str, command: Sequence[str], output: Path) -> None:
        self.name, self.output = name, output
        self._command = list(command)
        self._asked = ""  # what was done to it
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._asked = ""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )  # fmt: skip

    @property
    def state(self) -> str:
        code = None if self.process is None else self.process.poll()
        if code is not None:
            return self._asked or f"ended with code {code}"
        return {"": "running", "stopped": "stopping"}.get(self._asked, self._asked)

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        return "\n".join([f"{self.name} {self.state}:", *lines])

    def do(self, key: str) -> None:
        """A second pause resumes it."""
        if self.process is None or self.process.poll() is not None:
            return
        was_paused = self._asked == "paused"
        goes_on = key == "p" and was_paused
        self._asked = "" if goes_on else ASKED[key]
        if not goes_on:
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
        self.process.terminate()
        try:
            self.process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def daemon(name: str, module: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", module, *flags]
    return Program(name, command, directory / f"{name}.log")


def check_free(addresses: Sequence[ListenAddress], others: str) -> None:
    """Raises PenstockError with the used ports; `others`: how to choose others."""
    found = []
    for one in addresses:
        try:
            listen(str(one)).close()
        except OSError:
            found.append(str(one))
    if found:
        asked = f"Is another nsqd running? Stop it, or choose other ports: {others}"
        raise PenstockError(f"{' and '.join(found)}: taken. {asked}")


def lacks_web() -> str:
    """The packages missing for nsqadmin, "" without any."""
    if any(find_spec(name) is None for name in _WEB_PACKAGES):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""


# --- all of them ---


class Programs:
    """The first one is needed by the others: it ends last. Without the `needed` ones (all by
    default) the start fails."""

    def __init__(self, programs: Sequence[Program], needed: Sequence[Program] = ()) -> None:
        self.programs = list(programs)
        self._needed = list(needed) or self.programs

    def start(self) -> None:
        """All at once: most of the time goes into imports, which share the cores."""
        for program in self.programs:
            program.start()

    async def until_ready(
        self, ended: asyncio.Event, is_ready: Callable[[], bool], seconds_max: float
    ) -> bool:
        """False: an end was requested. PenstockError when a needed one ends before, with its last
        output, or takes too long."""
        begun_s, notices = time.monotonic(), 0
        while not await asyncio.to_thread(is_ready):
            for program in self._needed:
                if program.state != "running":
                    raise PenstockError(program.last_words())
            passed_s = time.monotonic() - begun_s
            if passed_s > seconds_max:
                logs = self.programs[0].output.with_name("*.log")
                raise PenstockError(f"not ready after {seconds_max:.0f} s; look at {logs}")
            if passed_s > STILL_STARTING_S * (notices + 1):
                notices += 1
                print(f"still starting, since {STILL_STARTING_S * notices:.0f} s", flush=True)
            if not await pause(ended, 0.05):
                return False
        return True

    def end(self, key: str = "s") -> None:
        """In order, or killed where nothing is kept."""
        first, *others = self.programs
        for one in others:
            if one.state == "paused":
                one.do("p")
            one.do(key)
        for one in (*others, first):
            one.end()


def run(programs: Programs, live: Live, ending: str = "s") -> int:
    """Starts them, and ends them after `live`, also after a signal before there is a loop: nothing
    is left running. Returns the exit code: that of `live`, 0 after a signal."""
    for number in _ENDINGS:
        signal.signal(number, signal.default_int_handler)
    try:
        programs.start()
        return asyncio.run(until_signal(live, *_ENDINGS))
    except KeyboardInterrupt:
        return DONE
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # it ends already
        programs.end(ending)


async def show(ended: asyncio.Event, seconds: float, draw: Callable[[], Awaitable[bool]]) -> None:
    """A picture a second, until an end is requested, the time is over, or `draw` returns False."""
    begun_s = time.monotonic()
    while await pause(ended, 1.0) and await draw():
        if seconds and time.monotonic() - begun_s >= seconds:
            return


Draw = Callable[[Sequence[str]], None]


@contextmanager
def screen() -> Iterator[Draw]:
    """Lines that are drawn over the ones before, on a terminal."""
    if not terminal.is_watched(sys.stdout):
        yield lambda lines: print("\n".join(lines), flush=True)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        yield lambda lines: live.update(Text.from_ansi("\n".join(lines)), refresh=True)
