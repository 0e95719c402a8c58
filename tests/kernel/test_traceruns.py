"""Runs of trace events taken apart: both forms say the same, and it is what was put in."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

FIELDS = "<qQqQIHHHHHBB"
MANY = 1 << 20
IDS = st.sampled_from([0, 1, (9 << 22) | 4094, (1 << 64) - 2, 77])
RECORDS = st.lists(
    st.tuples(
        st.integers(-(1 << 63), (1 << 63) - 1),
        IDS,
        st.sampled_from([0, 5, (1 << 63) - 2, -1]),
        st.sampled_from([0, 1, 42, (1 << 64) - 1]),
        st.sampled_from([0, 1, 2, 5, 9]),
        *[st.integers(0, 3)] * 7,
    ),
    max_size=8,
)


def packed(*rows: tuple[int, ...]) -> bytes:
    return b"".join(struct.pack(FIELDS, *row) for row in rows)


def record(id: int, offset: int, count: int, trace_id: int = 0) -> tuple[int, ...]:
    return (99, id, offset, trace_id, count, 1, 2, 3, 4, 0, 2, 0)


def shown(data: Any) -> list[tuple[int, ...]]:
    """Id, offset and count of each; what else they have is that of `record`."""
    rows = list(struct.iter_unpack(FIELDS, data))
    assert all((row[0], row[5:]) == (99, (1, 2, 3, 4, 0, 2, 0)) for row in rows)
    return [(row[1], row[2], row[4]) for row in rows]


def test_a_run_is_one_event_for_each_message(functions: ModuleType) -> None:
    last = (9 << 22) | 4095  # the next id is of the next tick
    data = packed(record(last, 7, 3), record(0, 100, 5), record(77, 9, 1))
    assert shown(functions.expand_events(data, 5)) == [
        (last, 7, 1),
        (10 << 22, 8, 1),
        ((10 << 22) + 1, 9, 1),
        (0, 100, 5),
        (77, 9, 1),
    ]


def test_what_has_no_runs_is_not_copied(functions: ModuleType) -> None:
    data = packed(record(77, 1, 1), record(0, 100, 5))
    assert functions.expand_events(data, 2) is data
    assert functions.expand_events(b"", 0) == b""


def test_more_events_than_allowed(functions: ModuleType) -> None:
    top = (1 << 32) - 1
    data = packed(record(77, 1, top), record(77, 1, top))
    with pytest.raises(ValueError, match=f"{2 * top} events are more than 16384"):
        functions.expand_events(data, 16384)
    with pytest.raises(ValueError, match="2 events are more than 1"):
        functions.expand_events(packed(record(77, 1, 1), record(78, 2, 1)), 1)
    traced = packed(record(77, 1, top, 42))
    with pytest.raises(ValueError, match=f"{top} events are more than 16384"):
        functions.pick_events(traced, 0, 42, 16384)
    assert shown(functions.pick_events(data, 78, 0, 2)) == [(78, 2, 1)] * 2


def test_half_a_record(functions: ModuleType) -> None:
    for call in (
        lambda: functions.expand_events(bytes(47), 9),
        lambda: pick(functions, bytes(49), 1),
    ):
        with pytest.raises(ValueError, match="are no whole records"):
            call()


def pick(functions: ModuleType, data: bytes, message_id: int = 0, trace_id: int = 0) -> Any:
    return functions.pick_events(data, message_id, trace_id, MANY)


def test_one_message_is_picked_out_of_runs(functions: ModuleType) -> None:
    data = packed(record(77, 7, 3), record(78, 8, 1), record(80, 10, 2, 42), record(0, 78, 9))
    assert shown(pick(functions, data, 78)) == [(78, 8, 1), (78, 8, 1)]
    assert pick(functions, data, 76) == pick(functions, data, 82) == b""
    assert pick(functions, data, 78 | 5 << 12) == b""  # of another node
    assert shown(pick(functions, data, 0, 42)) == [(80, 10, 1), (81, 11, 1)]
    assert shown(pick(functions, data, 79, 42)) == [(79, 9, 1), (80, 10, 1), (81, 11, 1)]
    assert shown(pick(functions, data)) == [(0, 78, 9)]


@given(RECORDS, st.sampled_from([0, 1, 3, 79, 1 << 22]), st.sampled_from([0, 42]))
def test_both_forms_agree(
    kernel: ModuleType,
    codec: ModuleType,
    rows: list[tuple[int, ...]],
    message_id: int,
    trace_id: int,
) -> None:
    data = packed(*rows)
    single = bytes(kernel.expand_events(data, MANY))
    assert single == bytes(codec.expand_events(data, MANY))
    picked = pick(kernel, data, message_id, trace_id)
    assert picked == pick(codec, data, message_id, trace_id)
    if message_id or trace_id:
        wanted = [
            row
            for row in struct.iter_unpack(FIELDS, single)
            if (message_id and row[1] == message_id) or (trace_id and row[3] == trace_id)
        ]
        assert picked == packed(*wanted)
