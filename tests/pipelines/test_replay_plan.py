"""The plan of a replay, and the file that keeps it."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.pipelines.replay_plan import Bucket, Kept, Plan, ReplayRequest, chunks_of, cuts_of

REQUEST = ReplayRequest("topics", ("orders",), "again", "", "", -1, -1, (), "", "keep")


def test_buckets_become_chunks_in_order() -> None:
    buckets = [
        Bucket("b", 0, 0, 10, 10),
        Bucket("a", 0, 20, 30, 4),
        Bucket("a", 0, 3, 9, 5),
        Bucket("a", 1, 0, 7, 7),
    ]
    assert chunks_of(buckets, 10) == (
        (Bucket("a", 0, 3, 30, 9),),
        (Bucket("a", 1, 0, 7, 7),),
        (Bucket("b", 0, 0, 10, 10),),
    )
    assert chunks_of(buckets, 100) == (
        (Bucket("a", 0, 3, 30, 9), Bucket("a", 1, 0, 7, 7), Bucket("b", 0, 0, 10, 10)),
    )
    assert chunks_of([], 10) == ()


def test_offsets_rise_and_nothing_is_lost_through_the_chunks() -> None:
    buckets = [Bucket("a", 0, n * 10, n * 10 + 10, n % 10 + 1) for n in range(100)]
    chunks = chunks_of(reversed(buckets), 10)
    spans = [(b.start, b.end) for chunk in chunks for b in chunk]
    assert all(one[1] == two[0] for one, two in pairwise(spans))
    assert (spans[0][0], spans[-1][1]) == (0, 1000)
    assert sum(b.messages for chunk in chunks for b in chunk) == 550
    assert max(sum(b.messages for b in chunk) for chunk in chunks) <= 10


@each("parts", range(1, 9))
def test_every_message_lies_in_one_part_and_parts_follow_each_other(parts: int) -> None:
    chunk = (Bucket("a", 0, 3, 17, 6), Bucket("a", 2, 0, 2, 2), Bucket("b", 0, 40, 41, 1))
    places = [(b.topic, b.partition, n) for b in chunk for n in range(b.start, b.end)]
    cuts = cuts_of(chunk, parts)
    assert list(cuts) == sorted(cuts)
    assert len(cuts) == parts - 1
    numbers = [sum(place >= cut for cut in cuts) for place in places]
    assert numbers == sorted(numbers)
    assert set(numbers) <= set(range(parts))


def test_a_plan_is_kept(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "deep"), "again")
    assert kept.read(REQUEST) is None
    chunks = chunks_of([Bucket("orders", 0, 0, 9, 3)] * 2, 3)
    plan = Plan(REQUEST, {"orders": "x"}, "", chunks, made_ns=1_795_240_800_000_000_001)
    kept.write(plan)
    assert kept.read(REQUEST) == plan
    assert (plan.messages, plan.done_by(None), plan.done_by(0), plan.done_by(1)) == (6, 0, 3, 6)
    assert kept.path.stat().st_mode & 0o077 == 0


def test_a_plan_is_for_one_request(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path), "again")
    several = Plan(msgspec.structs.replace(REQUEST, partition=3), {}, "", (), 4)
    kept.write(several)
    assert kept.read(several.request) == several
    with pytest.raises(ConfigError, match="partition was 3"):
        kept.read(REQUEST)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"version": 3}', '{"version": 1, "request": 3}']
)
def test_a_damaged_plan_is_no_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "again.json").write_text(text)
    with pytest.raises(ConfigError, match="damaged"):
        Kept(str(tmp_path), "again").read(REQUEST)


def test_a_replay_that_nsqd_has_forgotten_does_not_begin_anew(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path), "again")
    plan = Plan(REQUEST, {}, "", chunks_of([Bucket("orders", 0, n, n + 1, 1) for n in range(3)], 1))
    assert (kept.last(plan, None), kept.last(plan, 1)) == (None, 1)
    kept.note(1)
    assert (kept.last(plan, 1), kept.last(plan, 2)) == (1, 2)
    for committed in (None, 0):
        with pytest.raises(ConfigError, match="forgotten this replay after chunk 2 of 3"):
            kept.last(plan, committed)
    kept.note(2)
    assert kept.last(plan, None) == 2
    (tmp_path / "again.done").write_text("")
    with pytest.raises(ConfigError, match="no number"):
        kept.last(plan, None)
