from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import frames
from penstock.wire.frames import Frame, FrameType


def test_a_response_frame() -> None:
    assert frames.encode_frame(FrameType.RESPONSE, b"OK") == b"\0\0\0\6\0\0\0\0OK"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=8),
    st.integers(1, 50),
)
def test_frames_come_out_of_any_fragments(sent: list[tuple[int, bytes]], step: int) -> None:
    stream = b"".join(frames.encode_frame(kind, data) for kind, data in sent)
    buffer, found = bytearray(), []
    for start in range(0, len(stream), step):
        buffer += stream[start : start + step]
        found += frames.take_frames(buffer)
    assert found == [Frame(kind, data) for kind, data in sent]
    assert not buffer


def test_a_frame_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        frames.take_frames(bytearray(b"\0\0\0\3\0\0\0\0"))


def test_a_message() -> None:
    data = b"\0\0\0\0\0\0\1\0" + b"\0\2" + b"0123456789abcdef" + b"body"
    assert frames.decode_message(data) == (256, 2, b"0123456789abcdef", b"body")


def test_sized_bodies() -> None:
    assert frames.with_size(b"ab") == b"\0\0\0\2ab"
    assert frames.encode_bodies([b"a", b"bc"]) == b"\0\0\0\2\0\0\0\1a\0\0\0\2bc"
