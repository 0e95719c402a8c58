"""A pipeline as a user runs it: nsqd is away when it starts, and while it runs; a supervisor sends
SIGTERM to its whole process group."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from e2e.daemon import Daemon
from e2e.lookupd import eventually
from e2e.ports import kept_port

from .command import WAIT_S_MAX, Command
from .node import Node

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "nsqd", f"--http-address=127.0.0.1:{kept_port()}") as running:
        yield running


def archive(path: Path, node: Node, *flags: str) -> Command:
    table = f"--table={path / 'lake'}"
    names = (f"--url={node.url}", "--topics=orders", table, "--trigger=50ms")
    return Command(path / "stderr", "archive", *names, *flags)


def test_an_archive_waits_for_nsqd_and_ends_with_its_group(
    java: None, tmp_path: Path, daemon: Daemon
) -> None:
    node = Node(daemon)
    node.publish("orders", [b"one", b"two"])
    daemon.kill()
    run = archive(tmp_path, node)
    try:
        eventually(lambda: "trying again" in run.output(), WAIT_S_MAX, run.output)
        daemon.start()
        assert run.wait_for_rows(2), run.output()
        os.killpg(run.process.pid, signal.SIGTERM)  # as a terminal or a supervisor does
        assert run.finish() == 0, run.output()
    finally:
        if not run.ended:
            run.kill()
    assert DeltaTable(tmp_path / "lake").to_pyarrow_dataset().count_rows() == 2
    assert "Traceback" not in run.output()
