"""One test class over both forms of the kernel. A form that was not built is an error, not a skip:
half of what these tests are for is that the two agree."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import get_args

import pytest

from penstock.kernel import Form, load

from .turns import Side


@pytest.fixture(scope="session", params=get_args(Form))
def kernel(request: pytest.FixtureRequest) -> SimpleNamespace:
    return load(request.param)


@pytest.fixture(scope="session")
def compiled() -> SimpleNamespace:
    return load("compiled")


@pytest.fixture(scope="session")
def pure() -> SimpleNamespace:
    return load("pure")


@pytest.fixture
def side(kernel: SimpleNamespace) -> Iterator[Side]:
    """A module whose tests are about other limits has a fixture of its own."""
    side = Side(kernel, rdy_count_max=200_000)
    yield side
    side.validate()
    side.close()
