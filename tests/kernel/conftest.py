"""The kernel, and one side of a conversation with it."""

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from .turns import Side


@pytest.fixture(scope="session", params=["_codec", "codec"])
def functions(request: pytest.FixtureRequest) -> ModuleType:
    """The functions over bytes, compiled and in plain Python: each is to do what the other does."""
    return import_module(f"penstock.kernel.{request.param}")


@pytest.fixture
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """A module whose tests are about other limits names them."""
    side = Side(**getattr(request.module, "LIMITS", {"rdy_count_max": 200_000}))
    yield side
    side.validate()
    side.close()


@pytest.fixture
def tail(side: Side) -> Any:
    return side.tail()


@pytest.fixture
def window(side: Side, tail: Any) -> Any:
    return side.window(tail)


@pytest.fixture
def conn(side: Side) -> Any:
    return side.connect()
