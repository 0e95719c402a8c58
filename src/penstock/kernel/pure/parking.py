"""Delayed messages become strays when they are handed to a channel, wherever its cursor stands:
they are deferred, and no part of the depth.

Those in memory are parked by the pump. What was handed over and is in the log alone has to be
searched: the window says from where to where, the broker reads it, and `search` parks what it
finds. So are those in memory that have an id of their own, for what they are a copy of may come
before them, and those for which there is no room (`beyond.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.pure.batch import id_at
from penstock.kernel.pure.block import split_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from penstock.kernel.pure.block import Batch, Special
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.window import Window


def park_delayed(window: Window, engine: Engine) -> None:
    """Delayed messages at the cursor start their wait now, consumers or not (in memory only)."""
    window.step_over()
    while window.next < window.tail.handed_end:
        batch = window.tail.find(window.next)
        if batch is None or batch.plain:
            break
        special = special_at_cursor(window, batch)
        if special.due_ns <= engine.wall_ns:
            break
        park_next(window, special, window.keys.key_of(batch, window.next))
    if window.parked_end < window.tail.handed_end:
        _park_ahead(window, engine)


def special_at_cursor(window: Window, batch: Batch, conn: Conn | None = None) -> Special:
    """An own id gives way to the log's while another message has it: a replay may bring the same
    one twice, and another window of the consumer may have a copy."""
    index = window.next - batch.base_offset
    special = batch.special(index)
    taken = window.has(special.id) or (conn is not None and conn.find(special.id) is not None)
    if special.own_id and taken:
        return special._replace(own_id=False, id=batch.ids(index, 1)[0])
    return special


def park_next(window: Window, special: Special, key: bytes | None) -> None:
    """The message at the cursor waits for its time."""
    window.beyond.met(window.next, special.due_ns)
    window.mark_traced(special.id, special.trace_id)
    flight = window.new_stray(special.id, special.attempts)
    flight.key = key
    window.sleep(flight, special.due_ns)
    window.move_to(window.next + 1)
    window.step_over()


def _park_ahead(window: Window, engine: Engine) -> None:
    """Those behind messages that are still to be delivered. What was handed over and has left
    memory since then is to be searched."""
    tail = window.tail
    at, end = max(window.parked_end, window.next), tail.handed_end
    window.parked_end = end
    in_memory = min(tail.memory_start, end)
    if at < in_memory:
        window.widen_search(at, in_memory)
        at = in_memory
    while at < min(tail.trailer_end, end):
        batch = tail.find(at)
        if batch is None:
            raise RuntimeError(f"{tail.topic!r}: offset {at} is in memory, and in no batch")
        batch_end = min(batch.end, end)
        if not _park_batch(window, batch, range(at, batch_end), engine.wall_ns):
            return
        at = batch_end


def _park_batch(window: Window, batch: Batch, offsets: range, wall_ns: int) -> bool:
    """False: there are too many by now."""
    for index in sorted(batch.dues()):
        offset = batch.base_offset + index
        if offset not in offsets or offset in window.skips:
            continue
        special = batch.special(index)
        if special.due_ns <= wall_ns:
            continue
        if window.strays.delayed >= window.parked_max:
            window.widen_search(offset, window.tail.handed_end)
            return False
        if special.own_id:
            window.widen_search(offset, offsets.stop)
            continue
        window.mark_traced(special.id, special.trace_id)
        key = window.keys.key_of(batch, offset)
        window.park(offset, special.id, special.attempts, special.due_ns, key)
    return True


def search(window: Window, blocks: Sequence[Buffer], end: int, ids_from: int) -> None:
    """One step of a pass: `blocks` have all delayed messages from `search_start` to `end`."""
    end = min(end, window.tail.handed_end)
    for block in blocks:
        for batch in split_block(block):
            _search_batch(window, batch, end, ids_from)
    window.searched_to(end)


def _search_batch(window: Window, batch: Batch, end: int, ids_from: int) -> None:
    beyond = window.beyond
    for index in sorted(batch.dues()):
        offset = batch.base_offset + index
        if not window.search_start <= offset < end or offset in window.skips:
            continue
        special = _special_ahead(window, batch, index, ids_from)
        if special.due_ns <= beyond.pass_ns:
            beyond.met(offset, special.due_ns)
        elif window.strays.delayed < window.parked_max and not window.has(special.id):
            beyond.met(offset, special.due_ns)
            window.mark_traced(special.id, special.trace_id)
            key = window.keys.key_of(batch, offset)
            window.park(offset, special.id, special.attempts, special.due_ns, key)
        elif beyond.counts(offset, special.due_ns):
            beyond.expect(special.due_ns)
        else:
            beyond.add(offset, special.due_ns)


def _special_ahead(window: Window, batch: Batch, index: int, ids_from: int) -> Special:
    """No message that is still to be delivered has an id below `ids_from` by the log's own count;
    another may turn out to be the original, so there the log's id serves."""
    special = batch.special(index)
    if special.own_id and (special.id >= ids_from or window.has(special.id)):
        return special._replace(own_id=False, id=id_at(batch.base_id, index))
    return special
