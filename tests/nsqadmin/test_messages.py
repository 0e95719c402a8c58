"""What people see of bodies: previews, forms, masks."""

import asyncio
import html
import json
import re

import pytest

from cases import each
from penstock import limits
from penstock.errors import RangeCorrupt
from penstock.kernel import encode_batch
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import HttpAnswer
from penstock.nsqadmin import messages
from penstock.nsqadmin.messages import MASK, Message
from penstock.nsqadmin.pages.message import as_html
from penstock.nsqadmin.upstream import Upstream


def test_previews() -> None:
    bodies = (b"hello\n  world", b"\x00\x01\x02", "é".encode() * 150, b"")
    shown = ["hello world", "0x000102", "é" * 100 + "…", ""]
    assert [messages.preview(body) for body in bodies] == shown


def test_forms() -> None:
    assert messages.as_json(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert messages.as_json(b"no") is None
    assert messages.as_text(b"\xff\xfe") is None
    assert messages.as_hex(b"AB\x00") == "00000000  41 42 00" + " " * 39 + "  AB."


def message(body: bytes, **headers: str) -> Message:
    return Message(0, 0, "0" * 16, body, headers=headers)


def test_masks_reach_every_depth_and_headers() -> None:
    found = messages.masked(message(b'{"a":[{"pin":1}],"b":2}', pin="x", other="y"), ["pin"])
    assert found.body.decode() == f'{{"a": [{{"pin": "{MASK}"}}], "b": 2}}'
    assert found.headers == {"pin": MASK, "other": "y"}


@each(
    "body",
    [
        b'{"a": {"pin": "7777"}, "a": 1}',  # readers take the last, and the first is in the bytes
        b'{"pin": "7777", "pin": 1}',
        b'{"p\\u0069n": "7777"}',
        b'{"text": "{\\"pin\\": \\"7777\\"}"}',
        b'["[{\\"a\\": {\\"pin\\": \\"7777\\"}}]"]',
        b'{"text": "{\\"more\\": \\"{\\\\\\"pin\\\\\\": 7777}\\"}"}',
        b'{"text": "{\\"p\\\\u0069n\\": 7777}"}',
        b'"{\\"pin\\": 7777}"',
        b'{"pin": "7777", "half": "\\ud83d"}',
        '{"pin": "7777"}'.encode("utf-16"),
        b'{"pin": "7777"}\n{"pin": "7777"}',
        b'{"pin":' * 20_000 + b'"7777"' + b"}" * 20_000,
        b'{"a":' * 20_000 + b'{"pin":"7777"}' + b"}" * 20_000,
    ],
)
def test_no_form_of_a_body_gets_around_a_mask(body: bytes) -> None:
    found = messages.masked(message(body), ["pin"]).body
    assert b"7777" not in found
    assert b"7777" not in found.replace(b"\0", b"")


@each("body", [b'{ "a" : 1 }', b'{"text": "your pin is secret", "json": "{\\"a\\": \\"pin\\"}"}'])
def test_without_a_masked_field_every_byte_stays(body: bytes) -> None:
    assert messages.masked(message(body), ["pin"]).body == body


def test_a_lone_surrogate_is_replaced() -> None:
    for shown in (messages.as_json(b'["\\ud83d"]'), as_html(b'["\\ud83d"]')):
        assert shown is not None
        assert "?" in shown
        shown.encode()


def test_other_text_with_a_masked_field_is_not_shown() -> None:
    assert messages.masked(message(b"pin=1234&a=b"), ["pin"]).body == MASK.encode()
    assert messages.masked(message(b"a=b"), ["pin"]).body == b"a=b"


def test_a_moment_is_a_time_as_people_type_it() -> None:
    """Of the many forms see `tests/test_clock.py`."""
    assert messages.typed_time_ns("2026-11-21T06:00:00Z") == 1_795_240_800 * 10**9
    with pytest.raises(messages.InputInvalid, match="is no time"):
        messages.typed_time_ns("nonsense")
    with pytest.raises(messages.InputInvalid, match="is not an offset"):
        messages.typed_time_ns("nonsense", "an offset")


class Sent(Fetcher):
    """An nsqd that answers with these bytes."""

    def __init__(self, data: bytes, following: int) -> None:
        super().__init__()
        offsets = {"x-penstock-base-offset": "0", "x-penstock-next-offset": str(following)}
        self._answer = HttpAnswer(200, data, offsets)

    async def request(self, *_: object) -> HttpAnswer:
        return self._answer


def walked(data: bytes, following: int) -> list[bytes]:
    async def bodies() -> list[bytes]:
        log = messages.Log(Upstream(Sent(data, following), (), ("a:4151",)), "a:4151", "t")
        extent = messages.Extent("identity", 0, following)
        return [one.body async for some in log.walk(extent, 0, following) for one in some]

    return asyncio.run(bodies())


def test_a_range_that_is_not_what_was_asked_for_is_an_error() -> None:
    """Of the many forms of wrong see `tests/log/test_restoring.py`."""
    data = encode_batch([b"a", b"b"], 0, 1 << 22, 0)
    assert walked(data, 2) == [b"a", b"b"]
    with pytest.raises(RangeCorrupt, match="end at offset 2, not at 3"):
        walked(data, 3)
    with pytest.raises(RangeCorrupt, match="holds offsets 7 to 8, not offset 0"):
        walked(encode_batch([b"a", b"b"], 7, 1 << 22, 0), 2)


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
    found = as_html(json.dumps(document).encode())
    assert found is not None
    assert "<img" not in found
    text = html.unescape(TAGS.sub("", found))
    assert text == json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_it_says_how_much_is_folded() -> None:
    found = as_html(b'{"a":[1]}') or ""
    assert 'data-count="1 field"' in found
    assert 'data-count="1 item"' in found


@pytest.mark.parametrize("body", [b"no", b"\xff", b"[" * 100_000, b"[" * 900 + b"]" * 900])
def test_any_bytes_are_shown(body: bytes) -> None:
    as_html(body)  # whatever it says, it says it


def test_too_much_is_left_to_plain_text() -> None:
    assert as_html(json.dumps([1] * limits.ADMIN_JSON_LINES).encode()) is None
