"""Which partition a row goes to, as nsqd itself would have it (docs/spark.md).

The number in the column `partition` goes before all. A key falls where nsqd puts it, so all of a
key stay in order, whoever publishes them. Rows with neither go where there is room: a task stages
them in blocks, and the blocks go to the partitions in turn. By blocks, not by rows, since each
block costs nsqd a file and a sync: a small batch is one block for each task, however many
partitions there are. Which partition a task begins with differs from task to task and from batch to
batch, so that small batches are spread, too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernel import murmur3_32
from penstock.nsqdapi.calls import Shape
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.encode import BadRow, ends_of, valid_of, values_of

NUMBER_MAX = 1 << 16  # of a partition that a column may name
ANY = NUMBER_MAX - 1  # any partition: the next one in turn; nsqd never has so many
_Numbers = np.ndarray[Any, Any]


class Routing:
    """Of one task. `turn` says with which partition it begins."""

    def __init__(self, api: BrokerApi, turn: int = 0) -> None:
        self._api = api
        self._shapes: dict[str, Shape] = {}
        self._turns: defaultdict[str, int] = defaultdict(lambda: turn)

    def next(self, topic: str) -> int:
        """The partition of the next block that may go to any."""
        turn = self._turns[topic]
        self._turns[topic] = turn + 1
        return turn % self.shape(topic).partitions

    def partitions(
        self, topic: str, keys: pa.Array | None, numbers: pa.Array | None, rows: _Numbers
    ) -> _Numbers:
        """Of those rows of the columns, all of one topic. Raises BadRow."""
        count = self.shape(topic).partitions
        found = np.full(len(rows), ANY if count > 1 else 0, np.int64)
        if keys is not None and count > 1:
            mine = keys.take(pa.array(rows))
            keyed = valid_of(mine)
            found[keyed] = key_hashes(mine)[keyed] % self.shape(topic).key_partitions
        if numbers is not None:
            named = numbers.take(pa.array(rows))
            given = valid_of(named)
            found[given] = named.fill_null(0).to_numpy().astype(np.int64)[given]
            self._check(topic, found, rows, given)
        return found

    def _check(self, topic: str, found: _Numbers, rows: _Numbers, given: _Numbers) -> None:
        if self._beyond(topic, found, given).any():
            del self._shapes[topic]  # it may have grown since this task asked
        wrong = np.flatnonzero(self._beyond(topic, found, given))
        if len(wrong):
            number = found[wrong[0]]
            same = rows[wrong[found[wrong] == number]]
            raise BadRow(same, f"there is no partition {number}")

    def _beyond(self, topic: str, found: _Numbers, given: _Numbers) -> _Numbers:
        beyond: _Numbers = given & ((found < 0) | (found >= self.shape(topic).partitions))
        return beyond

    def shape(self, topic: str) -> Shape:
        shape = self._shapes.get(topic)
        if shape is None:
            shape = self._shapes[topic] = self._api.shape(topic)
        return shape


# --- the hash of keys ---
#
# For a whole column at a time: what nsqd's `murmur3_32` gives for each of them.
#
# A key has to fall into the same partition whoever publishes it, so a test holds this against the
# kernel's. Each step takes the next four bytes of all keys that are that long.

_LONG_BYTES = 256  # such keys are rare, and each would cost a step of its own for four bytes


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
