"""The tree that a page of errors draws is the tree that its classes make."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from penstock import errors
from penstock.log import errors as log_errors


def drawn(module: ModuleType, root: str) -> dict[str, str]:
    """The parent of each class in the drawing."""
    start = (module.__doc__ or "").index(f"\n{root}\n") + 1
    parents: dict[str, str] = {}
    row: list[str] = []
    for line in (module.__doc__ or "")[start:].split("\n\n")[0].splitlines():
        found = re.match(r"([│├└─ ]*)(\w+)", line)
        assert found is not None
        depth = len(found[1]) // 4
        row[depth:] = [found[2]]
        parents[found[2]] = row[depth - 1] if depth else "Exception"
    return parents


@pytest.mark.parametrize(
    ("module", "root"), [(errors, "PenstockError"), (log_errors, "StorageError")]
)
def test_every_class_stands_in_the_tree_below_its_parent(module: ModuleType, root: str) -> None:
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    made = {
        one.__name__: one.__bases__[0].__name__
        for one in classes
        if issubclass(one, Exception) and one.__module__ == module.__name__
    }
    if module is not errors:
        made[root] = "Exception"  # drawn as the root
    assert drawn(module, root) == made
