"""One test class over both forms of the kernel. A form that was not built is an error, not a skip:
half of what these tests are for is that the two agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import pytest

from penstock.kernel import Form, load


@pytest.fixture(scope="session", params=get_args(Form))
def kernel(request: pytest.FixtureRequest) -> SimpleNamespace:
    return load(request.param)


@pytest.fixture(scope="session")
def compiled() -> SimpleNamespace:
    return load("compiled")


@pytest.fixture(scope="session")
def pure() -> SimpleNamespace:
    return load("pure")
