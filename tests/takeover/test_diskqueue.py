import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cases import each
from penstock.takeover.diskqueue import (
    Meta,
    Metadata,
    OldChannel,
    OldTopic,
    QueueFiles,
    Record,
    encode_record,
    format_meta,
    list_old_files,
    parse_meta,
    read_metadata,
)
from penstock.takeover.diskrecords import Tally, read_queue
from sim.disk import SimDisk

from .olddata import joined, record, records, write_file, write_queue

BODIES = st.one_of(
    st.binary(max_size=60),
    st.text("0123456789abcdef", max_size=80).map(str.encode),  # looks like ids
)
RECORDS = st.lists(
    st.builds(
        Record,
        st.integers(0, (1 << 63) - 1),
        st.integers(0, 65535),
        st.integers(0, (1 << 64) - 1),
        BODIES,
    ),
    max_size=12,
)


class Queue:
    """A queue on a simulated disk, and what reading it gives."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.mkdir("/old")
        self.tally = Tally()

    def files(self) -> QueueFiles:
        (queue,) = list_old_files(self.disk.listdir("/old")).queues
        return queue

    def read(self, all_bad: bool = False) -> list[Record]:
        self.tally = Tally()
        return list(read_queue(self.disk, "/old", self.files(), self.tally, all_bad))

    def put(self, name: str, data: bytes) -> None:
        write_file(self.disk, "/old", name, data)


@pytest.fixture
def queue() -> Queue:
    return Queue()


# --- bytes ---


@each("data", [b"", b"12\n", b"12\n1,340\n", b"\0" * 14, b"12\n1,x\n2,56\n"])
def test_a_torn_meta_file_is_known_as_such(data: bytes) -> None:
    assert parse_meta(data) is None


def test_metadata_is_read_as_nsqd_writes_it(queue: Queue) -> None:
    queue.put(
        "nsqd.dat",
        b'{"topics":[{"name":"a","paused":false,"channels":null},{"name":"st","paused":true,'
        b'"channels":[{"name":"ch","paused":true}]}],"version":"1.3.0"}\n',
    )
    assert read_metadata(queue.disk, "/old", "nsqd.dat") == Metadata(
        [OldTopic("a"), OldTopic("st", True, [OldChannel("ch", True)])], "1.3.0"
    )


# --- names ---


def test_names_tell_whose_a_file_is() -> None:
    found = list_old_files(
        [
            "nsqd.dat",
            "nsqd.dat.7.tmp",
            "orders.diskqueue.000000.dat",
            "orders.diskqueue.meta.dat",
            "orders.diskqueue.meta.dat.123.tmp",
            "orders:mail.diskqueue.000003.dat",
            "orders:mail.diskqueue.000002.dat.bad",
            "orders;mail.diskqueue.1000000.dat",
            "a.diskqueue.000001.dat.diskqueue.000000.dat",
            "penstock.lock",
            "topics",
            "not a name.diskqueue.000000.dat",
            "a:b:c.diskqueue.000000.dat",
        ]
    )
    assert found.metadata == "nsqd.dat"
    assert found.leftovers == ["nsqd.dat.7.tmp", "orders.diskqueue.meta.dat.123.tmp"]
    assert {(q.name, q.topic, q.channel, tuple(q.data), tuple(q.bad)) for q in found.queues} == {
        ("orders", "orders", "", (0,), ()),
        ("orders:mail", "orders", "mail", (3,), (2,)),
        ("orders;mail", "orders", "mail", (1000000,), ()),
        ("a.diskqueue.000001.dat", "a.diskqueue.000001.dat", "", (0,), ()),
    }
    assert len(found.all) == 9


def test_metadata_of_nsqd_before_1_0() -> None:
    assert list_old_files(["nsqd.617.dat"]).metadata == "nsqd.617.dat"
    both = list_old_files(["nsqd.617.dat", "nsqd.dat"])
    assert (both.metadata, both.leftovers) == ("nsqd.dat", ["nsqd.617.dat"])
    assert not list_old_files(["penstock.lock", "topics", "node.json", "x.dat"])


# --- reading ---


@pytest.mark.parametrize("meta", [None, b"", b"3\n0,"])
def test_without_a_meta_file_all_is_read(queue: Queue, meta: bytes | None) -> None:
    write_queue(queue.disk, "/old", "t", records(range(9)), file_bytes_max=120)
    if meta is None:
        queue.disk.unlink("/old/t.diskqueue.meta.dat")
    else:
        queue.put("t.diskqueue.meta.dat", meta)
    assert queue.read() == records(range(9))
    assert "all data files are read" in queue.tally.notes[0]


def missing(queue: Queue) -> list[str]:
    queue.read()
    return [note.partition(":")[0] for note in queue.tally.notes if "missing" in note]


@pytest.mark.parametrize("has_meta", [True, False])
def test_data_files_that_are_missing_in_between_are_named(queue: Queue, has_meta: bool) -> None:
    for number in (2, 4, 8):
        queue.put(f"t.diskqueue.00000{number}.dat", joined(records([number])))
    if has_meta:
        queue.put("t.diskqueue.meta.dat", format_meta(Meta(9, 2, 0, 8, 10)))
    single = "t.diskqueue.000003.dat"
    assert missing(queue) == [single, "t.diskqueue.000005.dat to t.diskqueue.000007.dat"]
    assert queue.read() == records([2, 4, 8])


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (Meta(9, 2, 10, 3, 10), ["t.diskqueue.000003.dat"]),  # the write file
        (Meta(9, 2, 10, 3, 0), []),  # which is made with its first message
        (Meta(9, 1, 10, 2, 10), []),  # a read file that was read to its end
        (Meta(9, 3, 10, 3, 20), ["t.diskqueue.000003.dat"]),  # one that was not
        (Meta(0, 3, 20, 3, 20), []),
        (Meta(0, 0, 0, 10**17, 0), ["t.diskqueue.000003.dat to t.diskqueue.99999999999999999.dat"]),
    ],
)
def test_bytes_missing_at_the_ends(queue: Queue, meta: Meta, expected: list[str]) -> None:
    queue.put("t.diskqueue.000002.dat", joined(records([2])))
    queue.put("t.diskqueue.meta.dat", format_meta(meta))
    assert missing(queue)[-1:] == expected


# --- damage ---


def test_a_record_with_an_unreadable_id_is_kept(queue: Queue) -> None:
    data = bytearray(joined(records(range(3))))
    size = len(encode_record(record(0)))
    data[size + 20] = 0xFF
    queue.put("t.diskqueue.000000.dat", bytes(data))
    assert queue.read() == [record(0), record(1)._replace(id=-1), record(2)]
    assert (queue.tally.ids_lost, queue.tally.bad_bytes) == (1, 0)


def test_a_message_may_be_larger_than_what_is_read_at_a_time(queue: Queue) -> None:
    large = [record(1, b"x" * 3_000_000), record(2), record(3, b"0f" * 1_500_000), record(4)]
    queue.put("t.diskqueue.000000.dat", joined(large))
    assert queue.read() == large


def test_a_body_made_to_look_like_thousands_of_records(queue: Queue) -> None:
    """Each of them leads to the next, and none past the end: each is looked at once."""
    fake = joined([record(n, b"") for n in range(1, 20_000)])
    outer = record(0, fake)
    queue.put("t.diskqueue.000000.dat", joined([outer]) + b"\xff" * 40)
    assert queue.read() == [outer]


@given(RECORDS, st.data())
def test_a_cut_costs_the_last_message_at_most(
    given_records: list[Record], data: st.DataObject
) -> None:
    queue = Queue()
    whole = joined(given_records)
    cut = data.draw(st.integers(0, len(whole)))
    queue.put("t.diskqueue.000000.dat", whole[:cut])
    ends = [len(joined(given_records[: n + 1])) for n in range(len(given_records))]
    kept = sum(end <= cut for end in ends)
    assert queue.read() == given_records[:kept]
    assert queue.tally.bad_bytes == cut - len(joined(given_records[:kept]))


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=3, max_size=12), st.data())
def test_a_damaged_byte_costs_one_message_at_most(bodies: list[bytes], data: st.DataObject) -> None:
    given_records = [record(n, body) for n, body in enumerate(bodies)]
    queue = Queue()
    whole = bytearray(joined(given_records))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    starts = [len(joined(given_records[:n])) for n in range(len(given_records) + 1)]
    start = max(one for one in starts if one <= at)
    length = int.from_bytes(whole[start : start + 4], "big")
    assume(at >= start + 4 or start + 4 + length not in starts)  # several, as one: no byte tells
    queue.put("t.diskqueue.000000.dat", bytes(whole))
    found = queue.read()
    whole_ones = [one for one in found if one in given_records]
    assert len(whole_ones) >= len(given_records) - 1
    assert len(found) <= len(given_records)


@given(st.binary(max_size=300))
def test_garbage_is_no_message_and_no_error(data: bytes) -> None:
    queue = Queue()
    queue.put("t.diskqueue.000000.dat", data)
    found = queue.read()
    read_bytes = sum(30 + len(one.body) for one in found)
    assert read_bytes + queue.tally.bad_bytes == len(data)


# --- files that nsqd gave up on ---


def test_a_bad_file_is_read_behind_what_nsqd_could_not_read(queue: Queue) -> None:
    data = bytearray(joined(records(range(8))))
    size = len(encode_record(record(0)))
    data[2 * size : 2 * size + 4] = b"\xff\xff\xff\xff"
    queue.put("t.diskqueue.000000.dat.bad", bytes(data))
    queue.put("t.diskqueue.000001.dat", joined(records([8, 9])))
    queue.put("t.diskqueue.meta.dat", format_meta(Meta(2, 1, 0, 1, 2 * size)))
    assert queue.read() == records(range(3, 10))
    assert queue.tally.passed_bytes == 2 * size
    assert queue.read(all_bad=True) == records([0, 1, 3, 4, 5, 6, 7, 8, 9])


def test_a_bad_file_with_nothing_wrong_had_been_read(queue: Queue) -> None:
    queue.put("t.diskqueue.000000.dat.bad", joined(records(range(8))))
    assert queue.read() == []
    assert "nsqd had read" in queue.tally.notes[0]
    assert queue.read(all_bad=True) == records(range(8))
