from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from e2e.daemon import Daemon
from penstock.tools.main import main

from .utilities import ask, publish, until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("watch") / "data", "--durability=os") as running:
        yield running


def run_while_publishing(daemon: Daemon, bodies: list[bytes], *arguments: str) -> int:
    """The tail runs in this thread, because signals do; another publishes once it listens."""
    topic = arguments[0]
    ask(daemon, f"/topic/create?topic={topic}", b"")

    def later() -> None:
        until(lambda: b"#ephemeral" in ask(daemon, f"/stats?topic={topic}"), "a channel")
        for body in bodies:
            ask(daemon, f"/pub?topic={topic}", body)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        address = f"--nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"
        return main(["tail", *arguments, f"--count={len(bodies)}", address])
    finally:
        thread.join()


def test_people_see_when_which_and_what(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_while_publishing(daemon, [b"a\x1b[2Jb\xff\xc3\xa9", b"x" * 600], "seen") == 0
    first, second = capsys.readouterr().out.splitlines()
    date, clock, message_id, body = first.split(" ")
    assert (len(date), len(clock), len(message_id), body) == (10, 12, 16, "a\\x1b[2Jb\\xff\u00e9")
    assert second.endswith("x" * 500 + "... (600 bytes)")


def test_one_partition_is_watched(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    ask(daemon, "/topic/create?topic=split&partition_num=3", b"")

    def later() -> None:
        until(lambda: b"#ephemeral" in ask(daemon, "/stats?topic=split"), "a channel")
        for partition in (0, 2, 1):
            ask(daemon, f"/pub?topic=split&partition={partition}", b"in %d" % partition)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        address = f"--nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"
        assert main(["tail", "split", "--partition=1", "--count=1", address]) == 0
    finally:
        thread.join()
    assert capsys.readouterr().out.splitlines()[0].endswith(" in 1")


def test_a_drain(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Daemon(tmp_path_factory.mktemp("drain") / "data", "--durability=os") as other:
        here = f"--nsqd-http-address=127.0.0.1:{other.http_port}"
        ask(other, "/topic/create?topic=t", b"")
        ask(other, "/channel/create?topic=t&channel=c", b"")
        publish(other, "t", [b"one", b"two"])
        assert main(["drain", "--status", here]) == 0
        assert capsys.readouterr().out.startswith("off: 2 left\n")
        assert main(["drain", here]) == 1  # nobody is here to say yes
        assert main(["drain", here, "--yes"]) == 0
        assert capsys.readouterr().out.splitlines()[2].split() == ["t/c", "2", "0", "0", "0"]
        assert main(["drain", here, "--cancel", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "off"
        ask(other, "/channel/empty?topic=t&channel=c", b"")
        assert main(["drain", here, "--yes", "--watch"]) == 0
        out = capsys.readouterr().out
        assert out == f"draining: 0 left\n127.0.0.1:{other.http_port} has stopped\n"
        assert other.wait() == 0
    assert main(["drain", here, "--nsqd-http-address=127.0.0.1:1", "--yes"]) == 1
    assert "name one node" in capsys.readouterr().err
