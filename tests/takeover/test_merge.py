from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.takeover import merge as merge_module
from penstock.takeover.merge import Alignment, Entry, Merge, Run

Held = tuple[int, int, int]  # message, digest, attempts


def entries_of(queues: Sequence[Sequence[Held]]) -> list[Entry]:
    return [
        Entry(id, digest, queue, ordinal, attempts)
        for queue, held in enumerate(queues)
        for ordinal, (id, digest, attempts) in enumerate(held)
    ]


def outcome(queues: Sequence[Sequence[Held]]) -> tuple[list[Held], list[list[Held]]]:
    """The log, and what each channel gets of it; the last of `queues` is the topic's own."""
    merge = Merge([len(held) for held in queues[:-1]], len(queues[-1]))
    merge.settle(entries_of(queues))
    layout = merge.layout()
    log: list[Held] = []
    for queue, start, end in layout.segments:
        if queue == len(queues) - 1:
            assert len(log) == layout.handed_end
        stored_by = merge.owners[queue]
        log += [queues[queue][n] for n in range(start, end) if stored_by[n] == queue]
    assert len(log) == layout.end
    got = []
    for state in layout.states:
        assert state.next == state.low
        assert state.low <= layout.handed_end
        done = [range(state.low), *(range(start, end) for start, end in state.finished)]
        got.append([one for n, one in enumerate(log) if not any(n in range_ for range_ in done)])
    return log, got


def plain(*ids: int) -> list[Held]:
    return [(id, 0, 0) for id in ids]


def test_channels_do_not_share_where_that_costs_too_many_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge_module, "RANGES_MAX", 4)
    every, other = plain(*range(40)), plain(*range(0, 40, 2))
    log, got = outcome([every, other, plain(40)])
    assert len(log) == len(every) + len(other)  # it shares one message, and has copies of the rest
    assert got == [every + plain(40), other + plain(40)]
    log, got = outcome([every, other, plain(0, 1)])  # both were being handed over
    assert [sorted(one) for one in got] == [every, sorted(plain(1) + other)]


QUEUE = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 2)), max_size=12)


@given(st.lists(QUEUE, min_size=1, max_size=4), st.integers(1, 20))
def test_every_channel_gets_what_it_held_and_nothing_else(
    queues: list[list[Held]], ranges_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_module, "RANGES_MAX", ranges_max)
        _, got = outcome(queues)
    topic = {held[:2] for held in queues[-1]}
    for held, received in zip(queues[:-1], got, strict=True):
        attempts: dict[tuple[int, int], int] = {}
        for id, digest, count in held:
            attempts[id, digest] = max(count, attempts.get((id, digest), 0))
        assert set(Counter(one[:2] for one in received).values()) <= {1}
        assert {one[:2] for one in received} == attempts.keys() | topic
        for id, digest, count in received:
            assert attempts.get((id, digest), count) == count
        in_file = [one for one in held if attempts[one[:2]] == one[2]]
        own = [one for one in received if one[:2] in attempts]
        assert own == list(dict.fromkeys(in_file))


# --- what queues share of one log, each in its own order ---


def laid_out(size: int) -> Alignment:
    alignment = Alignment()
    alignment.add(0, size, [], [(0, size)])
    return alignment


@given(st.permutations(range(8)), st.lists(st.integers(1, 5), min_size=8, max_size=8))
def test_the_heaviest_selection_is_found(order: list[int], lengths: list[int]) -> None:
    starts = [sum(lengths[:number]) for number in range(9)]
    runs, at = [], 0
    for number in order:
        runs.append(Run(at, 0, starts[number], lengths[number]))
        at += lengths[number]
    chosen = laid_out(starts[8]).choose(runs, 8)
    rising = [
        some
        for count in range(9)
        for some in combinations(runs, count)
        if list(some) == sorted(some, key=lambda run: run.first)
    ]
    assert tuple(chosen) in rising
    weights = [sum(run.length for run in some) for some in rising]
    assert sum(run.length for run in chosen) == max(weights)
