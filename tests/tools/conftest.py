from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.daemon import Daemon, shared_daemon
from penstock.tools import connection

from .utilities import Run, runner


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor variables say which installation is meant."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in (*connection.TCP, "context"):
        monkeypatch.delenv(f"PENSTOCK_{name.upper()}", raising=False)


daemon = shared_daemon("--durability=os")


@pytest.fixture
def here(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.http_port}"


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command as a function: its exit code, and what it wrote."""
    return runner(capsys, monkeypatch)


@pytest.fixture
def run(here: str, penstock: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same on the nsqd `here`."""
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", here)
    return penstock


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """Two that know nothing of each other."""
    path = tmp_path_factory.mktemp("two")
    with Daemon(path / "a", "--durability=os") as one, Daemon(path / "b", "--durability=os") as two:
        yield [one, two]
