import contextlib
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock import limits
from penstock.wire.errors import Fault, WireFault
from penstock.wire.identify import (
    Offer,
    Request,
    Settings,
    decode_request,
    encode_response,
    negotiate,
)

MS = limits.MS
OFFER = Offer(version="9.8.7", topology_region="r1", topology_zone="z1")
FRESH = Settings(
    client_id="10.0.0.1",
    hostname="10.0.0.1",
    user_agent="",
    heartbeat_ns=30_000 * MS,
    output_bytes=16384,
    output_timeout_ns=250 * MS,
    sample_rate=0,
    message_timeout_ns=60_000 * MS,
)


def decode(value: object) -> Request:
    return decode_request(json.dumps(value).encode())


def test_all_fields_arrive() -> None:
    values: dict[str, Any] = {
        "client_id": "c",
        "hostname": "h",
        "user_agent": "u/1",
        "feature_negotiation": True,
        "heartbeat_interval": 1000,
        "output_buffer_timeout": 300,
        "output_buffer_size": 64,
        "tls_v1": True,
        "snappy": True,
        "deflate": True,
        "deflate_level": 3,
        "sample_rate": 99,
        "msg_timeout": 5000,
        "topology_region": "r",
        "topology_zone": "z",
        "desired_tag": "t",
        "extend_support": True,
        "envelope": True,
    }
    assert set(values) == {field.name for field in fields(Request)} - {"ext_filter"}
    assert decode(values) == Request(**values)


@pytest.mark.parametrize("body", [b"{}", b"null", b" {} \n", b'{"short_id":"x","other":[{}]}'])
def test_nothing_asked_for(body: bytes) -> None:
    assert decode_request(body) == Request()


def test_keys_match_in_any_case_and_the_last_one_wins() -> None:
    body = b'{"Client_ID":"a","CLIENT_ID":"b","heartbeat_interval":null,"HeartBeat_Interval":-1}'
    assert decode_request(body) == Request(client_id="b", heartbeat_interval=-1)


@each(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b'{"client_id":1}',
        b'{"snappy":1}',
        b'{"heartbeat_interval":"1000"}',
        b'{"heartbeat_interval":1000.0}',
        b'{"heartbeat_interval":NaN}',
        b'{"heartbeat_interval":9223372036854775808}',
        b'{"sample_rate":2147483648}',
        b"[" * 100_000,
        b'{"msg_timeout":' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(WireFault) as caught:
        decode_request(body)
    assert caught.value.fault is Fault.IDENTIFY_JSON


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_fault(body: bytes) -> None:
    with contextlib.suppress(WireFault):
        decode_request(body).client_id.encode()


@each(
    ("asked", "changed"),
    [
        ({"heartbeat_interval": 1000}, {"heartbeat_ns": 1000 * MS}),
        ({"heartbeat_interval": 60000}, {"heartbeat_ns": 60000 * MS}),
        ({"heartbeat_interval": -1}, {"heartbeat_ns": 0}),
        ({"heartbeat_interval": 0}, {}),
        ({"output_buffer_timeout": 25}, {"output_timeout_ns": 25 * MS}),
        ({"output_buffer_timeout": -1}, {"output_timeout_ns": 0}),
        ({"output_buffer_size": 64}, {"output_bytes": 64}),
        ({"output_buffer_size": -1}, {"output_bytes": 1, "output_timeout_ns": 0}),
        (
            {"output_buffer_size": -1, "output_buffer_timeout": 500},
            {"output_bytes": 1, "output_timeout_ns": 0},
        ),
        ({"sample_rate": 99}, {"sample_rate": 99}),
        ({"msg_timeout": 1000}, {"message_timeout_ns": 1000 * MS}),
        ({"deflate_level": 3}, {"deflate_level": 3}),
        ({"deflate_level": 9}, {"deflate_level": 6}),
        ({"deflate_level": -2}, {"deflate_level": 6}),
    ],
)
def test_negotiated_options(asked: dict[str, Any], changed: dict[str, Any]) -> None:
    expected = replace(FRESH, client_id="", hostname="", **changed)
    assert negotiate(Request(**asked), FRESH, OFFER) == expected


@each(
    ("asked", "text"),
    [
        ({"heartbeat_interval": 999}, b"heartbeat interval (999)"),
        ({"heartbeat_interval": 60001}, b"heartbeat interval (60001)"),
        ({"output_buffer_timeout": 24}, b"output buffer timeout (24)"),
        ({"output_buffer_timeout": 30001}, b"output buffer timeout (30001)"),
        ({"output_buffer_size": 63}, b"output buffer size (63)"),
        ({"output_buffer_size": 65537}, b"output buffer size (65537)"),
        ({"sample_rate": 100}, b"sample rate (100)"),
        ({"msg_timeout": 999}, b"msg timeout (999)"),
        ({"msg_timeout": 900001}, b"msg timeout (900001)"),
        ({"msg_timeout": 1, "heartbeat_interval": 1}, b"heartbeat interval (1)"),
        ({"output_buffer_size": 1, "output_buffer_timeout": 1}, b"output buffer timeout (1)"),
        ({"sample_rate": 100, "output_buffer_size": 1}, b"output buffer size (1)"),
    ],
)
def test_the_first_value_out_of_range_is_named(asked: dict[str, Any], text: bytes) -> None:
    with pytest.raises(WireFault) as caught:
        negotiate(Request(**asked), FRESH, OFFER)
    assert caught.value.data == b"E_BAD_BODY IDENTIFY " + text + b" is invalid"


@pytest.mark.parametrize("name", ["client_id", "hostname", "user_agent", "topology_zone"])
def test_a_text_that_is_too_long_is_refused(name: str) -> None:
    """It is kept as long as the connection, and there are many of those."""
    length = limits.IDENTIFY_TEXT_CHARS_MAX
    assert getattr(decode_request(json.dumps({name: "x" * length}).encode()), name) == "x" * length
    with pytest.raises(WireFault) as caught:
        decode_request(json.dumps({name: "x" * (length + 1)}).encode())
    message = b"E_BAD_BODY IDENTIFY length of %b (%d) is invalid" % (name.encode(), length + 1)
    assert caught.value.data == message


def test_compression_only_where_it_is_offered_and_negotiated() -> None:
    wanted = Request(feature_negotiation=True, snappy=True, deflate=True, tls_v1=True)
    granted = negotiate(wanted, FRESH, OFFER)
    assert [granted.snappy, granted.deflate, granted.tls] == [False] * 3
    both = replace(OFFER, snappy=True, deflate=True, tls=True)
    with pytest.raises(WireFault) as caught:
        negotiate(wanted, FRESH, both)
    assert caught.value.fault is Fault.COMPRESSION_TWICE
    silent = negotiate(replace(wanted, feature_negotiation=False), FRESH, both)
    assert [silent.snappy, silent.deflate, silent.tls] == [False] * 3
    one = negotiate(replace(wanted, deflate=False), FRESH, both)
    assert (one.snappy, one.deflate, one.tls) == (True, False, True)


def test_the_answer_has_these_keys_in_this_order() -> None:
    assert encode_response(negotiate(Request(msg_timeout=2000), FRESH, OFFER), OFFER) == (
        b'{"max_rdy_count":2500,"version":"9.8.7","max_msg_timeout":900000,"msg_timeout":2000,'
        b'"tls_v1":false,"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,'
        b'"sample_rate":0,"auth_required":false,"output_buffer_size":16384,'
        b'"output_buffer_timeout":250,"topology_region":"r1","topology_zone":"z1"}'
    )
