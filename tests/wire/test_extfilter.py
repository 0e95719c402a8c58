"""What IDENTIFY may say of tags and filters."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.wire.errors import Fault, WireFault
from penstock.wire.extfilter import ExtFilter, FilterType
from penstock.wire.identify import Offer, Settings, decode_request, encode_response, negotiate

OFFER = Offer(version="1")
FRESH = Settings("c", "h", "", 0, 1, 0, 0, 1)


def settings(**text: Any) -> Settings:
    return negotiate(decode_request(json.dumps(text).encode()), FRESH, OFFER)


def refused(**text: Any) -> bytes:
    with pytest.raises(WireFault) as caught:
        settings(**text)
    assert caught.value.fault.fatal
    return caught.value.data


@each("tag", ["a b", "ä", "a.b", "a\n", "x" * (limits.TAG_BYTES_MAX + 1)])
def test_bad_tags(tag: str) -> None:
    assert refused(desired_tag=tag).startswith(b'E_BAD_TAG IDENTIFY desired tag "')


def test_the_answer_names_the_tag_where_there_is_one() -> None:
    tagged = replace(FRESH, desired_tag="blue")
    assert encode_response(tagged, OFFER).endswith(b',"desired_tag":"blue"}')
    assert b"desired_tag" not in encode_response(FRESH, OFFER)


RULE = {"filter_ext_key": "color", "filter_data": "red"}


@each(
    ("text", "wanted"),
    [
        ({}, None),
        ({"type": 0, "filter_data": "x"}, None),
        ({"type": 1, **RULE}, ExtFilter(FilterType.EXACT, (("color", "red"),))),
        ({"TYPE": 2, "Inverse": True, **RULE},
         ExtFilter(FilterType.REGEXP, (("color", "red"),), inverse=True)),
        ({"type": 3, **RULE}, ExtFilter(FilterType.GLOB, (("color", "red"),))),
        ({"type": 4, "filter_ext_key": "any", "filter_data_list": [RULE, RULE]},
         ExtFilter(FilterType.MULTI, (("color", "red"),) * 2)),
        ({"type": 4, "filter_ext_key": "all", "filter_data_list": [RULE]},
         ExtFilter(FilterType.MULTI, (("color", "red"),), every=True)),
    ],
)  # fmt: skip
def test_filters(text: dict[str, Any], wanted: ExtFilter | None) -> None:
    assert settings(ext_filter=text).ext_filter == wanted


@each(
    ("text", "reason"),
    [
        ({"type": 5}, b"type 5 is none of 1, 2, 3, 4"),
        ({"type": -1}, b"type -1 is none of 1, 2, 3, 4"),
        ({"type": 1}, b"filter_ext_key is missing"),
        ({"type": 2, "filter_ext_key": "a"}, b"filter_data is missing"),
        ({"type": 3, "filter_ext_key": "a" * 5000, "filter_data": "b"},
         b"filter_ext_key has 5000 characters, at most 4096"),
        ({"type": 4, **RULE}, b'filter_ext_key "color" of type 4 is neither any nor all'),
        ({"type": 4, "filter_ext_key": "any"}, b"filter_data_list is missing"),
        ({"type": 4, "filter_ext_key": "any", "filter_data_list": [{"filter_data": "x"}]},
         b"filter_ext_key is missing"),
        ({"type": 4, "filter_ext_key": "any", "filter_data_list": [RULE] * 33},
         b"filter_data_list has 33 entries, at most 32"),
    ],
)  # fmt: skip
def test_filters_that_say_nothing(text: dict[str, Any], reason: bytes) -> None:
    assert refused(ext_filter=text) == b"E_INVALID IDENTIFY ext_filter: " + reason


@each(
    "text",
    [
        1,
        "x",
        [],
        {"type": "1"},
        {"type": True},
        {"inverse": 1},
        {"type": 1, "filter_ext_key": 1},
        {"type": 4, "filter_ext_key": "any", "filter_data_list": RULE},
        {"type": 4, "filter_ext_key": "any", "filter_data_list": ["x"]},
        {"type": 4, "filter_ext_key": "any", "filter_data_list": [["x"]]},
    ],
)
def test_wrong_types_make_the_body_unreadable(text: Any) -> None:
    assert refused(ext_filter=text) == Fault.IDENTIFY_JSON.data()
