"""A publish that is handed on to another node: where to, how often, and what its publisher hears.

A node that leads no partition of the topic hands a publish on. The attempt may be refused, or end
without an answer: then the messages may be stored, or will be.

| a publish | goes to |
|---|---|
| that names a partition | that one |
| with a producer's stamp | that of its producer's id: only there is it known as a repeat |
| else | any, and after a refusal another |

| an attempt ends | then |
|---|---|
| stored | OK |
| refused: it is not stored there | again, until the deadline, elsewhere if it may; then refused |
| unknown | again **at the same partition**, with the same stamp; at the deadline unknown |

A publish without a stamp gets one of the forwarder's own for the partition that it is tried at, so
a repeat there is answered, not stored. After an unknown outcome nothing else may be said than OK or
unknown: a later refusal is of the repeat alone. What came from another node is never handed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from penstock.kernel import murmur3_32
from penstock.replica.leading import Outcome

_PRODUCER_ID_BYTES = 8


class Verdict(IntEnum):
    OK = 1
    REFUSED = 2
    UNKNOWN = 3


def partition_of_producer(producer_id: int, hash_partitions: int) -> int:
    """For good: `hash_partitions` does not grow with the topic."""
    return murmur3_32(producer_id.to_bytes(_PRODUCER_ID_BYTES, "big")) % hash_partitions


class Forward:
    """One publish. `partition` is where the next attempt goes; `verdict` ends it."""

    __slots__ = ("_deadline_ns", "_is_bound", "_is_unknown", "partition", "verdict")

    def __init__(
        self,
        partition: int,
        deadline_ns: int,
        producer_id: int | None = None,
        hash_partitions: int = 0,
        is_named: bool = False,
    ) -> None:
        """`partition`: the one that was named, or that its spreading prefers."""
        self._deadline_ns = deadline_ns
        if producer_id is not None and not is_named:
            partition = partition_of_producer(producer_id, hash_partitions)
        self.partition = partition
        self._is_bound = is_named or producer_id is not None
        self._is_unknown = False
        self.verdict: Verdict | None = None

    def ended(self, outcome: Outcome, others: Sequence[int], now_ns: int) -> None:
        """An attempt has. `others`: partitions that could be tried, those preferred first."""
        if outcome is Outcome.DONE:
            self.verdict = Verdict.OK
            return
        if outcome is Outcome.UNKNOWN:
            self._is_unknown = True
        if now_ns >= self._deadline_ns:
            self.verdict = Verdict.UNKNOWN if self._is_unknown else Verdict.REFUSED
        elif others and not (self._is_bound or self._is_unknown):
            self.partition = others[0]
