"""Reading a log without a channel."""

import os
import struct
from itertools import pairwise

import pytest

from cases import ended
from penstock import limits
from penstock.broker.channels.reading import Range, TopicReader, find_id
from penstock.broker.partition.appends import Content
from penstock.errors import LogDamaged, NotFound, OffsetBeyondEnd, OffsetGone
from penstock.kernel import Section, decode_columns, decode_header

from ..partition.test_leader import damage
from ..world import Start, World

EVERYTHING = 1 << 40


def reader(world: World) -> TopicReader:
    return TopicReader(world.broker.find_topic("news"))


def bodies(found: Range) -> list[bytes]:
    columns = decode_columns(b"".join(found.blocks))
    ends = struct.unpack(f"<{columns.count + 1}q", columns.body_offsets)
    data = bytes(columns.bodies)
    return [data[a:b] for a, b in pairwise(ends)]


def published(start: Start, **options: object) -> World:
    """Five batches of two messages."""
    world = start(**options)
    for number in range(0, 10, 2):
        world.publish("news", b"m%d" % number, b"m%d" % (number + 1))
    return world


def test_a_batch_larger_than_what_is_left_waits_for_the_next_fetch(world: World) -> None:
    large = limits.READ_BLOCK_BYTES * 2
    for size in (10, large, 10):
        world.publish("news", bytes(size))
    read = reader(world)
    assert ended(read.fetch(0, 3, limits.READ_BLOCK_BYTES)).next_offset == 1
    assert ended(read.fetch(1, 3, limits.READ_BLOCK_BYTES)).next_offset == 2
    assert ended(read.fetch(0, 3, EVERYTHING)).next_offset == 3


def test_unsynced_messages_are_not_read(start: Start) -> None:
    world = start(durability="os")
    world.publish("news", b"safe")
    world.broker.find_topic("news").leader().group.sync()
    world.turns()
    world.threads.held = True
    world.publish("news", b"not safe")
    read = reader(world)
    assert (read.end, read.committed) == (1, 2)
    assert bodies(ended(read.fetch(0, EVERYTHING, EVERYTHING))) == [b"safe"]
    with pytest.raises(OffsetBeyondEnd):
        ended(read.fetch(2, EVERYTHING, EVERYTHING))
    assert read.message(1).body == b"not safe"
    assert [read.find_time(1 << 62, end) for end in (read.end, read.committed)] == [1, 2]
    world.broker.find_topic("news").leader().group.sync()
    world.threads.run()
    world.turns()
    assert (read.end, read.committed) == (2, 2)


def test_removed_messages_are_not_found(start: Start) -> None:
    world = start(segment_bytes_max=64 * limits.KIB, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a", rdy=100)
    for _ in range(4):
        world.publish("news", bytes(40_000))
    read = reader(world)
    work = read.fetch(0, EVERYTHING, EVERYTHING)
    next(work)
    consumer.finish(*consumer.take())
    world.pass_seconds(3)
    assert read.earliest > 1
    assert ended(work).next_offset >= 1  # what was there before is answered
    with pytest.raises(OffsetGone) as refused:
        ended(read.fetch(0, EVERYTHING, EVERYTHING))
    assert refused.value.edge == read.earliest


def test_a_topic_that_is_deleted_during_a_read(start: Start) -> None:
    world = published(start)
    read = reader(world)
    begun, fresh = read.fetch(0, 10, EVERYTHING), read.fetch(0, 10, EVERYTHING)
    large = ended(read.fetch(0, 10, EVERYTHING))
    world.broker.delete_topic("news")
    with pytest.raises(NotFound):
        ended(fresh)
    with pytest.raises(NotFound):
        ended(begun)
    assert len(bodies(large)) == 10


def test_damage_ends_a_range_and_is_named_by_the_next(start: Start) -> None:
    world = start(tail_memory_bytes_max=0)
    for number in range(4):
        world.publish("news", b"m%d" % number)
    damage(world, 2)
    read = reader(world)
    assert ended(read.fetch(0, 4, EVERYTHING)).next_offset == 2
    with pytest.raises(LogDamaged) as refused:
        ended(read.fetch(2, 4, EVERYTHING))
    assert (refused.value.from_offset, refused.value.to_offset) == (2, 3)
    assert "offsets 2 to 2 are corrupt" in world.broker.health
    assert world.broker.find_topic("news").refusal == ""
    assert bodies(ended(read.fetch(3, 4, EVERYTHING))) == [b"m3"]
    assert ended(read.find_value(Section.TRACE, 1)) is None  # steps over it


def test_messages_by_id_and_by_time(world: World) -> None:
    world.publish("news", b"0", b"1")
    world.clock.pass_ns(limits.SECOND)
    later_ns = world.clock.wall_ns()
    world.publish("news", b"2")
    read = reader(world)
    for offset in range(3):
        message = read.message(offset)
        assert message.body == b"%d" % offset
        assert ended(find_id([read], message.id)) == (0, offset)
    assert ended(find_id([read], read.message(0).id - 1)) is None
    assert [read.find_time(later_ns + step, read.end) for step in (-1, 0, 1)] == [2, 2, 3]
    with pytest.raises(OffsetBeyondEnd):
        read.message(3)


def test_own_ids_and_trace_ids_are_found(start: Start) -> None:
    world = published(start)
    topic = world.broker.find_topic("news")
    sections: dict[int, int | bytes] = {Section.ID: 77, Section.TRACE: 99, Section.KEY: b"k"}
    letters = [Content(b"plain", {}), Content(b"carried", sections)]
    topic.publish_dead_letters(letters, lambda error, position: None)
    world.turns()
    read = reader(world)
    assert ended(find_id([read], 77)) == (0, ended(read.find_value(Section.TRACE, 99))) == (0, 11)
    message = read.message(11)
    assert (message.id, message.body, message.sections[Section.KEY]) == (77, b"carried", b"k")
    assert ended(find_id([read], 78)) is None


# --- beside the loop ---


def test_file_ranges_end_at_the_committed_end(start: Start) -> None:
    read = reader(published(start))
    file_range = read.file_range(4)
    assert file_range is not None
    data = os.pread(file_range.descriptor, file_range.end, file_range.position)
    assert decode_header(data, 0).base_offset == file_range.expected <= 4
    read.log.remember(file_range, 4, file_range.position + 2 * decode_header(data, 0).length)
    again = read.file_range(4)
    assert again is not None
    assert again.expected == 4  # it begins where the caller said
    read.log.release(file_range)
    read.log.release(again)
    assert read.file_range(10) is None
    with pytest.raises(OffsetBeyondEnd):
        read.file_range(11)


def test_positions_by_bytes_of_log(start: Start) -> None:
    world = start()
    for _ in range(100):
        world.publish("news", bytes(2_000))
    read = reader(world)
    everything = read.bytes_from(0)
    assert everything > 200_000
    assert abs(read.bytes_from(50) - everything // 2) < limits.INDEX_EVERY_BYTES
    assert read.bytes_from(100) == read.bytes_from(1_000) == 0
    assert 0 < read.after_bytes(0, everything // 2, 100) - 20 < 60
    assert read.after_bytes(0, 1 << 40, 100) == 100
    assert read.after_bytes(0, 1 << 40, 70) == 70
    assert read.after_bytes(70, 1, 70) == 70
    with pytest.raises(OffsetBeyondEnd):
        read.after_bytes(71, 1, 70)
