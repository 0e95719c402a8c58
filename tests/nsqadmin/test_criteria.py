"""Terms that messages are filtered by."""

from __future__ import annotations

import pytest

from cases import each
from penstock.nsqadmin import criteria, messages
from penstock.nsqadmin.criteria import CriterionInvalid
from penstock.nsqadmin.messages import Message

BODY = (
    b'{"status":"paid","total":12.5,"big":9007199254740993,"ok":true,"at":"2026-11-21T06:00",'
    b'"customer":{"name":"van Gogh"},"items":[{"price":3}],"a.b":1}'
)
MESSAGE = Message(7, 0, "00000000000000ff", BODY, attempts=2, key=b"k 1", headers={"source": "web"})


@each(
    "where",
    [
        "",
        "status=paid",
        "total>12 total<=12.5 total!=12",
        "total=12.50",
        "big=9007199254740993",
        "ok=true",
        "at>2026-11-20",
        'customer.name="van Gogh"',
        "items.0.price>=3",
        "a.b=1",
        "header.source=web",
        "header:source!=mail",
        "key='k 1' attempts=2 size>100",
        "nowhere!=1",
    ],
)
def test_terms_that_hold(where: str) -> None:
    assert criteria.read("", where).hold(MESSAGE)


@each(
    "where",
    ["status=open", "total>12.5", "big=9007199254740992", "ok=1", "nowhere=1", "nowhere<1",
     "items.1.price=3", "items.x=3", "header.source=mail", "status=paid total=1", "trace=0",
     "customer>1", "customer.name.x=1", "total=1" + "0" * 500],
)  # fmt: skip
def test_terms_that_do_not(where: str) -> None:
    assert not criteria.read("", where).hold(MESSAGE)


@each("where", ["paid", "=paid", 'name="open', "a b=1", "!", "x" * 3000])
def test_what_is_no_term(where: str) -> None:
    with pytest.raises(CriterionInvalid):
        criteria.read("", where)


@pytest.mark.parametrize("text", ["ell", "0" * 16, "kv", ""])
def test_text_is_found_in_body_id_and_headers(text: str) -> None:
    message = Message(0, 0, "0" * 16, b"hello", headers={"k": "v"})
    assert criteria.read(text).hold(message)
    assert not criteria.read("nowhere").hold(message)


def test_a_body_that_is_no_json_has_no_fields() -> None:
    message = Message(0, 0, "0" * 16, b"plain")
    assert not criteria.read("", "a=1").hold(message)
    assert criteria.read("plain", "size=5").hold(message)


def test_what_is_masked_is_not_found_out() -> None:
    shown = messages.masked(MESSAGE, ["total", "source"])
    for guess in ("total=12.5", "total>12", "header.source=web"):
        assert not criteria.read("", guess).hold(shown)
