"""The rules alone: what stands where, and what is decided. Every row is a story of its own."""

from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.log.recovery import BatchRun, Hole, decide


def run(from_offset: int, to_offset: int, synced_end: int = 0, segment: int = 0) -> BatchRun:
    return BatchRun(segment, from_offset, to_offset, 1000 + to_offset, synced_end)


STORIES = {
    "all is there, nothing was synced": (0, [run(0, 10)], 0, 10, (), 0),
    "all is there and synced": (0, [run(0, 10)], 10, 10, (), 0),
    "an empty log": (0, [], 0, 0, (), 0),
    "a log that retention emptied": (50, [], 50, 50, (), 0),
    "an unsynced batch is missing, later ones landed": (
        0,
        [run(0, 5, 5), run(8, 10, 5)],
        5,
        5,
        (),
        1,
    ),
    "the same, and the mark is old": (0, [run(0, 5, 3), run(8, 10, 5)], 0, 5, (), 1),
    "a batch below the synced end that a later header tells of": (
        0,
        [run(0, 5, 3), run(8, 10, 8)],
        0,
        10,
        (Hole(5, 8),),
        0,
    ),
    "the mark tells of a synced end that is not there": (0, [run(0, 5)], 9, 9, (Hole(5, 9),), 0),
    "everything that was synced is gone": (0, [], 9, 9, (Hole(0, 9),), 0),
    "two holes, one below and one above": (
        0,
        [run(0, 5), run(6, 10, 7), run(12, 14, 7)],
        7,
        10,
        (Hole(5, 6),),
        1,
    ),
    "a hole that reaches across the synced end": (
        0,
        [run(0, 5), run(9, 12, 5)],
        7,
        12,
        (Hole(5, 9),),
        0,
    ),
    "an unfinished end of one segment drops the next segments": (
        0,
        [run(0, 5), run(8, 12, 5, 1), run(12, 20, 5, 2)],
        5,
        5,
        (),
        2,
    ),
    "damage at the end of one segment keeps the next": (
        0,
        [run(0, 5), run(8, 12, 8, 1)],
        5,
        12,
        (Hole(5, 8),),
        0,
    ),
}


@each("story", STORIES)
def test_story(story: str) -> None:
    start, runs, known, end, holes, dropped = STORIES[story]
    decision = decide(start, runs, known)
    assert (decision.end_offset, decision.holes) == (end, holes)
    assert len(decision.dropped) == dropped
    assert [*decision.kept, *decision.dropped] == runs


@st.composite
def walks(draw: st.DrawFn) -> tuple[list[BatchRun], int]:
    runs, offset = [], 0
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from((0, 0, 1, 3)))
        length = draw(st.integers(1, 5))
        runs.append(run(offset, offset + length, draw(st.integers(0, offset))))
        offset += length
    return runs, draw(st.integers(0, offset + 3))


@given(walks())
def test_nothing_that_was_noted_as_synced_is_ever_cut(walk: tuple[list[BatchRun], int]) -> None:
    runs, known = walk
    decision = decide(0, runs, known)
    noted = max([known, *(r.synced_end for r in runs)])
    assert decision.synced_seen == noted
    assert decision.end_offset >= noted
    covered = {n for r in decision.kept for n in range(r.from_offset, r.to_offset)}
    covered |= {n for h in decision.holes for n in range(*h)}
    assert set(range(decision.end_offset)) == covered
    assert all(r.from_offset > noted for r in decision.dropped)
    assert all(h.from_offset < noted for h in decision.holes)
