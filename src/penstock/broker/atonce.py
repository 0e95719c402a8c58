"""A publish stored in one call of the kernel.

For a topic with one replica and durability `os`, where what is written is committed, and for
batches that no Python code waits for. A publisher that waits for each answer makes batches of one
message, so what each batch costs, each message costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.commitline import CommitLine
    from penstock.broker.context import Context
    from penstock.broker.topic import Topic
    from penstock.kernel import Tail
    from penstock.log.partition import PartitionLog


class AtOnce:
    __slots__ = ("_context", "_epoch", "_ids", "_line", "_log", "_pace", "_tail", "_topic")

    def __init__(
        self, context: Context, topic: Topic, tail: Tail, log: PartitionLog, line: CommitLine
    ) -> None:
        self._context = context
        self._ids = context.ids
        self._topic = topic
        self._pace = topic.pace
        self._tail = tail
        self._log = log
        self._line = line
        self._epoch = line.rule.record.epoch

    def write(self, count: int, wall_ns: int, kept: bool) -> bool:
        """The open batch, of `count` messages, is stored. False: it has to be a row. Raises
        StorageError, and then log and tail are as before."""
        log, ids, context, line = self._log, self._ids, self._context, self._line
        if line.rule.waits or not line.is_alone:
            return False
        last_id = ids.last_id
        base_id = ids.take(count, wall_ns)
        length = log.write_open(self._tail, base_id, ids.last_id, wall_ns, self._epoch)
        if not length:
            ids.last_id = last_id
            return False
        context.touched[self._topic] = None
        context.headroom_bytes -= length
        end = log.written_end
        line.wrote(end)
        unsynced_count = end - log.synced_end
        if unsynced_count >= self._pace.every_count and kept:
            self._pace.look(unsynced_count, wall_ns)
        return True
