"""NSQ's 64-bit message id, and the allocator of a broker: one for all its partitions.

    id = tick << 22 | node << 12 | sequence        tick = (wall ns >> 20) - 1288834974288

A tick is 2**20 ns, about 1.05 ms. The wire form is 16 hex digits, which clients take as opaque.
nsqd waits a millisecond when a tick's 4,096 numbers are used up or the clock steps back. Here ids
are taken by the batch and must rise along a log whatever the clock does, so `IdRange` never waits:
it goes on from the last id, into ticks that have not come yet if it must ("borrowing"). The clock
catches up as soon as the load is below four million messages a second, or, after it was set back,
when it has come as far as it was. Until then the broker warns (`Broker._check_clock`).

All partitions of a node draw from one range, so no id comes twice. FIN, REQ and TOUCH rely on it: a
connection consumes several partitions, and what it finishes it names by the id alone.

For programs that want NSQ's own rules there is `factory.py`, which also explains the widths.
"""

from typing import NamedTuple

from penstock import limits
from penstock.errors import ConfigError
from penstock.kernel import id_above, id_at

SEQUENCE_BITS = 12
NODE_BITS = 10
TICK_SHIFT = SEQUENCE_BITS + NODE_BITS
TICK_NS_BITS = 20
TICK_EPOCH = 1288834974288  # 2012-10-28 16:23:42 UTC: NSQ's choice
TICK_MAX = (1 << 41) - 1  # an id stays positive as a signed 64-bit number
SEQUENCES_PER_TICK = 1 << SEQUENCE_BITS
SEQUENCE_MAX = SEQUENCES_PER_TICK - 1


class IdParts(NamedTuple):
    tick: int
    node: int
    sequence: int
    time_ns: int  # wall clock at the start of the tick


def tick_of(wall_ns: int) -> int:
    """The tick of a wall time; a clock before 2012 (or after 2085) counts as the edge."""
    tick = (wall_ns >> TICK_NS_BITS) - TICK_EPOCH
    return tick if 0 < tick <= TICK_MAX else 1 if tick < 1 else TICK_MAX


def make(tick: int, node: int, sequence: int) -> int:
    return tick << TICK_SHIFT | node << SEQUENCE_BITS | sequence


def parse(id: int) -> IdParts:
    tick = id >> TICK_SHIFT
    node = id >> SEQUENCE_BITS & limits.NODE_ID_MAX
    return IdParts(tick, node, id & SEQUENCES_PER_TICK - 1, (tick + TICK_EPOCH) << TICK_NS_BITS)


def check_node_id(node_id: int) -> int:
    if not 0 <= node_id <= limits.NODE_ID_MAX:
        raise ConfigError("node-id", node_id, f"must be between 0 and {limits.NODE_ID_MAX}")
    return node_id


class IdRange:
    """The ids of one broker. `last_id` is the highest id in all of its logs (0: none yet): a
    message is found by its id alone, so no two partitions of a node may give out the same."""

    __slots__ = ("last_id", "node_id")

    def __init__(self, node_id: int, last_id: int = 0) -> None:
        self.node_id = check_node_id(node_id)
        self.last_id = last_id

    def take(self, count: int, wall_ns: int) -> int:
        """The base id of `count` new ids, each above every id before."""
        if count < 1:
            raise ValueError(f"take({count}): a range holds at least one id")
        base_id = id_above(self.last_id, self.node_id, wall_ns)
        self.last_id = base_id if count == 1 else id_at(base_id, count - 1)
        return base_id

    def ticks_ahead(self, wall_ns: int) -> int:
        """How far the ids are ahead of the clock; above `limits.ID_BORROW_TICKS_MAX` the broker
        warns."""
        return max((self.last_id >> TICK_SHIFT) - tick_of(wall_ns), 0)
