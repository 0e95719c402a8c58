from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.ids.guid import (
    SEQUENCES_PER_TICK,
    IdRange,
    default_node_id,
    make,
    parse,
    tick_of,
)
from penstock.kernel import id_at, id_index, id_to_hex

NOW_NS = 1_790_000_000 * 10**9
TICK_NS = 1 << 20

nodes = st.integers(0, 1023)
walls = st.one_of(
    st.integers(NOW_NS - 10**9, NOW_NS + 10**9),
    st.integers(-(10**18), 2**62),
)


def test_an_id_seen_on_a_real_nsqd() -> None:
    parts = parse(0x18A26F9AC7A69000)
    assert (parts.node, parts.sequence) == (617, 0)
    assert make(parts.tick, parts.node, parts.sequence) == 0x18A26F9AC7A69000
    assert tick_of(parts.time_ns) == parts.tick
    assert 2024 < 1970 + parts.time_ns / (365.25 * 86400e9) < 2030


def test_the_default_node_id_is_what_nsqd_takes() -> None:
    assert default_node_id("localhost") == 16
    assert all(0 <= default_node_id(f"host-{n}") <= 1023 for n in range(200))


@pytest.mark.parametrize("node_id", [-1, 1024, 10**9])
def test_a_node_id_out_of_range_is_a_config_error(node_id: int) -> None:
    with pytest.raises(ConfigError) as caught:
        IdRange(node_id)
    assert (caught.value.name, caught.value.value) == ("node-id", node_id)


@given(st.integers(0, 2**41 - 1), nodes, st.integers(0, 4095))
def test_make_and_parse_are_inverse(tick: int, node: int, sequence: int) -> None:
    parts = parse(make(tick, node, sequence))
    assert parts[:3] == (tick, node, sequence)


@given(
    nodes,
    st.lists(
        st.tuples(st.integers(1, 20_000), walls, st.one_of(st.none(), nodes)),
        min_size=1,
        max_size=30,
    ),
)
def test_ids_rise_whatever_the_clock_does_and_whoever_goes_on(
    node: int, takes: list[tuple[int, int, int | None]]
) -> None:
    ids = IdRange(node)
    highest = 0
    for count, wall_ns, next_node in takes:
        if next_node is not None:  # a restart, perhaps under another node id
            ids = IdRange(next_node, ids.last_id)
        base = ids.take(count, wall_ns)
        assert base > highest
        assert parse(base).node == ids.node_id
        highest = id_at(base, count - 1)
        assert highest == ids.last_id
        assert id_index(base, count, highest) == count - 1


@given(nodes, st.integers(1, 4096))
def test_a_fresh_tick_starts_at_sequence_zero(node: int, count: int) -> None:
    ids = IdRange(node)
    first = ids.take(count, NOW_NS)
    second = ids.take(count, NOW_NS + TICK_NS)
    assert parse(first)[:3] == (tick_of(NOW_NS), node, 0)
    assert parse(second)[:3] == (tick_of(NOW_NS) + 1, node, 0)


def test_a_used_up_tick_borrows_from_the_next() -> None:
    ids = IdRange(7)
    ids.take(SEQUENCES_PER_TICK, NOW_NS)
    borrowed = ids.take(1, NOW_NS)
    assert parse(borrowed)[:3] == (tick_of(NOW_NS) + 1, 7, 0)
    assert ids.ticks_ahead(NOW_NS) == 1
    assert ids.ticks_ahead(NOW_NS + TICK_NS) == 0


def test_the_same_tick_goes_on_where_it_stopped() -> None:
    ids = IdRange(7)
    first = ids.take(10, NOW_NS)
    assert ids.take(10, NOW_NS) == first + 10
    assert ids.take(10, NOW_NS - 10**12) == first + 20  # the clock stepped back


def test_the_wire_form_sorts_like_the_number() -> None:
    ids = IdRange(3)
    texts = [id_to_hex(ids.take(5000, NOW_NS)) for _ in range(50)]
    assert texts == sorted(texts)


def test_nothing_is_taken_as_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        IdRange(0).take(0, NOW_NS)
