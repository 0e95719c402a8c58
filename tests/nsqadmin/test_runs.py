"""Messages folded into runs: in any order, doubled, among garbage, the same runs come out."""

import random
import shlex
from typing import Any

import pytest

from cases import each, seeds
from penstock import limits
from penstock.nsqadmin import runs as under_test
from penstock.nsqadmin.runs import VANISHED, Point, Run, RunOffset, Runs, Track, command, done_share
from penstock.pipelines.runs import (
    LogOffsets,
    RunMessageInvalid,
    RunStatus,
    decode,
    encode,
    parts_of,
)

NODE = "127.0.0.1:4151"


def state(seq: int = 1, run: str = "r1", **changed: Any) -> RunStatus:
    values: dict[str, Any] = {
        "pipeline": "archive", "state": "running", "time_s": 1000.0 + seq, "started_s": 1000.0,
    }  # fmt: skip
    return RunStatus(run=run, seq=seq, **(values | changed))


def fold(bodies: list[bytes], **bounds: int) -> Runs:
    runs = Runs(**bounds)
    for offset, body in enumerate(bodies):
        runs.take(RunOffset(NODE, offset), body, 2000.0)
    return runs


def one(*states: RunStatus) -> Run:
    (run,) = fold([encode(each) for each in states]).all()
    return run


def seen(runs: Runs) -> list[Any]:
    """All that a page could see, but for the offsets of messages."""
    return [
        (run.state, run.node, run.seen_s, run.track.points(), bool(runs.page(run.id, "html")),
         len(runs.page(run.id, "json")))
        for run in runs.all()
    ]  # fmt: skip


def any_story(random: random.Random) -> list[bytes]:
    """The messages of some runs, some of which make a page."""
    bodies = []
    for number in range(random.randint(1, 6)):
        run, at_s = f"run-{number}", random.uniform(0, 1e6)
        for seq in range(random.randint(1, 400)):
            at_s += random.choice((0.0, 0.5, 2.0, 2.0, 10.0, 4000.0))
            phase = random.choice(("started", "running", "finished", "failed", "stopped"))
            lag = random.choice((None, random.randint(0, 10**6)))
            bodies.append(encode(state(seq, run, time_s=at_s, state=phase, lag_rows=lag)))
        if random.random() < 0.5:
            text = "ä" * random.randint(0, 3 * limits.RUN_PART_CHARS)
            bodies += [encode(part) for part in parts_of(run, "html", text)]
    return bodies


def garbage(random: random.Random, bodies: list[bytes]) -> bytes:
    """What is nearly a message, or none at all."""
    while True:
        body = bytearray(random.choice(bodies))
        for _ in range(random.randint(1, 3)):
            body[random.randrange(min(len(body), 60))] = random.randrange(256)
        cut = bytes(body[: random.randint(0, min(len(body), 200))])
        found = random.choice((cut, random.randbytes(random.randint(0, 50)), b"{}", b"null"))
        try:
            decode(found)
        except RunMessageInvalid:
            return found


