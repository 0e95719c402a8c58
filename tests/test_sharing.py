"""Which tests run under the tracer of coverage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import sharing


def item(nodeid: str) -> Any:
    """A test of that name; what stands in brackets are its parameters."""
    _, bracket, parameters = nodeid.partition("[")
    found = SimpleNamespace(nodeid=nodeid)
    if bracket:
        found.callspec = SimpleNamespace(id=parameters.rstrip("]"))
    return found


@pytest.mark.parametrize(
    ("nodeid", "measured"),
    [
        ("tests/broker/test_x.py::test_a", True),
        ("tests/broker/test_x.py::test_a[3]", True),
        ("tests/kernel/test_x.py::test_a[codec]", True),
        ("tests/nsqd/test_x.py::test_a", False),
        ("tests/e2e/test_x.py::test_a[3]", False),
    ],
)
def test_the_cores_own_tests(nodeid: str, measured: bool) -> None:
    path = nodeid.partition("::")[0]
    assert sharing.is_measured(item(nodeid), path, set()) is measured


def test_the_first_of_many_histories() -> None:
    path, begun = sharing.HISTORIES[0], set[str]()
    names = ["test_a[0]", "test_a[100]", "test_b", "test_b[0]", "test_b[1]"]
    found = [sharing.is_measured(item(f"{path}::{name}"), path, begun) for name in names]
    assert found == [True, False, True, True, False]
    plain = "tests/log/test_mark.py"
    assert sharing.is_measured(item(f"{plain}::test_a[0]"), plain, begun)
    assert sharing.is_measured(item(f"{plain}::test_a[1]"), plain, begun)


@pytest.mark.parametrize("start", [*sharing.HISTORIES, *sharing.SLOW])
def test_what_is_listed_is_there(start: str, request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    assert (root / start).exists() or list(root.glob(f"{start}*"))
