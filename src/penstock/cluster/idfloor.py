"""Message ids over nodes and replacements: rising along a partition, and unique in a topic.

An id holds the clock's tick and the number of the node that made it. Two rules make that enough:

1. **Above the log.** A partition's ids rise, whoever leads it. A leader whose clock is behind that
   of the one before goes on above the last id of the log.
2. **Above the floor.** A machine that replaces another under its number has no logs to read what
   was given out, and its clock may be behind. `members/<id>` holds a *floor*: the tick below which
   ids may have been given out. A start makes none below it.

The floor is raised ahead of use: ids are made only in ticks that the coordinator has written down
as reserved. While that is missing, `take` says so, and the publish waits.

| what | when | then |
|---|---|---|
| `wanted` | less than half of ID_RESERVE_TICKS is left | the floor to be written |
| `written` | it stands in the coordinator | ids up to there may be made |
| `take` | the ids would lie above what is reserved | None |
"""

from __future__ import annotations

from penstock.ids.guid import TICK_SHIFT, IdRange, tick_of
from penstock.limits import ID_RESERVE_TICKS


class NodeIds:
    """The ids that one process makes. `floor_tick`: as its start found it in the coordinator."""

    __slots__ = ("_range", "reserved_tick")

    def __init__(self, node: int, floor_tick: int) -> None:
        last_id = (floor_tick << TICK_SHIFT) - 1 if floor_tick else 0
        self._range = IdRange(node, last_id)
        self.reserved_tick = floor_tick  # ids below it may be made

    def lead(self, last_id: int) -> None:
        """This node leads a partition whose log's last id is this."""
        self._range.last_id = max(self._range.last_id, last_id)

    def take(self, count: int, wall_ns: int) -> int | None:
        """The base id of `count` new ids; None: they are not reserved yet."""
        before = self._range.last_id
        base_id = self._range.take(count, wall_ns)
        if self._range.last_id >> TICK_SHIFT >= self.reserved_tick:
            self._range.last_id = before
            return None
        return base_id

    def wanted(self, wall_ns: int) -> int | None:
        """The floor that is to be written; None: there is enough."""
        tick = max(tick_of(wall_ns), self._range.last_id >> TICK_SHIFT)
        if self.reserved_tick - tick >= ID_RESERVE_TICKS // 2:
            return None
        return tick + ID_RESERVE_TICKS

    def written(self, floor_tick: int) -> None:
        self.reserved_tick = max(self.reserved_tick, floor_tick)
