"""Filters over headers, from what IDENTIFY says to what the kernel applies.

Patterns are RE2's, as in Go: they take time in proportion to the text, whatever a client sends.
Globs become such patterns: `*` is any text, `?` one character, `[a-z]` one of a class (`[!a-z]` one
of none), `{a,b}` one of several, and a backslash takes the meaning from what follows.
"""

from __future__ import annotations

import re

from penstock.kernel import Filter, Rule
from penstock.nsqd.pattern import Pattern, PatternInvalid
from penstock.wire.extfilter import ExtFilter, FilterType, refuse

_CLASS = re.compile(r"\[(!?)((?:\\.|[^\]\\])+)\]", re.DOTALL)


def kernel_filter(wanted: ExtFilter) -> Filter:
    """Raises WireFault."""
    rules = tuple(_rule(wanted.type, name, data) for name, data in wanted.rules)
    return Filter(rules, wanted.every, wanted.inverse)


def _rule(type_: FilterType, name: str, data: str) -> Rule:
    header = name.encode("utf-8", "replace")
    if type_ is FilterType.REGEXP:
        return Rule(header, b"", _compiled(data, "regular expression").matches)
    if type_ is FilterType.GLOB:
        return Rule(header, b"", _compiled(glob_pattern(data), "glob").matches)
    return Rule(header, data.encode("utf-8", "replace"))


def _compiled(pattern: str, kind: str) -> Pattern:
    try:
        return Pattern(pattern)
    except PatternInvalid as error:
        refuse(f"filter_data is no {kind}: {error}")


def glob_pattern(glob: str) -> str:
    """Raises WireFault."""
    parts = []
    depth = at = 0
    while at < len(glob):
        char = glob[at]
        found = _CLASS.match(glob, at) if char == "[" else None
        at += 1
        if found is not None:
            members = found[2].replace("^", "\\^")
            parts.append(f"[^{members}]" if found[1] else f"[{members}]")
            at = found.end()
        elif char == "\\" and at < len(glob):
            parts.append(re.escape(glob[at]))
            at += 1
        elif char in "*?":
            parts.append(".*" if char == "*" else ".")
        elif char == "{":
            parts.append("(?:")
            depth += 1
        elif char == "}" and depth:
            parts.append(")")
            depth -= 1
        elif char == "," and depth:
            parts.append("|")
        else:
            parts.append(re.escape(char))
    if depth:
        refuse("filter_data is no glob: a { is not closed")
    return f"(?s)\\A(?:{''.join(parts)})\\z"
