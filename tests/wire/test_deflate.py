from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamBroken
from penstock.wire.deflate import DeflateDecoder, DeflateEncoder
from wire.streams import decode_in_steps, read_all

TEXT = b'{"id": 17, "user": "u17", "ok": true}\n' * 6000


def raw(data: bytes) -> bytes:
    """A whole stream, with a final block."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def decoded(stream: bytes) -> bytes:
    decoder = DeflateDecoder()
    decoder.feed(stream)
    return read_all(decoder)


@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.lists(st.integers(0, 5000), max_size=20),
    st.integers(1, 400),
    st.integers(1, 9),
)
def test_what_goes_in_comes_out_however_it_is_cut(
    pieces: list[bytes], cuts: list[int], step: int, level: int
) -> None:
    encoder = DeflateEncoder(level)
    stream = b"".join(map(encoder.encode, pieces))
    assert decode_in_steps(DeflateDecoder(), stream, cuts, step) == b"".join(pieces)


def test_each_piece_can_be_read_at_once() -> None:
    encoder, decoder = DeflateEncoder(6), DeflateDecoder()
    for piece in (b"one", b"two", TEXT):
        decoder.feed(encoder.encode(piece))
        assert read_all(decoder) == piece


def test_nothing_becomes_nothing() -> None:
    assert DeflateEncoder(6).encode(b"") == b""


def test_zlib_reads_it() -> None:
    assert zlib.decompressobj(-15).decompress(DeflateEncoder(1).encode(TEXT)) == TEXT


def test_a_final_block_ends_the_stream() -> None:
    decoder = DeflateDecoder()
    decoder.feed(raw(b"the end"))
    assert read_all(decoder) == b"the end"
    decoder.feed(b"x")
    with pytest.raises(StreamBroken, match="final block"):
        decoder.read(1)


def test_a_bomb_comes_out_in_the_pieces_that_were_asked_for() -> None:
    size = 64 << 20
    bomb = raw(bytes(size))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        decoder, count = DeflateDecoder(), 0
        decoder.feed(bomb)
        while part := decoder.read(100_000):
            count += len(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == size
    assert peak < 1 << 20


@pytest.mark.parametrize("stream", [b"\xff\xff\xff", b"  V2IDENTIFY\n", raw(b"a") + b"more"])
def test_garbage_is_refused(stream: bytes) -> None:
    with pytest.raises(StreamBroken, match="deflate stream: "):
        decoded(stream)


def test_no_random_bytes_do_harm() -> None:
    source = random.Random(5)
    refused = 0
    for _ in range(300):
        try:
            decoded(source.randbytes(200))
        except StreamBroken:
            refused += 1
    assert refused > 100
