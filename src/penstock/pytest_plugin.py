"""The fixture `penstock_broker`, wherever pytest runs beside an installed Penstock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import TestBroker


@pytest.fixture
def penstock_broker() -> Iterator[TestBroker]:
    """A broker for this test: see `penstock.testing`."""
    from penstock.testing import TestBroker

    with TestBroker() as broker:
        yield broker
