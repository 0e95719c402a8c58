"""An nsqd and an object store for tests of pipelines; the Spark session is in tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.daemon import Daemon

from .node import Node

if TYPE_CHECKING:
    from .store import Store


@pytest.fixture(scope="module")
def bucket() -> Iterator[Store]:
    from .store import store  # its packages take long to import

    with store() as found:
        yield found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd") as daemon:
        yield Node(daemon)
