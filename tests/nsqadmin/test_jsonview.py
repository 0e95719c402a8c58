"""JSON as HTML: nothing of a document is ever markup."""

from __future__ import annotations

import html
import json
import re

import pytest

from cases import each
from penstock import limits
from penstock.nsqadmin.pages import message

EVIL = "</span><img src=x onerror=alert(1)>\"'&"
TAGS = re.compile(r"<[^>]*>")


@each(
    "document",
    [
        {"a": 1, "b": [True, None, "x", {}, []], "c": {"d": [{"e": -1.5}]}},
        {EVIL: EVIL, "list": [EVIL]},
        [],
        "é\n",
        [1, [2, [3]]],
    ],
)
def test_its_text_is_the_document(document: object) -> None:
    found = message.as_html(json.dumps(document).encode())
    assert found is not None
    assert "<img" not in found
    text = html.unescape(TAGS.sub("", found))
    assert text == json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_it_says_how_much_is_folded() -> None:
    found = message.as_html(b'{"a":[1]}') or ""
    assert 'data-count="1 field"' in found
    assert 'data-count="1 item"' in found


@pytest.mark.parametrize("body", [b"no", b"\xff", b"[" * 100_000, b"[" * 900 + b"]" * 900])
def test_what_is_none(body: bytes) -> None:
    message.as_html(body)  # whatever it says, it says it


def test_too_much_is_left_to_plain_text() -> None:
    assert message.as_html(json.dumps([1] * limits.ADMIN_JSON_LINES).encode()) is None