@each("seed", seeds(2, 12))
def test_order_repeats_and_garbage_change_nothing(seed: int) -> None:
    dice = random.Random(seed)
    bodies = any_story(dice)
    wanted = seen(fold(bodies))
    assert wanted
    answer = bodies + dice.choices(bodies, k=len(bodies) // 2)
    answer += [garbage(dice, bodies) for _ in range(50)]
    dice.shuffle(answer)
    assert seen(fold(answer)) == wanted


def test_two_messages_with_one_number_give_one_state_in_any_order() -> None:
    both = [state(1, rows=1, lag_rows=5), state(1, rows=2)]
    assert one(*both).state == one(*reversed(both)).state
    assert one(*both).track.points() == one(*reversed(both)).track.points()


def test_a_part_that_is_missing_makes_no_page() -> None:
    parts = [encode(part) for part in parts_of("r1", "html", "x" * limits.RUN_PART_CHARS * 2)]
    runs = fold([encode(state()), parts[1]])
    assert runs.page("r1", "html") == []
    runs.take(RunOffset(NODE, 7), parts[0], 1.0)
    assert runs.page("r1", "html") == [RunOffset(NODE, 7), RunOffset(NODE, 1)]
    assert runs.page("r1", "json") == runs.page("r2", "html") == []


def test_a_page_without_a_run_is_not_shown() -> None:
    (part,) = parts_of("r1", "html", "x")
    runs = fold([encode(part)])
    assert (runs.all(), runs.find("r1")) == ([], None)


def test_the_longest_silent_runs_are_forgotten() -> None:
    runs = Runs(runs_max=3)
    for number in (5, 1, 4, 2, 3):
        runs.take(RunOffset(NODE, number), encode(state(run=f"r{number}")), float(number))
    assert {run.id for run in runs.all()} == {"r3", "r4", "r5"}


def test_a_long_run_has_a_bounded_chart() -> None:
    track = Track(10)
    for number in range(10_000):
        track.add(number, Point(number * 2.0, float(number), None, None))
        assert len(track.points()) <= 12
    points = track.points()
    assert points[-1].rows_per_second == 9999.0
    assert points == sorted(points)


# --- who is alive ---


def test_silence_is_reported_only_while_someone_listens() -> None:
    runs = fold([encode(state())])
    (run,) = runs.all()
    assert runs.phase(run) == "running"
    runs.looked(NODE, run.seen_s + limits.ADMIN_RUN_SILENT_S - 1)
    assert runs.phase(run) == "running"
    runs.looked("another:4151", run.seen_s + 10 * limits.ADMIN_RUN_SILENT_S)
    assert runs.phase(run) == "running"
    runs.looked(NODE, run.seen_s + limits.ADMIN_RUN_SILENT_S + 1)
    assert (runs.phase(run), runs.live()) == (VANISHED, [])
    runs.take(RunOffset(NODE, 1), encode(state(2)), run.seen_s + limits.ADMIN_RUN_SILENT_S + 2)
    assert runs.phase(run) == "running"


def test_a_finished_run_may_be_silent() -> None:
    runs = fold([encode(state(state="finished"))])
    runs.looked(NODE, 1e9)
    assert runs.phase(runs.all()[0]) == "finished"
    runs.looked(NODE, 3000.0)  # the clock was ahead
    runs.take(RunOffset(NODE, 1), encode(state(run="r2")), 3000.0)
    assert [runs.phase(run) for run in runs.live()] == ["running"]


@pytest.mark.parametrize(
    ("later", "count"),
    [({}, 0), ({"state": "failed"}, 1), ({"name": "other"}, 1), ({"options": {"table": "/x"}}, 1)],
)
def test_a_later_run_of_the_same_mends_a_failure(later: dict[str, Any], count: int) -> None:
    answer = [state(run="r1", state="failed"), state(run="r2", **({"started_s": 1500.0} | later))]
    runs = fold([encode(each) for each in answer])
    assert len(runs.unmended(2001.0)) == count
    assert runs.unmended(2001.0 + limits.ADMIN_RUN_FAILED_S) == []


# --- what follows from a state ---


@each(
    ("answer", "share"),
    [
        (state(), None),
        (state(state="finished"), 1.0),
        (state(rows=5, total=20), 0.25),
        (state(rows=0, total=0), 1.0),
        (state(rows=30, total=20), 1.0),
        (state(rows=0, lag_rows=0), 1.0),
        (state(rows=30, lag_rows=10), 0.75),
        (state(logs=[LogOffsets("a", 0, 5, 10), LogOffsets("b", 0, 90, 90)]), 0.95),
    ],
)
def test_how_much_is_done(answer: RunStatus, share: float | None) -> None:
    assert done_share(answer) == share


@each(
    ("lags", "grown"),
    [
        ([0] * 50, 0),
        ([n * 1000 for n in range(50)], 18_000),
        ([n * 10 for n in range(50)], 0),  # so small a backlog is how queues work
        ([50_000 - n * 1000 for n in range(50)], 0),
        ([n * 1000 for n in range(10)], 0),  # it has only begun
        ([n * 1000 if n != 40 else 0 for n in range(50)], 18_000),
    ],
)
def test_a_lag_that_only_grows(lags: list[int], grown: int) -> None:
    points = [Point(1000.0 + 10 * n, 1.0, lag, None) for n, lag in enumerate(lags)]
    assert under_test.grown_lag(points) == grown


def test_the_command_repeats_the_start_safely() -> None:
    options: dict[str, Any] = {
        "config": "/etc/p.toml", "once": True, "log": False, "trigger": "2s", "rate": 5,
        "topics": ["a", "b"], "where": "x = 'y'; rm -rf /\n$(id)\x1b[2J‮",
    }  # fmt: skip
    line = command(state(options=options))
    words = shlex.split(line)
    assert words[:6] == ["penstock", "pipeline", "run", "archive", "--once", "--log=false"]
    assert words[6:10] == ["--trigger=2s", "--rate=5", "--topics=a", "--topics=b"]
    assert words[10:] == ["--where=x = 'y'; rm -rf /�$(id)�[2J�"]
    assert line.isprintable()


def test_a_run_of_spark_submit_shows_its_command() -> None:
    line = command(state(submitted=True, options={"once": True}))
    assert line == 'spark-submit "$(python -m penstock.pipelines --entry)" archive --once'
