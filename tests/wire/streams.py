"""What the tests of both compressed streams share."""

from itertools import pairwise

from penstock.wire.identify import Decoder


def read_all(decoder: Decoder, step: int = 1 << 16) -> bytes:
    parts = []
    while part := decoder.read(step):
        assert len(part) <= step
        parts.append(part)
    return b"".join(parts)


def decode_in_steps(decoder: Decoder, stream: bytes, cuts: list[int], step: int) -> bytes:
    """`stream` cut at the given places (modulo its length), read `step` bytes at a time."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    parts = []
    for start, end in pairwise(places):
        decoder.feed(stream[start:end])
        parts.append(read_all(decoder, step))
    return b"".join(parts)
