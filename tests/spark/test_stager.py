"""A task's rows, staged: by topic, in order, in blocks; and what is said of a row that can't be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import RowRefused, RowsRefused, SchemaMismatch
from penstock.kernel import Section, decode_bodies, decode_header, decode_sections, murmur3_32
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.rejects import COLUMNS, RejectedTable, Rejects
from penstock.spark.stager import Staged, Stager

from .fakebroker import FakeBroker

ALL = {"body": "BODY", "topic": "t", "partition": "p", "key": "k"}
TYPES = (pa.binary(), pa.string(), pa.int32(), pa.binary())


@pytest.fixture
def api(broker: FakeBroker) -> Iterator[BrokerApi]:
    with BrokerApi(broker.url, retries=0) as api:
        yield api


def stager(api: BrokerApi, topic: str | None = None, **more: Any) -> Stager:
    columns = {"body": "BODY"} if topic else {"body": "BODY", "topic": "t"}
    return Stager(api, columns, topic, "task 3", **more)


def rows(*pairs: tuple[bytes, str | None]) -> pa.RecordBatch:
    bodies, topics = zip(*pairs, strict=True)
    return pa.RecordBatch.from_pydict({"BODY": list(bodies), "t": pa.array(topics, pa.string())})


def staged_bodies(broker: FakeBroker, staged: Staged) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for stage in staged.stages:
        data = broker.stages[stage]
        position = 0
        while position < len(data):
            bodies = decode_bodies(data, position)
            found.setdefault((stage.topic, stage.partition), []).extend(bodies)
            position += decode_header(data, position).length
    return found


def test_one_topic_is_staged_in_order_and_in_blocks(broker: FakeBroker, api: BrokerApi) -> None:
    one = stager(api, "orders", stage_bytes=1000)
    bodies = [b"%05d" % n * 20 for n in range(100)]
    for first in range(0, 100, 25):
        one.add(pa.RecordBatch.from_pydict({"BODY": bodies[first : first + 25]}))
    staged = one.finish()
    assert staged_bodies(broker, staged) == {("orders", 0): bodies}
    assert len(staged.stages) > 10
    assert max(map(len, broker.stages.values())) < 1200


def test_topics_are_sorted_out_and_keep_their_order(broker: FakeBroker, api: BrokerApi) -> None:
    one = stager(api)
    one.add(rows((b"1", "a"), (b"2", "b"), (b"3", "a")))
    one.add(rows((b"4", "b"), (b"5", "c"), (b"6", "a")))
    one.add(rows((b"7", "a"), (b"8", "a")))
    staged = one.finish()
    assert staged_bodies(broker, staged) == {
        ("a", 0): [b"1", b"3", b"6", b"7", b"8"],
        ("b", 0): [b"2", b"4"],
        ("c", 0): [b"5"],
    }
    assert len(staged.stages) == 3


def test_partitions_are_sorted_out(broker: FakeBroker, api: BrokerApi) -> None:
    broker.shapes = {"a": {"partitions": 2}, "b": {"partitions": 2}}
    one = Stager(api, ALL, None, "task 3")
    given = {
        "BODY": [b"1", b"2", b"3", b"4"],
        "t": ["a", "a", "b", "a"],
        "p": pa.array([1, None, 1, 0], pa.int32()),
        "k": [b"k", b"sea", None, None],
    }
    assert murmur3_32(b"sea") % 2 == 0
    one.add(pa.RecordBatch.from_pydict(given))
    assert staged_bodies(broker, one.finish()) == {
        ("a", 0): [b"2", b"4"],
        ("a", 1): [b"1"],
        ("b", 1): [b"3"],
    }


def test_many_topics_hold_a_bounded_memory(
    broker: FakeBroker, api: BrokerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.limits.SPARK_HELD_BYTES", 2000)
    one = stager(api)
    for number in range(20):
        one.add(rows((b"x" * 500, f"t{number}")))
    assert len(broker.stages) >= 12
    assert sum(map(len, staged_bodies(broker, one.finish()).values())) == 20
    before = set(broker.stages)
    stager(api).add(rows((b"x" * 2000, "t0")))  # again, under a name of its own
    assert len(broker.stages.keys() - before) == 1


@pytest.mark.parametrize(
    ("row", "topic", "reason"),
    [
        ((b"x", None), "", "the topic is null"),
        ((b"x", "no topic"), "", "'no topic' is no topic"),
        ((b"x", "gone#ephemeral"), "", "'gone#ephemeral' is no topic to keep"),
        ((None, "orders"), "orders", "the body is null"),
        ((b"", "orders"), "orders", "the body is empty"),
    ],
)
def test_a_bad_row_is_named(api: BrokerApi, row: Any, topic: str, reason: str) -> None:
    one = stager(api)
    one.add(rows((b"1", "a"), (b"2", "b")))
    with pytest.raises(RowRefused, match=reason) as caught:
        one.add(rows((b"3", "a"), row))
    assert (caught.value.row, caught.value.topic) == (3, topic)
    assert "row 3 of task 3" in str(caught.value)


def keyed(
    api: BrokerApi, broker: FakeBroker, *keys: bytes | None, **shape: int
) -> dict[bytes, int]:
    """The partition of each row, whose body says which it is."""
    broker.shapes["orders"] = shape
    one = Stager(api, {"body": "BODY", "key": "k"}, "orders", "task 3")
    given = {"BODY": [b"%d" % n for n in range(len(keys))], "k": pa.array(keys, pa.binary())}
    one.add(pa.RecordBatch.from_pydict(given))
    found = staged_bodies(broker, one.finish())
    return {body: place[1] for place, bodies in found.items() for body in bodies}


def test_a_key_goes_where_nsqd_puts_it(broker: FakeBroker, api: BrokerApi) -> None:
    keys = [b"customer-%d" % number for number in range(50)]
    for shape in ({"partitions": 8}, {"partitions": 8, "hash_partitions": 3}, {"partitions": 1}):
        count = shape.get("hash_partitions", shape["partitions"])
        expected = {b"%d" % n: murmur3_32(key) % count for n, key in enumerate(keys)}
        assert keyed(api, broker, *keys, **shape) == expected


def test_without_a_key_blocks_take_turns(broker: FakeBroker, api: BrokerApi) -> None:
    broker.shapes["orders"] = {"partitions": 4}
    one = stager(api, "orders", stage_bytes=1000, turn=6)
    bodies = [b"%05d" % n * 20 for n in range(100)]
    one.add(pa.RecordBatch.from_pydict({"BODY": bodies}))
    staged = one.finish()
    assert [stage.partition for stage in staged.stages[:5]] == [2, 3, 0, 1, 2]
    found = staged_bodies(broker, staged)
    assert sorted(body for each in found.values() for body in each) == bodies
    assert all(each == sorted(each) for each in found.values())
    assert max(map(len, found.values())) - min(map(len, found.values())) < 20


def test_rows_without_a_key_do_not_move_keyed_rows(broker: FakeBroker, api: BrokerApi) -> None:
    found = keyed(api, broker, b"x", None, b"x", None, b"x", partitions=4)
    assert {found[b"0"], found[b"2"], found[b"4"]} == {murmur3_32(b"x") % 4}
    assert found[b"1"] == found[b"3"]


def test_a_topic_that_is_not_there_is_made_first(broker: FakeBroker, api: BrokerApi) -> None:
    broker.unmade = {"orders"}
    broker.shapes["orders"] = {"partitions": 3}
    one = stager(api, "orders", turn=2)
    one.add(pa.RecordBatch.from_pydict({"BODY": [b"1"]}))
    assert [stage.partition for stage in one.finish().stages] == [2]
    paths = [path for _, path, _ in broker.requests]
    assert paths == ["/topic/config", "/topic/create", "/topic/config", "/stage"]


def test_a_topic_that_grew_is_looked_at_again(broker: FakeBroker, api: BrokerApi) -> None:
    broker.shapes["orders"] = {"partitions": 2}
    one = Stager(api, {"body": "BODY", "partition": "p"}, "orders", "task 3")
    one.add(pa.RecordBatch.from_pydict({"BODY": [b"1"], "p": pa.array([1], pa.int32())}))
    broker.shapes["orders"] = {"partitions": 4}
    one.add(pa.RecordBatch.from_pydict({"BODY": [b"2"], "p": pa.array([3], pa.int32())}))
    given = {"BODY": [b"3", b"4"], "p": pa.array([2, 4], pa.int32())}
    with pytest.raises(RowRefused, match=r"row 3 .* there is no partition 4"):
        one.add(pa.RecordBatch.from_pydict(given))
    found = staged_bodies(broker, one.finish())
    assert found == {("orders", 1): [b"1"], ("orders", 3): [b"2"]}


def test_keys_are_headers_where_the_topic_has_them(broker: FakeBroker, api: BrokerApi) -> None:
    """Also where the rows of one batch have some and those of the next have none."""
    broker.shapes["b"] = {"partitions": 2, "extended": True}
    one = Stager(api, ALL, None, "task 3")
    given = [(b"1", "a", None, b"x"), (b"2", "b", 1, b"x"), (b"3", "b", 1, None)]
    for some in given[:1], given, given[2:]:
        columns = map(pa.array, zip(*some, strict=True), TYPES)
        one.add(pa.RecordBatch.from_arrays(list(columns), names=["BODY", "t", "p", "k"]))
    found = {
        (stage.topic, section): value
        for stage in one.finish().stages
        for section, values in decode_sections(broker.stages[stage], 0).items()
        for value in values.values()
    }
    assert found == {
        ("a", Section.KEY): b"x",
        ("b", Section.KEY): b"x",
        ("b", Section.HEADERS): b'{"key":"x"}',
    }


@pytest.mark.parametrize("partition", [-1, 1, 65535, 1 << 20])
def test_a_partition_that_cannot_be_is_named(api: BrokerApi, partition: int) -> None:
    one = Stager(api, {"body": "BODY", "partition": "p"}, "orders", "task 3")
    given = {"BODY": [b"1", b"2"], "p": pa.array([0, partition], pa.int32())}
    with pytest.raises(RowRefused, match=f"row 1 .* there is no partition {partition}"):
        one.add(pa.RecordBatch.from_pydict(given))


def test_a_message_that_is_too_big_is_named(broker: FakeBroker, api: BrokerApi) -> None:
    """Also when it is not the largest that is written, in a block of several batches."""
    broker.message_bytes_max = 100
    one = stager(api, stage_bytes=4000)
    one.add(rows(*((b"1" * 90, "a") for _ in range(10)), (b"b", "b")))
    one.add(rows((b"x" * 101, "a"), (b"3", "a")))
    with pytest.raises(
        RowRefused, match=r"101 bytes, and nsqd refuses it: .* 400 BAD_BATCH: a me"
    ) as caught:
        one.finish()
    assert (caught.value.row, caught.value.topic) == (11, "a")


def test_the_batch_that_is_refused_says_where_to_look(
    broker: FakeBroker, api: BrokerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.limits.SPARK_BATCH_BYTES", 300)
    broker.message_bytes_max = 100
    one = stager(api)
    one.add(rows(*((b"%d" % n * 50, "a") for n in range(9)), (b"x" * 101, "a"), (b"y" * 150, "a")))
    with pytest.raises(RowRefused) as caught:
        one.finish()
    assert caught.value.row == 9
    assert len(broker.stages) == 0


def test_an_abort_drops_all_of_it(broker: FakeBroker, api: BrokerApi) -> None:
    broker.message_bytes_max = 100
    one = stager(api, "orders", stage_bytes=50)
    one.add(rows((b"1" * 60, None)))
    with pytest.raises(RowRefused):
        one.add(rows((b"x" * 101, None)))
    assert len(broker.stages) == 1
    one.abort()
    assert broker.stages == {}


def test_an_abort_that_finds_nobody_is_no_failure() -> None:
    with FakeBroker() as gone, BrokerApi(gone.url, retries=0) as api:
        one = stager(api, "orders", stage_bytes=1)
        one.add(rows((b"1", None)))
    one.abort()


# --- rows that are rejected ---


def rejecting(
    api: BrokerApi, path: Path, columns: dict[str, str], rows_max: int = 100, **more: Any
) -> tuple[RejectedTable, Stager]:
    table = RejectedTable(str(path), rows_max, {})
    table.prepare()
    return table, Stager(api, columns, None, "task 3", rejects=Rejects(table, "app", 7), **more)


def in_the_table(path: Path) -> list[dict[str, Any]]:
    found = DeltaTable(path)
    assert pa.schema(found.schema().to_arrow()).names == COLUMNS.names
    return pa.table(found.to_pyarrow_table()).sort_by("rejected_at").to_pylist()


def test_rows_that_cannot_be_messages_go_into_a_table_and_the_others_out(
    broker: FakeBroker, api: BrokerApi, tmp_path: Path
) -> None:
    columns = {**ALL, "headers": "h", "timestamp": "at"}
    _, one = rejecting(api, tmp_path / "rejected", columns)
    headers = pa.map_(pa.string(), pa.binary())
    given = [
        (b"good", "a", 0, b"k", {"h": b"1"}, 5),
        (None, "a", None, b"k", None, None),
        (b"", "a", 0, None, None, None),
        (b"1", None, 0, None, None, None),
        (b"2", "no topic", 0, None, None, None),
        (b"3", "a", -1, None, None, None),
        *[(b"4", "a", 0, None, {"h": b"\xff"}, None)] * 20,
        (b"5", "a", 0, None, None, -1),
        (b"also good", "b", 0, None, None, None),
    ]
    types = [pa.binary(), pa.string(), pa.int32(), pa.binary(), headers, pa.timestamp("us", "UTC")]
    names = ("BODY", "t", "p", "k", "h", "at")
    values = [pa.array([dict_or(row[n]) for row in given], kind) for n, kind in enumerate(types)]
    one.add(pa.RecordBatch.from_arrays(values, names=list(names)))
    staged = one.finish()
    assert staged_bodies(broker, staged) == {("a", 0): [b"good"], ("b", 0): [b"also good"]}
    assert sorted(map(len, staged.rejected)) == [1, 1, 1, 1, 1, 1, 20]  # those of a reason at once
    assert in_the_table(tmp_path / "rejected") == []  # until the driver commits it
    table = RejectedTable(str(tmp_path / "rejected"), 100, {})
    for _ in range(2):
        table.commit("app", 7, staged.rejected)
    found = {row["body"]: row for row in in_the_table(tmp_path / "rejected")}
    assert {body: row["reason"].partition(",")[0] for body, row in found.items()} == {
        None: "the body is null",
        b"": "the body is empty",
        b"1": "the topic is null",
        b"2": "'no topic' is no topic to keep: 1 to 64 of . a-z A-Z 0-9 _ -",
        b"3": "there is no partition -1",
        b"4": "header 'h' is not UTF-8",
        b"5": "the timestamp is not within the years 1970 to 2262",
    }
    assert {(row["app"], row["version"]) for row in found.values()} == {("app", 7)}
    assert (found[None]["key"], found[None]["topic"], found[None]["partition"]) == (b"k", "a", None)
    assert found[b"4"]["headers"] == [{"key": "h", "value": b"\xff"}]
    assert (found[b"5"]["timestamp"].year, found[b"3"]["partition"]) == (1969, -1)


def dict_or(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def test_there_is_a_bound(api: BrokerApi, tmp_path: Path) -> None:
    _, one = rejecting(api, tmp_path / "rejected", {"body": "BODY", "topic": "t"}, rows_max=2)
    one.add(rows((None, "a"), (b"", "a"), (b"x", "a")))
    with pytest.raises(RowsRefused, match=r"3 rows or more .* 2 may be .* the body is null"):
        one.add(rows((b"", "a")))


def test_another_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "other"), pa.table({"body": ["x"]}))
    with pytest.raises(SchemaMismatch, match="no column rejected_at"):
        RejectedTable(str(tmp_path / "other"), 1, {}).prepare()
