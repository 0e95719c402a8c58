from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unsynced import unsynced as unsynced

from .process import Process
from .world import Running


@pytest.fixture(scope="module")
def nsqd(unsynced: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One daemon with default options for the tests of a module; each uses topics of its own."""
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        yield running


@pytest.fixture
def data_path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def nsqd_process(data_path: Path) -> Iterator[Process]:
    process = Process(data_path)
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()
