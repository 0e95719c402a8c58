"""An nsqd for tests of pipelines; the Spark session is in tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.daemon import Daemon

from .node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd") as daemon:
        yield Node(daemon)
