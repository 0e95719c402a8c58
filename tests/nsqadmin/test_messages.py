"""What people see of bodies: previews, forms, masks."""

from __future__ import annotations

import pytest

from penstock.nsqadmin import messages
from penstock.nsqadmin.messages import MASK, Message

NOW_MS = 1_795_248_000_000  # 2026-11-21 08:00 UTC


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"hello\n  world", "hello world"),
        (b"\x00\x01\x02", "0x000102"),
        ("é".encode() * 150, "é" * 100 + "…"),
        (b"", ""),
    ],
)
def test_previews(body: bytes, shown: str) -> None:
    assert messages.preview(body) == shown


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


def test_a_body_without_masked_fields_is_as_it_was() -> None:
    body = b'{ "a" : 1 }'
    assert messages.masked(message(body), ["pin"]).body == body


def test_what_is_not_json_and_names_a_masked_field_is_not_shown() -> None:
    assert messages.masked(message(b"pin=1234&a=b"), ["pin"]).body == MASK.encode()
    assert messages.masked(message(b"a=b"), ["pin"]).body == b"a=b"


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("-10m", NOW_MS - 600_000),
        ("2 h ago", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("06:30", NOW_MS - 5_400_000),
        ("6:30:01", NOW_MS - 5_399_000),
        ("2026-11-21T07:00", NOW_MS - 3_600_000),
        ("2026-11-21T09:00+02:00", NOW_MS - 3_600_000),
    ],
)
def test_times_as_people_type_them(text: str, at_ms: int) -> None:
    assert messages.moment_ms(text, NOW_MS / 1000) == at_ms


@pytest.mark.parametrize("text", ["nonsense", "-10x", "25:00", "10 minutes of fame", "m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(messages.PlaceInvalid, match="is not an offset"):
        messages.moment_ms(text, NOW_MS / 1000)
