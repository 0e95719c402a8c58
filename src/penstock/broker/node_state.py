"""`node.json` of the data directory, from the start to an orderly stop, and the node's clock.

A clock that is far ahead: of everything that is stored, at a start, or of its own run, later.

A running nsqd bears a clock that is set, a start takes it over. If it is a year ahead by mistake,
every message is a year old at once, and those with a maximum age would be dropped within a second.
The newest timestamp in the logs is the only witness, and it can't tell that from a node that was
off for a year. So nothing is decided: it is reported, and for a while no message is dropped by its
age. Whoever sees the report sets the clock right and starts again; if the clock is right, it need
only be waited for.

While nsqd runs, the clock is compared with the monotonic one. A day and more between them is
reported for as long as it lasts.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.health import Health, Trouble
from penstock.broker.topics.topic_file import (
    NODE_FILE,
    NODE_VERSION,
    NodeFile,
    read_node_file,
    write_node_file,
)
from penstock.errors import StorageError
from penstock.ids.guid import parse

if TYPE_CHECKING:
    from penstock.broker.context import Context


_log = logging.getLogger("penstock.broker")


class NodeState:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._node: NodeFile | None = None

    def begin(self) -> None:
        """From here on, until the next orderly stop, the directory counts as killed."""
        context, disk, path = self._context, self._context.disk, self._context.data_path
        node_id = context.options.node_id
        if disk.exists(os.path.join(path, NODE_FILE)):
            node = read_node_file(disk, path)
            context.killed = not node.clean
            is_known = node.node_id == node_id and node.version == NODE_VERSION
            if is_known and context.killed:
                self._node = node  # it says all that already: a full disk is no reason to stay down
                return
        else:
            node = NodeFile(node_id, context.clock.wall_ns())
        if node.node_id != node_id:
            _log.warning("%s: the node id changes from %d to %d", path, node.node_id, node_id)
            node.node_id = node_id
        node.clean = False
        node.version = NODE_VERSION  # before a segment is written that an older release would cut
        write_node_file(disk, path, node)
        self._node = node

    def note_clean_stop(self) -> None:
        context = self._context
        if self._node is None or context.health.failing:
            return
        self._node.clean = True
        try:
            write_node_file(context.disk, context.data_path, self._node)
        except StorageError as error:
            _log.error("%s", error)


def look_at_clock(context: Context, wall_ns: int) -> None:
    """The clock was ahead when ids and timestamps were given, or it is behind now."""
    ids, health = context.ids, context.health
    if ids.ticks_ahead(wall_ns) <= limits.ID_BORROW_TICKS_MAX:
        health.clear("", Trouble.CLOCK)
        return
    until = datetime.fromtimestamp(parse(ids.last_id).time_ns // limits.SECOND, UTC)
    reason = (
        f"message ids and timestamps are ahead of the clock, at {until:%Y-%m-%d %H:%M} UTC: "
        "the clock was ahead before, or is behind now. Ages count from when messages are seen"
    )
    health.report("", Trouble.CLOCK, reason)


_DAY_NS = 24 * 3600 * limits.SECOND


class ClockAhead:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._until_ns = 0  # by the monotonic clock; 0: there is nothing to report
        self._leap_ns = 0  # how far it was ahead at the start
        self._start_ns: int | None = None  # wall minus monotonic
        self._step_ns = 0  # how far it has gone ahead since

    def look(self, newest_ns: int, wall_ns: int, mono_ns: int) -> None:
        """Called once, at the start. `newest_ns` is 0 when no message is stored."""
        self._start_ns = wall_ns - mono_ns
        leap_ns = wall_ns - newest_ns
        if not newest_ns or leap_ns <= limits.CLOCK_LEAP_NS:
            return
        self._until_ns = mono_ns + limits.CLOCK_LEAP_GRACE_NS
        self._leap_ns = leap_ns
        hours = limits.CLOCK_LEAP_GRACE_NS // (3600 * limits.SECOND)
        reason = (
            f"the clock is {leap_ns // _DAY_NS} days ahead of the newest message. If it is wrong, "
            f"set it right and start nsqd again: for {hours} hours no message is dropped by its age"
        )
        self._health.report("", Trouble.CLOCK_LEAP, reason)

    @property
    def ahead_ns(self) -> int:
        """How far the clock is ahead, as far as known; 0 where nothing is reported."""
        return max(self._leap_ns if self._until_ns else 0, self._step_ns)

    def follow(self, wall_ns: int, mono_ns: int) -> None:
        if self._start_ns is None:
            return
        step_ns = wall_ns - mono_ns - self._start_ns
        if step_ns >= limits.CLOCK_STEP_NS:
            self._step_ns = step_ns
            reason = (
                f"the clock has gone {step_ns // _DAY_NS} days ahead since nsqd started: it was "
                "set, or the machine slept. Set it right, or start nsqd again"
            )
            self._health.report("", Trouble.CLOCK_STEP, reason)
        elif self._step_ns:
            self._step_ns = 0
            self._health.clear("", Trouble.CLOCK_STEP)

    def stands(self, mono_ns: int) -> bool:
        """Is expiry by age suspended?"""
        if self._until_ns and mono_ns >= self._until_ns:
            self._until_ns = 0
            self._health.clear("", Trouble.CLOCK_LEAP)
        return bool(self._until_ns)
