"""What IDENTIFY asks for."""

import socket
import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.client import framing, handshake
from penstock.client import ids as unique
from penstock.client.framing import FrameBroken, FrameReader
from penstock.client.handshake import identify
from penstock.client.options import ConsumerOptions, address_list, settle_options
from penstock.errors import ConfigError
from penstock.wire.extfilter import ExtFilter, FilterType
from penstock.wire.frames import Frame, FrameType, encode_frame
from penstock.wire.identify import Offer, Settings, decode_request, encode_response, negotiate

FRESH = Settings("c", "h", "", 0, 1, 0, 0, 1)
RED = {"type": 1, "filter_ext_key": "color", "filter_data": "red"}


def test_a_tag_and_a_filter_arrive() -> None:
    asked = identify(ConsumerOptions(desired_tag="new", ext_filter=RED))
    found = negotiate(decode_request(asked), FRESH, Offer(version="1"))
    assert found.desired_tag == "new"
    assert found.ext_filter == ExtFilter(FilterType.EXACT, (("color", "red"),))


def test_an_envelope_is_asked_for_and_granted() -> None:
    options = ConsumerOptions(envelope=True)
    found = negotiate(decode_request(identify(options)), FRESH, Offer(version="1"))
    assert found.envelope
    answer = encode_response(found, Offer(version="1"))
    assert handshake.negotiate("a:1", options, answer).envelope
    assert not handshake.negotiate("a:1", options, b"{}").envelope


@pytest.mark.parametrize("number", [b"1e999", b"1" + b"0" * 400, b"-1", b"NaN", b"null"])
def test_a_granted_number_that_can_be_none_is_the_usual_one(number: bytes) -> None:
    keys = b"max_rdy_count", b"msg_timeout", b"max_msg_timeout", b"deflate_level"
    answer = b"{%b}" % b",".join(b'"%b":%b' % (key, number) for key in keys)
    assert handshake.negotiate("a:1", ConsumerOptions(), answer) == handshake.Negotiated()


# --- the frame reader: the same messages and answers, however the bytes were split ---


Made = tuple[int, int, bytes, bytes]
MESSAGES = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(0, 65535),
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=200),
)
ANSWERS = st.builds(Frame, st.sampled_from([0, 1]), st.binary(max_size=50))


def make(timestamp_ns: int, attempts: int, id: bytes, body: bytes) -> Made:
    return timestamp_ns, attempts, id, body


def encode(item: Frame | Made) -> bytes:
    if isinstance(item, Frame):
        return encode_frame(item.type, item.data)
    timestamp_ns, attempts, id, body = item
    data = struct.pack(">qH16s", timestamp_ns, attempts, id) + body
    return encode_frame(FrameType.MESSAGE, data)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.one_of(MESSAGES, ANSWERS), max_size=12), st.lists(st.integers(0), max_size=12))
def test_any_split_gives_the_same(items: list[Frame | Made], cuts: list[int]) -> None:
    reader = FrameReader(make)
    messages: list[Made] = []
    frames: list[Frame] = []
    for piece in pieces(b"".join(map(encode, items)), cuts):
        some, others = reader.feed(piece)
        messages += some
        frames += others
    assert messages == [item for item in items if not isinstance(item, Frame)]
    assert frames == [item for item in items if isinstance(item, Frame)]


@each(
    "head",
    [
        struct.pack(">II", 3, 0),
        struct.pack(">II", 29, 2),
        struct.pack(">II", 1025, 0),
        struct.pack(">II", 10, 3),
        b"HTTP/1.1 400 Bad Request\r\n\r\n and more than a message's head",
    ],
)
@each("split", [1, 8, 100])
def test_invalid_frames_are_refused(head: bytes, split: int) -> None:
    reader = FrameReader(make, frame_bytes_max=1024)
    parts = [head[start : start + split] for start in range(0, len(head), split)]
    with pytest.raises(FrameBroken):
        list(map(reader.feed, parts))


def test_an_http_port_is_named_as_one() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(FrameBroken, match="HTTP port: name nsqd's TCP port, as a rule 4150"):
        FrameReader(make).feed(answer)


def test_oks_are_counted_only_when_there_is_nothing_else() -> None:
    reader = FrameReader(make)
    ok = framing.OK_FRAME
    assert reader.count_oks(ok) == 1
    assert reader.count_oks(ok * 7) == 7
    assert reader.count_oks(b"") == 0
    assert reader.count_oks(ok + ok[:4]) == 0
    assert reader.count_oks(encode(Frame(1, b"E_"))) == 0
    assert reader.feed(ok[:4]) == ([], [])
    assert reader.count_oks(ok) == 0  # these bytes stand in the middle of a frame


def test_a_frame_of_the_greeting_is_taken_alone() -> None:
    buffer = bytearray(encode(Frame(0, b"{}")) + b"\xff\x06\x00\x00sNaPpY")
    assert framing.take_frame(buffer, 1000) == Frame(0, b"{}")
    assert buffer == b"\xff\x06\x00\x00sNaPpY"
    with pytest.raises(FrameBroken):
        framing.take_frame(buffer, 1000)
    assert framing.take_frame(bytearray(b"\0\0\0\7"), 1000) is None
    assert framing.take_frame(bytearray(encode(Frame(0, b"abc"))[:-1]), 1000) is None


# --- this host's addresses ---


def test_own_addresses_can_be_bound_and_no_name_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    monkeypatch.setattr(socket, "gethostbyname", asked)
    monkeypatch.setattr(unique, "_FAR", (*unique._FAR, (socket.AF_INET, "127.0.0.1")))
    found = list(unique.own_addresses())
    assert found
    for address in found:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))


def test_without_a_route_there_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique, "_FAR", ())
    assert list(unique.own_addresses()) == []


# --- options are checked when they are given, and secrets are not shown ---


@each(
    "changes",
    [
        {"heartbeat_s": 0.5},
        {"heartbeat_s": 61},
        {"max_in_flight": 0},
        {"max_in_flight": "5"},
        {"sample_rate": -1},
        {"backoff_s": float("nan")},
        {"snappy": True, "deflate": True},
        {"max_inflight": 1},
        {"retry": True},
    ],
)
def test_invalid_options_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        settle_options(ConsumerOptions(), changes)
    assert raised.value.name in changes


def test_secrets_are_not_shown() -> None:
    options = ConsumerOptions(auth_secret="hush", lookup_headers={"Authorization": "hush"})
    assert "hush" not in repr(options)


@each("address", ["", "host", ":4150", "host:", "host:0", "host:65536", "h:x", "http://h:4150"])
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        address_list([address])
