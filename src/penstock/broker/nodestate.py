"""`node.json` of the data directory, from the start to an orderly stop, and the node's clock."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.health import Trouble
from penstock.broker.topicfile import (
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
    """It was ahead when ids and timestamps were given, or it is behind now."""
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
