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

import mmh3
import numpy as np
import pyarrow as pa

from penstock.nsqdapi.calls import Shape
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.encode import BadRow, valid_of

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


def key_hashes(keys: pa.Array) -> _Numbers:
    """As nsqd has them, whoever publishes: a key falls into the same partition. Of what is null it
    is the hash of nothing. The library's, as workers may lack the compiled kernel; a call for each
    key is quicker than NumPy over columns, which takes a step for each four bytes."""
    hashes = (mmh3.hash(key or b"", 0, False) for key in keys.to_pylist())
    return np.fromiter(hashes, np.uint32, len(keys))
