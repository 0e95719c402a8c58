"""What is remembered of heads, and for whom."""

from __future__ import annotations

from penstock import limits
from penstock.net.heads import Head, heads_of, remember


class Ruler:
    """Whoever decides about requests: a listener's gate, or an application."""


HEAD = Head("GET", "/a", b"", b"", 0, False)


def test_each_ruler_has_its_own() -> None:
    one, other = Ruler(), Ruler()
    remember(heads_of(one), b"GET /a", HEAD)
    assert heads_of(one) == {b"GET /a": HEAD}
    assert heads_of(other) == {}


def test_they_are_bounded() -> None:
    ruler = Ruler()
    for number in range(limits.HTTP_HEADS_MAX + 1):
        remember(heads_of(ruler), b"%d" % number, HEAD)
    assert heads_of(ruler) == {b"%d" % limits.HTTP_HEADS_MAX: HEAD}
