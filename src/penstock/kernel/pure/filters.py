"""What a consumer wants to see of a topic with headers (`filter_interface.py` has the rules)."""

from __future__ import annotations

from penstock.kernel.filter_interface import Filter, Rule
from penstock.kernel.pure.member import find_member, is_true, resolve

_TEST = b"zan_test"


def is_test(headers: bytes) -> bool:
    """Of a load test, as its publisher says."""
    return is_true(headers, _TEST)


def text_of(raw: bytes) -> str:
    """The value of a header for a pattern; what says nothing is empty."""
    return (resolve(raw) or b"").decode("utf-8", "replace")


def passes(filter: Filter, headers: bytes) -> bool:
    if not headers:
        return filter.inverse
    found = [_matches(rule, headers) for rule in filter.rules]
    return (all(found) if filter.every else any(found)) != filter.inverse


def _matches(rule: Rule, headers: bytes) -> bool:
    raw = find_member(headers, rule.name)
    if rule.matches is not None:
        return rule.matches("" if raw is None else text_of(raw))
    return raw is not None and resolve(raw) == rule.value
