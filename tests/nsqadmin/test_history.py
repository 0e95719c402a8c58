"""Samples go in, minutes come out, also after a restart."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.nsqadmin.attention import findings
from penstock.nsqadmin.history import History, Measures, Recent, Sample
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.upstream import NsqdAddress

DAY_S = 86_400.0
BEGIN_S = 20_000 * 60.0


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path, DAY_S)
    yield made
    made.close()


def snapshot(time_s: float, in_rate: float = 1.0, depth: int = 5) -> Snapshot:
    channel = ChannelState("t", "c", depth=depth, in_rate=in_rate, oldest_s=3.0)
    topic = TopicState("t", in_rate=in_rate, channels={"c": channel})
    return Snapshot(time_s, topics={"t": topic})


def value(values: Measures | None, field: str) -> float | None:
    return None if values is None else getattr(values, field)


def test_a_minute_has_the_mean_of_rates_and_the_last_of_levels(history: History) -> None:
    for second in range(60):
        history.take(snapshot(BEGIN_S + second, in_rate=float(second), depth=second))
    history.take(snapshot(BEGIN_S + 60))
    (first, *_) = history.minutes("t/c", BEGIN_S, BEGIN_S + 60)
    assert value(first.values, "in_rate") == pytest.approx(29.5)
    assert value(first.values, "depth") == 59


def test_an_unchanged_series_is_written_once_and_read_on(history: History) -> None:
    for minute in range(10):
        history.take(snapshot(BEGIN_S + 60 * minute))
    history.flush()
    rows = history._db.execute("SELECT count(*) FROM samples").fetchone()[0]
    assert rows == 3  # the installation, the topic, the channel
    samples = history.minutes("t/c", BEGIN_S, BEGIN_S + 9 * 60)
    assert [value(one.values, "depth") for one in samples] == [5.0] * 10
    later = history.minutes("t/c", BEGIN_S + 5 * 60, BEGIN_S + 9 * 60)
    assert [value(one.values, "depth") for one in later] == [5.0] * 5


def test_old_minutes_go(tmp_path: Path) -> None:
    history = History(tmp_path, 2 * 3600.0)
    history.take(snapshot(BEGIN_S, depth=1))
    for hour in range(1, 6):
        history.take(snapshot(BEGIN_S + 3600 * hour, depth=hour))
    history.close()
    again = History(tmp_path, 2 * 3600.0)
    first = again._db.execute("SELECT min(minute) FROM samples").fetchone()[0]
    assert first > BEGIN_S // 60
    again.close()


def test_the_files_are_private(tmp_path: Path) -> None:
    history = History(tmp_path / "new", DAY_S)
    history.close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "history.db").stat().st_mode & 0o777 == 0o600


def test_internal_topics_are_not_traffic(history: History) -> None:
    now = snapshot(BEGIN_S, in_rate=4.0)
    now.topics["_pipelines"] = TopicState("_pipelines", in_rate=1.0)
    history.take(now)
    (whole,), (own,) = history.recent(""), history.recent("_pipelines")
    assert (value(whole.values, "in_rate"), value(own.values, "in_rate")) == (4.0, 1.0)
    assert now.in_rate == 4.0


def test_series_that_are_gone_leave_nothing_behind(tmp_path: Path) -> None:
    history = History(tmp_path, 2 * 3600.0)
    for hour in range(6):
        topic = TopicState(f"only_{hour}", in_rate=1.0)
        history.take(Snapshot(BEGIN_S + 3600 * hour, topics={topic.name: topic}))
    history.take(snapshot(BEGIN_S + 6 * 3600))
    history.flush()
    names = {row[0] for row in history._db.execute("SELECT name FROM series")}
    assert "only_5" in names
    assert "only_0" not in names
    history.take(Snapshot(BEGIN_S + 6 * 3600 + 60, topics={"only_0": TopicState("only_0")}))
    history.flush()
    last = BEGIN_S + 6 * 3600 + 60
    assert len(history.minutes("only_0", last, last)) == 1
    history.close()


def test_the_window_is_full_however_far_apart_the_looks_are(tmp_path: Path) -> None:
    """A rule about the last minute has to see a whole one."""
    for every_s in (0.9, 1.0, 1.07, 7.3):
        history = History(tmp_path / str(every_s), DAY_S)
        for number in range(int(120 / every_s)):
            taken = snapshot(BEGIN_S + every_s * number, depth=1000 + number)
            taken.topics["t"].channels["c"].finish_rate = 0.0
            history.take(taken)
        window = history.window("t/c")
        assert window[-1].time_s - window[0].time_s >= limits.ADMIN_WINDOW_S
        assert window[-1].time_s - window[0].time_s < 2 * limits.ADMIN_WINDOW_S
        assert [one.state for one in findings(taken, history.window)] == ["no consumers"]
        taken.topics["t"].channels["c"].clients = 1
        assert [one.state for one in findings(taken, history.window)] == ["stuck"]
        history.close()


def test_a_clock_that_is_set_back_ends_no_chart(history: History) -> None:
    for depth, begin_s in ((1, BEGIN_S), (5, BEGIN_S + 3600), (5, BEGIN_S)):
        for minute in range(3):
            history.take(snapshot(begin_s + 60 * minute, depth=depth))
    history.flush()
    window = history.window("t/c")
    assert window[-1].time_s - window[0].time_s >= limits.ADMIN_WINDOW_S
    (*_, last) = history.minutes("t/c", BEGIN_S, BEGIN_S + 120)
    assert value(last.values, "depth") == 5


def test_silence_is_a_gap_and_no_line(history: History) -> None:
    """Also read from the disk, and until somebody answers again."""
    node = NodeState("n:1", NsqdAddress("n", "n", 1, 1, ""))

    def at(time_s: float, error: str) -> Snapshot:
        found = snapshot(time_s)
        found.nodes["n:1"] = replace(node, error=error)
        found.topics["t"].nodes = found.topics["t"].channels["c"].nodes = ["n:1"]
        return found

    for minute, error in enumerate(["", "refused", "refused", ""]):
        history.take(at(BEGIN_S + 60 * minute, error))
    history.flush()
    for series in ("", "t", "t/c", "@n:1"):
        kept = history.minutes(series, BEGIN_S, BEGIN_S + 180)
        for samples in (kept, history.recent(series)):
            assert [one.values is None for one in samples] == [False, True, True, False]


LOOKS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), max_size=40)


@given(LOOKS, st.integers(1, 12), st.integers(0, 50))
def test_compressed_samples_round_trip(
    looks: list[dict[str, int]], kept_s: int, span_s: int
) -> None:
    """As if every sample had been stored."""
    recent = Recent(kept_s, samples_max=1_000)
    plain: dict[str, list[Sample]] = {}
    for time_s, look in enumerate(looks):
        recent.take(float(time_s), {name: Measures(value) for name, value in look.items()})
        plain = {
            name: [*plain.get(name, []), Sample(float(time_s), Measures(value))]
            for name, value in look.items()
        }
    assert recent.sample_count <= sum(map(len, plain.values()))
    for name in "abcd":
        stored = [one for one in plain.get(name, []) if one.time_s >= len(looks) - 1 - kept_s]
        assert recent.samples(name) == stored
        wanted = [one for one in stored if one.time_s >= len(looks) - 1 - span_s]
        assert recent.samples(name, span_s) == wanted


def test_constant_series_take_no_samples() -> None:
    recent = Recent()
    idle = dict.fromkeys((f"t{number}" for number in range(1000)), Measures())
    for second in range(1000):
        recent.take(float(second), idle)
    assert recent.sample_count == 1000
    assert len(recent.samples("t7")) == 301


def test_an_hour_in_which_everything_moves_stays_small() -> None:
    """Each look another value everywhere: fewer looks are kept."""
    recent = Recent(samples_max=20_000)
    names = [f"t{number}" for number in range(1000)]
    most = 0
    for second in range(0, 3600, 10):
        values = Measures(float(second), 1.0)
        recent.take(float(second), dict.fromkeys(names, values))
        most = max(most, recent.sample_count)
    assert 10_000 < most <= 20_000
    assert sum(len(recent.samples(name)) for name in names) == recent.sample_count
    found = recent.samples("t1")
    assert len(found) >= 3
    assert found[-1] == Sample(3590.0, Measures(3590.0, 1.0))
