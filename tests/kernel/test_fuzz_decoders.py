"""Damaged batches by the thousand: both forms judge them alike, and neither reads beyond the end.

Each case stands flush against a page that may not be touched, so a read of one byte too many ends
the process instead of going unnoticed. One run has a fixed seed; another has a fresh one, which its
failure names.
"""

import ctypes
import mmap
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import kernel
from penstock.kernel import BatchCheck, Section, codec, decode_header

from .batches import section, short_batch, with_crc

FIXED_ROUNDS = 3000
MAGICS = tuple(int.from_bytes(magic, "little") for magic in (b"PSB1", b"PSS1"))
NUMBERS = (*MAGICS, 0, 1, 2, 7, 8, 71, 72, 255, 0x7FFF, 0xFFFF, 1 << 30, 1 << 31, (1 << 32) - 1)
PROT_NONE = 0


class GuardedPage:
    """Bytes whose end is the end of what may be read."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self.anchor = ctypes.c_char.from_buffer(self.map)
        self.guard = ctypes.addressof(self.anchor) + mmap.PAGESIZE
        self.protect(PROT_NONE)

    def protect(self, rights: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.guard), ctypes.c_size_t(mmap.PAGESIZE), rights):
            raise OSError(ctypes.get_errno(), "mprotect")

    def at_the_end(self, data: bytes) -> memoryview:
        start = mmap.PAGESIZE - len(data)
        self.map[start : mmap.PAGESIZE] = data
        return memoryview(self.map)[start : mmap.PAGESIZE]

    def close(self) -> None:
        self.protect(mmap.PROT_READ | mmap.PROT_WRITE)
        del self.anchor
        self.map.close()


@pytest.fixture
def page() -> Iterator[GuardedPage]:
    guarded = GuardedPage()
    yield guarded
    guarded.close()


def make(rng: random.Random, encode: Callable[..., bytes]) -> bytes:
    bodies = [rng.randbytes(rng.choice((0, 1, 5, 40))) for _ in range(rng.randint(1, 6))]
    sections: dict[int, dict[int, int | bytes]] = {}
    for type_ in rng.sample(list(Section), rng.choice((0, 0, 1, 2, 3))):
        indexes = rng.sample(range(len(bodies)), rng.randint(1, len(bodies)))
        sections[type_] = {
            index: rng.randbytes(rng.randrange(9)) if type_ >= 64 else rng.getrandbits(60)
            for index in indexes
        }
    return encode(bodies, rng.getrandbits(40), rng.getrandbits(62), 99, sections=sections)


def make_short(rng: random.Random) -> bytes:
    offset, unsynced = rng.getrandbits(rng.choice((3, 40))), rng.choice((0, 1, 9))
    body = rng.randbytes(rng.choice((0, 1, 5, 8, 40)))
    return short_batch(body, offset, rng.getrandbits(62), 99, unsynced, rng.getrandbits(16))


def flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(rng: random.Random, data: bytearray) -> None:
    """A number that is likely to be looked at, where one is likely to be."""
    anywhere = rng.randrange(40, len(data))
    at = rng.choice((0, 8, 12, 16, 64, 68, 72, 76, anywhere, len(data) - 12))
    if 0 <= at <= len(data) - 4:
        struct.pack_into("<I", data, at, rng.choice(NUMBERS))


def cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(9, len(data)) :]


def cut_and_claim(rng: random.Random, data: bytearray) -> None:
    """A shorter batch that says so: only what it holds can give it away."""
    length = rng.randrange(40, len(data) + 1, 8)
    del data[length:]
    struct.pack_into("<I", data, 8, length)


def lengthen(rng: random.Random, data: bytearray) -> None:
    """Something more in the trailer."""
    data += section(rng.choice((0, 1, 2, 9, 64)), rng.randbytes(rng.randrange(30)))
    data += bytes(-len(data) % 8)
    struct.pack_into("<IH", data, 8, len(data), 1)


DAMAGES = (flip, overwrite, overwrite, cut, cut_and_claim, lengthen)


def damaged(rng: random.Random, batch: bytes) -> bytes:
    data = bytearray(batch)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        if len(data) >= 48:
            rng.choice(DAMAGES)(rng, data)
    # a right crc on top lets the damage through to what comes after it
    return with_crc(bytes(data)) if rng.random() < 0.7 else bytes(data)


def outcome(function: Callable[..., Any], *arguments: Any) -> object:
    try:
        return function(*arguments)
    except ValueError:
        return ValueError


def fuzz_one(rng: random.Random, page: GuardedPage) -> int:
    intact = make_short(rng) if rng.random() < 0.4 else make(rng, kernel.encode_batch)
    batch = damaged(rng, intact)
    data = intact + batch if rng.random() < 0.3 else batch
    position = len(data) - len(batch)
    with page.at_the_end(data) as view:
        check, length = kernel.check_batch(view, position)
        assert (check, length) == codec.check_batch(data, position)
        for expected in (0, 1, decode_header(intact, 0).base_offset):
            theirs = codec.check_batches(data, expected)
            assert kernel.check_batches(view, expected) == theirs
        for name in ("decode_header", "decode_bodies", "decode_sections"):
            theirs = outcome(getattr(codec, name), data, position)
            assert outcome(getattr(kernel, name), view, position) == theirs, name
            assert check != BatchCheck.INTACT or theirs is not ValueError, name
        assert outcome(kernel.decode_columns, view) == outcome(codec.decode_columns, data)
    return int(check)


def test_a_fixed_seed_reaches_every_verdict(page: GuardedPage) -> None:
    rng = random.Random(20)
    seen = {fuzz_one(rng, page) for _ in range(FIXED_ROUNDS)}
    assert seen == set(BatchCheck)
