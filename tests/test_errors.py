"""The tree that the page of `errors.py` draws is the tree that its classes make."""

from __future__ import annotations

import re

from penstock import errors


def drawn() -> dict[str, str]:
    """The parent of each class in the drawing."""
    start = (errors.__doc__ or "").index("\nPenstockError\n") + 1
    parents: dict[str, str] = {}
    row: list[str] = []
    for line in (errors.__doc__ or "")[start:].split("\n\n")[0].splitlines():
        found = re.match(r"([│├└─ ]*)(\w+)", line)
        assert found is not None
        depth = len(found[1]) // 4
        row[depth:] = [found[2]]
        parents[found[2]] = row[depth - 1] if depth else "Exception"
    return parents


def test_every_class_stands_in_the_tree_below_its_parent() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    made = {
        one.__name__: one.__bases__[0].__name__
        for one in classes
        if issubclass(one, Exception) and one.__module__ == errors.__name__
    }
    assert drawn() == made
