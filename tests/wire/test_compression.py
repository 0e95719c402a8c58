import random
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each, fresh_seed
from penstock.errors import StreamBroken
from penstock.wire.compression import (
    IDENTIFIER,
    DeflateDecoder,
    DeflateEncoder,
    SnappyDecoder,
    SnappyEncoder,
    masked_crc32c,
)
from wire.streams import Decoder, decode_in_steps, read_all

PLAIN_A = b"\x01\x05\x00\x00" + masked_crc32c(b"a").to_bytes(4, "little") + b"a"
TEXT = b'{"id": 17, "user": "u17", "ok": true}\n' * 6000


def decoded(stream: bytes, decoder: Decoder | None = None) -> bytes:
    decoder = decoder or SnappyDecoder()
    decoder.feed(stream)
    return read_all(decoder)


@pytest.mark.parametrize("form", ["snappy", "deflate"])
@given(
    level=st.integers(1, 9),
    pieces=st.lists(st.binary(max_size=300), max_size=8),
    cuts=st.lists(st.integers(0, 5000), max_size=20),
    step=st.integers(1, 400),
)
def test_streams_round_trip_in_any_pieces(
    form: str, level: int, pieces: list[bytes], cuts: list[int], step: int
) -> None:
    is_snappy = form == "snappy"
    encoder = SnappyEncoder() if is_snappy else DeflateEncoder(level)
    decoder = SnappyDecoder() if is_snappy else DeflateDecoder()
    stream = b"".join(map(encoder.encode, pieces))
    assert decode_in_steps(decoder, stream, cuts, step) == b"".join(pieces)


@pytest.mark.parametrize("data", [TEXT, random.Random(1).randbytes(200_000)])
def test_another_implementation_reads_and_is_read(data: bytes) -> None:
    stream = SnappyEncoder().encode(data)
    assert bytes(cramjam.snappy.decompress(stream)) == data
    assert decoded(bytes(cramjam.snappy.compress(data))) == data


def test_the_identifier_stands_before_the_first_chunk_only() -> None:
    encoder = SnappyEncoder()
    assert encoder.encode(b"") == b""
    first = encoder.encode(b"a")
    assert first == IDENTIFIER + PLAIN_A
    assert encoder.encode(b"a") == PLAIN_A


@pytest.mark.parametrize("kind", [0x80, 0xFD, 0xFE])
def test_skippable_chunks_are_skipped_and_not_kept(kind: int) -> None:
    decoder = SnappyDecoder()
    decoder.feed(IDENTIFIER + bytes([kind]) + (3 << 20).to_bytes(3, "little"))
    for _ in range(3):
        decoder.feed(bytes(1 << 20))
        assert decoder.read(10) == b""
    decoder.feed(PLAIN_A)
    assert len(decoder._input) == len(PLAIN_A)
    assert decoder.read(10) == b"a"


def checked_places(stream: bytes) -> list[int]:
    """Every byte but the kinds of the chunks: another kind may say that its chunk can be skipped,
    and no checksum covers it."""
    kinds, at = set(), 0
    while at < len(stream):
        kinds.add(at)
        at += 4 + int.from_bytes(stream[at + 1 : at + 4], "little")
    return [index for index in range(len(stream)) if index not in kinds]


def test_no_random_bytes_do_harm() -> None:
    seed = fresh_seed()
    source = random.Random(seed)
    intact = SnappyEncoder().encode(TEXT)
    indexes = checked_places(intact)
    refused = 0
    for _ in range(300):
        stream = bytearray(intact)
        for index in source.sample(indexes, source.randrange(1, 4)):
            stream[index] ^= source.randrange(1, 256)
        del stream[source.randrange(1, len(intact)) :]
        try:
            assert TEXT.startswith(decoded(bytes(stream))), f"seed {seed}"
        except StreamBroken:
            refused += 1
    assert refused, f"seed {seed}"


@each("step", [1, 1000, 65535, 65536, 65537, 200_000])
def test_reading_in_any_steps(step: int) -> None:
    decoder = SnappyDecoder()
    noise = random.Random(4).randbytes(70_000)
    encoder = SnappyEncoder()
    decoder.feed(encoder.encode(TEXT[:100_000]) + encoder.encode(noise) + encoder.encode(b"a"))
    assert read_all(decoder, step) == TEXT[:100_000] + noise + b"a"


def raw(data: bytes) -> bytes:
    """A whole stream, with a final block."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def test_each_piece_can_be_read_at_once() -> None:
    encoder, decoder = DeflateEncoder(6), DeflateDecoder()
    for piece in (b"one", b"two", TEXT):
        decoder.feed(encoder.encode(piece))
        assert read_all(decoder) == piece


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
def test_garbage_is_refused_of_deflate(stream: bytes) -> None:
    with pytest.raises(StreamBroken, match="deflate stream: "):
        decoded(stream, DeflateDecoder())


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


BOMB = bytes(cramjam.snappy.compress_raw(bytes(65537)))


BROKEN = {
    "no identifier": PLAIN_A,
    "wrong identifier": chunk(0xFF, b"sNaPpX"),
    "long identifier": chunk(0xFF, b"sNaPpYY"),
    "reserved type": IDENTIFIER + chunk(0x02, b"....a"),
    "no checksum": IDENTIFIER + chunk(0x01, b"abc"),
    "plain too long": IDENTIFIER + b"\x01" + (4 + 65537).to_bytes(3, "little"),
    "compressed too long": IDENTIFIER + b"\x00" + (1 << 20).to_bytes(3, "little"),
    "bad checksum": IDENTIFIER + chunk(0x01, b"\0\0\0\0a"),
    "no block": IDENTIFIER + chunk(0x00, b"\0\0\0\0"),
    "broken block": IDENTIFIER + chunk(0x00, b"\0\0\0\0\x05\xff\xff\xff"),
    "bomb": IDENTIFIER + chunk(0x00, masked_crc32c(bytes(65537)).to_bytes(4, "little") + BOMB),
}


@each("stream", BROKEN.values())
def test_garbage_is_refused(stream: bytes) -> None:
    with pytest.raises(StreamBroken, match="snappy stream: "):
        decoded(stream)
