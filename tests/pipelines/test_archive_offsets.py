"""Where each log goes on by what a table has, where that is a guess, and what is lost."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.errors import ConfigError, DataLost
from penstock.nsqdapi.calls import LogSpan, Positions
from penstock.pipelines import archive, topic_logs
from penstock.pipelines.archive_offsets import Beginning, Reached, following
from penstock.pipelines.checkpoints import Starting, new_application
from penstock.pipelines.progress import Progress
from penstock.pipelines.topic_logs import TopicLog
from penstock.spark.brokers import BrokerLogs
from penstock.spark.delta_table import Properties, TableLocation, commit
from penstock.spark.offsets import Log
from spark.fakebroker import FakeBroker

from .sample import defaults
from .test_delta_table import SHAPE, rows, stage

A, B = Log("orders", "one", 0, "a:1"), Log("orders", "two", 0, "b:1")
BOTH: Reached = {("orders", "a:1", 0): 4, ("orders", "b:1", 0): 7}
OWN = new_application("archive")


def known(*logs: str) -> dict[str, TopicLog]:
    return {"orders": TopicLog(logs, "owner")}


def found(
    reached: Reached,
    notes: dict[str, TopicLog],
    present: list[Log],
    gone: tuple[str, ...] = (),
    ended: Mapping[str, Mapping[int, int]] | None = None,
    nodes: tuple[str, ...] = (),
) -> dict[Log, int]:
    def refused(lost: DataLost) -> None:
        raise lost

    ends: Any = {"orders": ended or {}}
    answers = {"a:1": Positions({}, nodes=nodes)}
    logs = BrokerLogs(dict.fromkeys(present, LogSpan(0, 9)), answers, frozenset(), frozenset())
    return following(reached, notes, logs, gone, ends, refused)


def test_an_nsqd_that_moved_is_known_by_its_log() -> None:
    moved = B._replace(broker="c:1")
    assert found(BOTH, known("one@a:1", "two@b:1"), [A, moved]) == {A: 5, moved: 8}
    twice = {**BOTH, ("orders", "c:1", 0): 12}
    notes = known("one@a:1", "two@b:1", "two@c:1")
    assert found(twice, notes, [A, moved]) == {A: 5, moved: 13}


def test_brokers_that_are_given_up_are_left_out() -> None:
    notes = known("one@a:1", "two@b:1")
    assert found(BOTH, notes, [A], ("b:1",)) == {A: 5}
    with pytest.raises(DataLost, match=r"nsqd b:1 has messages of it .* is nowhere now"):
        found(BOTH, notes, [A])


def test_a_log_that_was_deleted_is_no_loss_when_the_table_has_all_of_it() -> None:
    notes = known("one@a:1", "two@b:1")
    assert found(BOTH, notes, [A], ended={"two": {0: 8, 1: 0}}) == {A: 5}
    for ends, lost in (({0: 9}, "offsets 8 to 8"), ({0: 8, 1: 3}, "partition 1.*offsets 0 to 2")):
        with pytest.raises(DataLost, match=rf"{lost} were not archived.*onTopicDeleted"):
            found(BOTH, notes, [A], ended={"two": ends})


def test_a_topic_of_a_cluster_is_back_at_any_node() -> None:
    reached, notes = {("orders", "b:1", 0): 7}, known("two@b:1")
    assert found(reached, notes, [A], ended={"two": {0: 8}}) == {}
    with pytest.raises(DataLost, match="deleted and made again"):
        found(reached, notes, [A], ended={"two": {0: 8}}, nodes=("a:1", "b:1"))


@each(
    ("reached", "logs", "output"),
    [
        (BOTH, ("one@a:1", "two"), "does not say which log"),  # of two no broker is noted
        (BOTH, ("one", "two", "one@a:1"), "does not say which log"),
        (BOTH, ("old", "one@a:1", "two@b:1"), "does not say which log"),  # whose old was is unknown
        ({("orders", "", 0): 9}, ("one", "old"), "does not say which log"),
        (BOTH, ("one@a:1", "two@b:1", "old@b:1"), "does not say which log"),  # made again, let in
        (BOTH, ("one@a:1", "old@b:1"), "deleted and made again"),
    ],
)
def test_a_guess_is_refused(reached: Reached, logs: tuple[str, ...], output: str) -> None:
    with pytest.raises(DataLost, match=output):
        found(reached, known(*logs), [A, B], ended={"old": {0: 8}})


# --- one nsqd, and a table with ten messages of topic a that is deleted ---


class Lost:
    def __init__(self, table: Path, owner: str) -> None:
        self.location = TableLocation(str(table), {})
        self.location.create(SHAPE, {})
        self.output = io.StringIO()

        def prepared(known: Properties) -> bool:
            return topic_logs.note(self.location, owner, [("a", "one")], known)

        staged = stage(self.location, rows(range(10)))
        commit(self.location, SHAPE, owner, 0, staged, prepared=prepared)

    def begin(self, broker: FakeBroker, has_checkpoint: bool = False, **changed: Any) -> Beginning:
        given = {"url": broker.url, "table": self.location.uri, "recover": True, **changed}
        settings = defaults(archive.SETTINGS, **given)
        return Beginning(
            settings, self.location, Progress("archive", 0, self.output), has_checkpoint
        )


@each(
    ("names", "ends", "reason"),
    [
        ({"pattern": "a|b"}, {"one": 12}, "offsets 10 to 11 were not archived"),
        ({"topics": ("a", "b")}, {"one": 12}, "offsets 10 to 11 were not archived"),
        ({"pattern": "a|b"}, {}, "nsqd does not know where it ended"),
        ({"pattern": "a|b"}, {"other": 10}, "nsqd does not know where it ended"),
        ({"pattern": "a|b"}, {"one": 10}, ""),
        ({"topics": ("a", "b")}, {"one": 10}, ""),
        ({"pattern": "b"}, {"one": 12}, ""),
    ],
)
def test_a_topic_that_is_deleted_is_not_passed_over(
    tmp_path: Path, names: dict[str, Any], ends: dict[str, int], reason: str
) -> None:
    lost = Lost(tmp_path / "lake", OWN)
    with FakeBroker() as broker:
        broker.topic("b").publish([b"x"] * 3)
        broker.ended = {"a": ends}
        if not reason:
            assert lost.begin(broker, **names).starting()["b"] == {"0": 0}
            return
        with pytest.raises(DataLost, match=rf"topic a .*{reason}.*onTopicDeleted=ignore"):
            lost.begin(broker, **names).starting()
        assert "b" in lost.begin(broker, on_topic_deleted="ignore", **names).starting()
        assert reason in lost.output.getvalue()


def test_a_lost_checkpoint_is_no_beginning(tmp_path: Path) -> None:
    lost = Lost(tmp_path / "lake", OWN)
    with FakeBroker() as broker:
        broker.topic("a", "one").publish([b"x"] * 12)
        broker.topic("late").publish([b"x"] * 2)
        with pytest.raises(ConfigError, match=r"messages of a, .*run with --recover to go on"):
            lost.begin(broker, topics=("a",), recover=False).starting()
        beginning = lost.begin(broker, topics=("a", "late"))
        assert beginning.starting() == {"a": {"0": 10}, "late": {"0": 0}}
    assert "recovering: a goes on at offset 10" in lost.output.getvalue()


def test_a_deleted_topic_of_another_archive_is_named_and_left_to_it(tmp_path: Path) -> None:
    lost = Lost(tmp_path / "lake", new_application("other"))
    with FakeBroker() as broker:
        broker.ended = {"a": {"one": 12}}
        beginning = lost.begin(broker, pattern=".*")
        assert (beginning.starting(), beginning.owned) == ({}, set())
    assert "topic a is not there" in lost.output.getvalue()


@each(
    ("starting", "lives", "lost"),
    [
        ({"a": {"0": 7}}, {"one": 9}, "offsets 7 to 8"),
        ({"a": {"0": 7}}, {"one": 7}, ""),
        ({"a": {"0": 7}}, {}, "does not know"),
        ({}, {"one": 9}, ""),
    ],
)
def test_a_checkpoint_without_a_batch_does_not_pass_over_a_topic(
    tmp_path: Path, starting: Starting, lives: dict[str, int], lost: str
) -> None:
    made = Lost(tmp_path / "lake", OWN)
    with FakeBroker() as broker:
        broker.ended = {"a": lives}
        beginning = made.begin(broker, True, pattern=".*", recover=False)
        if lost:
            with pytest.raises(DataLost, match=lost):
                beginning.of_checkpoint(starting, has_batches=False)
        else:
            assert beginning.of_checkpoint(starting, has_batches=False) == {}
        assert beginning.of_checkpoint(json.loads(json.dumps(starting)), has_batches=True) == {}


def test_a_topic_that_is_named_and_comes_later_may_have_had_another_life(tmp_path: Path) -> None:
    """Nsqd knows where that one ended; the archive has never seen it."""
    made = Lost(tmp_path / "lake", OWN)
    topic_logs.claim(made.location, OWN, ["late"])
    with FakeBroker() as broker:
        broker.topic("a", "one").publish([b"x"] * 10)
        broker.ended = {"late": {"old": 50}}
        for recovers in (True, False):
            beginning = made.begin(broker, not recovers, topics=("a", "late"), recover=recovers)
            starting = beginning.starting() if recovers else {"a": {"0": 10}}
            assert beginning.of_checkpoint(starting, has_batches=False) == {"a": {"0": 10}}


def test_topics_of_a_new_table_share_files_where_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAKE_TOPICS_APART_MAX", 3)
    with FakeBroker() as broker:

        def parts(table: Any = None, **given: Any) -> tuple[str, ...]:
            given = {"url": broker.url, "table": "any", "pattern": ".*", **given}
            settings = defaults(archive.SETTINGS, **given)
            return archive.shape_of(settings, (), None, table).partition_by

        for topic in ("a", "b"):
            broker.topic(topic).publish([b"x"])
        assert parts() == ("topic", "date")
        assert parts(share_files=True) == ("date",)
        broker.topic("c").publish([b"x"])
        assert parts() == ("date",)
        assert parts(share_files=False) == ("topic", "date")
        assert parts(Lost(tmp_path / "lake", OWN).location.open()) == ("topic", "date")  # as made
