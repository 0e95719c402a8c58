"""The rule alone: what a walk found, and what is kept of it, called a hole, or dropped."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.recovery import BatchRun, decide

Walk = tuple[int, list[BatchRun], int]


def run(from_offset: int, to_offset: int, synced_end: int = 0) -> BatchRun:
    return BatchRun(0, from_offset, to_offset, 1000 + to_offset, synced_end)


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    """Where the log begins, what stands in it, and the synced end that is known from elsewhere."""
    start = draw(st.sampled_from((0, 50)))
    runs, offset = [], start
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from((0, 0, 1, 3)))
        length = draw(st.integers(1, 5))
        runs.append(run(offset, offset + length, draw(st.integers(0, offset))))
        offset += length
    return start, runs, draw(st.integers(0, offset + 3))


@given(walks())
@example((0, [run(0, 5, 5), run(8, 10, 5)], 5))  # an unsynced batch is missing, later ones landed
@example((0, [run(0, 5, 3), run(8, 10, 8)], 5))  # a later header tells that it was synced
@example((0, [run(0, 5), run(6, 10, 7), run(12, 14, 7)], 7))  # one hole below, one above
@example((0, [run(0, 5), run(9, 12, 5)], 7))  # a hole that reaches across the synced end
@example((0, [], 9))  # everything that was synced is gone
@example((50, [], 50))  # retention has emptied the log
def test_synced_batches_are_kept_and_batches_behind_a_gap_are_not(walk: Walk) -> None:
    start, runs, known = walk
    decision = decide(start, runs, known)
    noted = max([known, *(r.synced_end for r in runs)])
    assert decision.synced_seen == noted
    assert decision.end_offset >= noted
    assert [*decision.kept, *decision.dropped] == runs
    covered = [n for r in decision.kept for n in range(r.from_offset, r.to_offset)]
    covered += [n for h in decision.holes for n in range(*h)]
    assert sorted(covered) == list(range(start, decision.end_offset))
    assert all(h.from_offset < noted for h in decision.holes)
    assert all(r.from_offset > noted for r in decision.dropped)
    assert all(r.from_offset > decision.end_offset for r in decision.dropped)
