"""NSQ utilities as processes, and nsqds to use them on."""

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest

from e2e.daemon import Daemon
from e2e.lookupd import eventually
from penstock import limits
from penstock.tools.main import main

WAIT_S_MAX = 90.0
Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ns = int(datetime(2026, 3, 4, 5, 6, 7).timestamp()) * limits.SECOND

    def __call__(self) -> int:
        return self.now_ns


def tcp(daemon: Daemon) -> str:
    return f"--nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"


def http(daemon: Daemon) -> str:
    return f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"


def publish(daemon: Daemon, topic: str, bodies: Sequence[bytes]) -> None:
    daemon.post(f"/mpub?topic={topic}", b"\n".join(bodies))


def channel_row(daemon: Daemon, topic: str, channel: str) -> dict[str, Any]:
    found = json.loads(daemon.http("GET", f"/stats?format=json&topic={topic}&channel={channel}")[1])
    for row in found["topics"] or ():
        for channel_found in row["channels"]:
            return dict(channel_found)
    return {}


def is_done(daemon: Daemon, topic: str, channel: str) -> bool:
    row = channel_row(daemon, topic, channel)
    return bool(row) and row["depth"] + row["in_flight_count"] + row["deferred_count"] == 0


def tailed(daemon: Daemon, topic: str, publish: Callable[[], None], *words: str) -> int:
    """The code of `penstock tail`, which runs in this thread, because signals do; `publish` is
    called in another once it listens."""

    def later() -> None:
        until(lambda: b"#ephemeral" in daemon.http("GET", f"/stats?topic={topic}")[1], "a channel")
        publish()

    thread = threading.Thread(target=later)
    thread.start()
    try:
        return main(["tail", topic, *words, tcp(daemon)])
    finally:
        thread.join()


def until(condition: Callable[[], object], what: str) -> None:
    eventually(condition, WAIT_S_MAX, lambda: what)


def until_subscribed(daemon: Daemon, topic: str) -> None:
    until(lambda: channel_row(daemon, topic, "c").get("client_count"), "a subscription")


def as_json(result: tuple[int, str, str]) -> Any:
    """Of a verb that has succeeded."""
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def out_of(result: tuple[int, str, str], code: int = 0) -> str:
    """Of a verb that has ended with this code."""
    assert result[0] == code, result
    return result[1]


def err_of(result: tuple[int, str, str], code: int) -> str:
    assert result[0] == code, result
    return result[2]


class Utility:
    """`with Utility("nsq_tail", "--topic=t", ...) as tail:`; killed at the end if it still runs."""

    def __init__(self, name: str, *flags: str, cwd: Path, stdin: bool = False) -> None:
        self._err = (cwd / f"{name}.stderr").open("w+b")
        self._out = (cwd / f"{name}.stdout").open("w+b")
        code = f"import sys; from penstock.tools.{name} import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *flags],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            cwd=cwd,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._out.close()
        self._err.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S_MAX)

    def wait(self) -> int:
        return self.process.wait(WAIT_S_MAX)

    @property
    def out(self) -> bytes:
        return Path(str(self._out.name)).read_bytes()

    @property
    def err(self) -> str:
        return Path(str(self._err.name)).read_text("utf-8", "replace")


def finish(name: str, daemon: Daemon, topic: str, *flags: str, cwd: Path) -> str:
    """Let a utility finish all of the topic's channel c. What it said on stderr."""
    flags = (f"--topic={topic}", "--channel=c", tcp(daemon), *flags)
    with Utility(name, *flags, cwd=cwd) as utility:
        until(lambda: is_done(daemon, topic, "c"), "all finished")
        assert utility.end() == 0
        return utility.err
