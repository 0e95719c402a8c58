"""A broker that answers as a test wants; the Spark session is in tests/conftest.py."""

from collections.abc import Iterator

import pytest

from .fakebroker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker
