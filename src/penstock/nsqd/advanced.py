"""`SUB_ADVANCED <topic> <channel> <partition> [offset]`, as in Youzan's NSQ: SUB with the position
of each message in its frame, and a place to begin at.

The place is written as for `/channel/setoffset` (`broker/positions.py`), but for an id, which may
take a walk through the log. It counts for the first consumer of the channel alone: whoever comes
later must not move the others.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from penstock.broker.positions import OF_ONE, Places, Position, parse_position, resolve
from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote
from penstock.wire.partition import ANY, bad_partition

if TYPE_CHECKING:
    from penstock.broker.channel import Channel

SUB_ADVANCED = b"SUB_ADVANCED"


def read_offset(text: bytes, now_ns: int) -> Position:
    """Raises WireFault."""
    try:
        position = parse_position(text.decode("ascii"), now_ns)
    except ValueError:
        position = Position("id")
    if position.kind == "id":
        raise WireFault(Fault.BAD_OFFSET, SUB_ADVANCED, quote(text))
    return position


def places(channel: Channel, position: Position, partition: int) -> Places:
    """Where its first consumer begins; none for a later one. Raises WireFault, OffsetGone,
    OffsetBeyondEnd, StorageError."""
    numbers = [partition] if partition != ANY else list(channel.windows)
    if len(numbers) > 1 and position.kind in OF_ONE:
        raise bad_partition(SUB_ADVANCED, b"%d" % partition)
    if channel.consumers:
        return {}
    return _result(resolve(channel.topic, position, numbers))


def _result(work: Generator[None, None, Places]) -> Places:
    """Of work that is done in one piece: only ids take more."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: Places = ended.value
            return found
