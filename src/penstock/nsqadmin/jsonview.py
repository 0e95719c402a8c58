"""A JSON document as HTML that can be folded, each kind of value in its colour.

Every text of the document is escaped, so that nothing of it is ever markup. Its own text, as
copied, is the document indented; folding is the browser's own `details`, which keys and screen
readers know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from penstock import limits
from penstock.nsqadmin.messages import sendable

_INDENT = "  "


def as_html(body: bytes) -> str | None:
    """None: it is no JSON, or too much of it to fold."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    try:
        for part in _shown(document, "", "", ""):
            parts.append(part)
            if len(parts) > limits.ADMIN_JSON_LINES:
                return None
    except RecursionError:
        return None
    return "".join(parts)


def _shown(value: Any, before: str, indent: str, after: str) -> Iterator[str]:
    """Lines of one value: `before` is its name, `after` a comma or nothing."""
    if not (isinstance(value, dict | list) and value):
        yield f"{indent}{before}{_leaf(value)}{after}\n"
        return
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    count = len(value)
    said = f"{count} {'field' if isinstance(value, dict) else 'item'}{'' if count == 1 else 's'}"
    yield (
        f'<details open><summary data-count="{said}">{indent}{before}{opening}'
        '<span class="line-end">\n</span></summary>'
    )
    names = (
        [f"{_coloured('name', _text(name))}: " for name in value]
        if isinstance(value, dict)
        else [""] * count
    )
    members = value.values() if isinstance(value, dict) else value
    for number, (name, member) in enumerate(zip(names, members, strict=True), 1):
        yield from _shown(member, name, indent + _INDENT, "," if number < count else "")
    yield f"{indent}{closing}{after}\n</details>"


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return _coloured("text", _text(value))
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return _coloured("number" if not isinstance(value, bool | None) else "word", _text(value))


def _text(value: Any) -> str:
    return escape(sendable(json.dumps(value, ensure_ascii=False)))


def _coloured(kind: str, text: str) -> str:
    return f'<span class="json-{kind}">{text}</span>'
