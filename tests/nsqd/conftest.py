from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import Running


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One daemon with default options for the tests of a module; each uses topics of its own."""
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        yield running
