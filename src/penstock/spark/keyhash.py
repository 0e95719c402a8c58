"""The hash of keys, for a whole column at a time: what nsqd's `murmur3_32` gives for each of them.

A key has to fall into the same partition whoever publishes it, so a test holds this against the
kernel's. Each step takes the next four bytes of all keys that are that long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernel import murmur3_32
from penstock.spark.buffers import ends_of, values_of

_LONG_BYTES = 256  # such keys are rare, and each would cost a step of its own for four bytes
_Numbers = np.ndarray[Any, Any]


def key_hashes(keys: pa.Array) -> _Numbers:
    """Of a binary column; of what is null it is the hash of nothing."""
    ends = ends_of(keys).astype(np.int64)
    data = values_of(keys)
    starts, lengths = ends[:-1], np.diff(ends)
    hashes = np.zeros(len(keys), np.uint32)
    short = np.flatnonzero(lengths <= _LONG_BYTES)
    hashes[short] = _short(np.frombuffer(data, np.uint8), starts[short], lengths[short])
    for row in np.flatnonzero(lengths > _LONG_BYTES).tolist():
        hashes[row] = murmur3_32(bytes(data[ends[row] : ends[row + 1]]))
    return hashes


def _short(data: _Numbers, starts: _Numbers, lengths: _Numbers) -> _Numbers:
    hashes = np.zeros(len(starts), np.uint32)
    blocks = lengths // 4
    rows = np.arange(len(starts))
    for number in range(int(blocks.max(initial=0))):
        rows = rows[blocks[rows] > number]
        mixed = hashes[rows] ^ _scrambled(_words(data, starts[rows] + 4 * number, 4))
        hashes[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    for count in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == count)
        hashes[rows] ^= _scrambled(_words(data, starts[rows] + 4 * blocks[rows], count))
    return _finished(hashes ^ lengths.astype(np.uint32))


def _words(data: _Numbers, starts: _Numbers, count: int) -> _Numbers:
    """So many bytes from there on, as numbers, the lowest first."""
    words = np.zeros(len(starts), np.uint32)
    for index in range(count):
        words |= data[starts + index].astype(np.uint32) << np.uint32(8 * index)
    return words


def _scrambled(words: _Numbers) -> _Numbers:
    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(words: _Numbers, bits: int) -> _Numbers:
    rotated: _Numbers = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated


def _finished(hashes: _Numbers) -> _Numbers:
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(bits))) * np.uint32(factor)
    finished: _Numbers = hashes ^ (hashes >> np.uint32(16))
    return finished
