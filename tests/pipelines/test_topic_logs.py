"""Which log a topic of a table is of, and which archive writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError, DataLost
from penstock.pipelines import topic_logs
from penstock.pipelines.topic_logs import TopicLog
from penstock.spark.delta_table import Place, Properties, commit

from .test_delta_table import SHAPE, read, rows, stage


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(str(tmp_path / "lake"), {})
    place.create(SHAPE, {})
    return place


def add(place: Place, owner: str, version: int, identity: str = "one") -> bool:
    """A batch of ten messages of topic a."""
    batch = rows(range(version * 10, version * 10 + 10))

    def needs(known: Properties) -> Properties:
        return topic_logs.noted(known, owner, [("a", identity)])

    return commit(place, SHAPE, owner, version, stage(place, batch), needs=needs)


def logs(place: Place) -> dict[str, TopicLog]:
    return topic_logs.known(place.properties())


def test_a_log_is_noted_with_the_first_batch_that_has_messages_of_it(place: Place) -> None:
    topic_logs.claim(place, "A", ["a", "b"])
    assert logs(place) == {"a": TopicLog((), "A"), "b": TopicLog((), "A")}
    assert add(place, "A", 0)
    assert logs(place)["a"] == TopicLog(("one",), "A")
    before = place.version()
    assert add(place, "A", 1)
    assert place.version() == (before or 0) + 1  # nothing new to be noted


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(place: Place) -> None:
    assert add(place, "A", 0)
    topic_logs.check_identities(logs(place), {"a": "one", "new": "two"}, {"a"})
    for present, topic, said in (
        ({"a": "two"}, "a", "deleted and made again"),
        ({"b": "two"}, "b", "does not say which log"),
    ):
        with pytest.raises(DataLost, match=said):
            topic_logs.check_identities(logs(place), present, {topic})
    assert add(place, "A", 1, "two")  # let in, so offsets are of two logs from now on
    assert logs(place)["a"].identities == ("one", "two")
    for identity in ("one", "two"):
        with pytest.raises(DataLost, match="deleted and made again"):
            topic_logs.check_identities(logs(place), {"a": identity}, {"a"})


def test_a_second_log_of_a_topic_is_refused_where_one_is_wanted() -> None:
    known = {"penstock.log.a": "one A", "penstock.log.e#ephemeral": "one A"}
    with pytest.raises(DataLost, match=r"topic a .*deleted and made again"):
        topic_logs.noted(known, "A", [("a", "two")], only_one=True)
    assert topic_logs.noted(known, "A", [("a", "one")], only_one=True) == {}
    again = topic_logs.noted(known, "A", [("e#ephemeral", "two"), ("b", "one")], only_one=True)
    assert again == {"penstock.log.b": "one A", "penstock.log.e#ephemeral": "one,two A"}


def test_a_log_is_noted_with_each_nsqd_that_rows_of_it_name() -> None:
    known = {"penstock.log.a": "one A"}
    batch = [("a", topic_logs.noted_as("one", "x:1")), ("a", topic_logs.noted_as("two", "y:1"))]
    fresh = topic_logs.noted(known, "A", batch)
    assert fresh == {"penstock.log.a": "one,one@x:1,two@y:1 A"}
    log = topic_logs.known(fresh)["a"]
    assert (log.identities, log.of("")) == (("one", "two"), {"one"})
    assert (log.of("x:1"), log.brokers("two")) == ({"one"}, {"y:1"})
    assert topic_logs.noted(known, "A", batch[:1], only_one=True)  # it is the same log
    with pytest.raises(DataLost, match="deleted and made again"):
        topic_logs.noted(known, "A", batch[1:], only_one=True)


def test_of_two_that_begin_at_once_one_goes_on(place: Place) -> None:
    seen = place.properties()
    topic_logs.claimed(seen, "A", ["a"])
    topic_logs.claimed(seen, "B", ["a"])  # both find the topic free
    topic_logs.claim(place, "A", ["a"])
    with pytest.raises(ConfigError, match=r"topics: 'a'.*the archive A writes this topic"):
        topic_logs.claim(place, "B", ["a"])
    with pytest.raises(ConfigError, match="the archive A writes this topic"):
        add(place, "B", 0)
    assert add(place, "A", 0)
    assert len(read(place)) == 10


def test_a_commit_that_was_prepared_before_the_topic_was_taken_over_is_refused(
    place: Place,
) -> None:
    assert add(place, "A", 0)
    batch, asked = rows(range(10, 20)), 0

    def needs(known: Properties) -> Properties:
        nonlocal asked
        asked += 1
        missing = topic_logs.noted(known, "A", [("a", "one")])
        if asked == 1:  # between the look and the commit
            topic_logs.take_over(place, "B", ["a"])
        return missing

    with pytest.raises(ConfigError, match="the archive B writes this topic"):
        commit(place, SHAPE, "A", 1, stage(place, batch), needs=needs)
    assert asked == 2
    assert len(read(place)) == 10
    assert add(place, "B", 0)
