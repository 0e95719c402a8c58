"""Which log a topic of a table is of, and which archive writes it."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake.table import TableAlterer

from penstock.errors import ConfigError, DataLost, LakeFailed
from penstock.pipelines import topic_logs
from penstock.pipelines.maintenance import vacuum
from penstock.pipelines.topic_logs import TopicLog
from penstock.spark.delta_table import Properties, TableLocation, commit

from .test_delta_table import SHAPE, place, read, rows, stage

__all__ = ["place"]


def add(place: TableLocation, owner: str, version: int, identity: str = "one") -> bool:
    """A batch of ten messages of topic a."""
    batch = rows(range(version * 10, version * 10 + 10))

    def prepared(known: Properties) -> bool:
        return topic_logs.note(place, owner, [("a", identity)], known)

    return commit(place, SHAPE, owner, version, stage(place, batch), prepared=prepared)


def logs(place: TableLocation) -> dict[str, TopicLog]:
    return dict(topic_logs.known(place))


def files(place: TableLocation) -> list[Path]:
    return sorted(Path(place.root, "_penstock_topics").iterdir())


def test_a_log_is_noted_with_the_first_batch_that_has_messages_of_it(place: TableLocation) -> None:
    topic_logs.claim(place, "A", ["a", "b"])
    assert logs(place) == {"a": TopicLog((), "A"), "b": TopicLog((), "A")}
    assert add(place, "A", 0)
    assert logs(place)["a"] == TopicLog(("one",), "A")
    before = place.version()
    assert add(place, "A", 1)
    assert place.version() == (before or 0) + 1  # nothing new to be noted


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(place: TableLocation) -> None:
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
    known = {"a": TopicLog(("one",), "A"), "e#ephemeral": TopicLog(("one",), "A")}
    with pytest.raises(DataLost, match=r"topic a .*deleted and made again"):
        topic_logs.noted(known, "A", [("a", "two")], only_one=True)
    assert topic_logs.noted(known, "A", [("a", "one")], only_one=True) == {}
    again = topic_logs.noted(known, "A", [("e#ephemeral", "two"), ("b", "one")], only_one=True)
    both = TopicLog(("one", "two"), "A")
    assert again == {"b": TopicLog(("one",), "A"), "e#ephemeral": both}


def test_a_log_is_noted_with_each_nsqd_that_rows_of_it_name() -> None:
    known = {"a": TopicLog(("one",), "A")}
    batch = [("a", topic_logs.noted_as("one", "x:1")), ("a", topic_logs.noted_as("two", "y:1"))]
    log = topic_logs.noted(known, "A", batch)["a"]
    assert log == TopicLog(("one", "one@x:1", "two@y:1"), "A")
    assert (log.identities, log.of("")) == (("one", "two"), {"one"})
    assert (log.of("x:1"), log.brokers("two")) == ({"one"}, {"y:1"})
    assert topic_logs.noted(known, "A", batch[:1], only_one=True)  # it is the same log
    with pytest.raises(DataLost, match="deleted and made again"):
        topic_logs.noted(known, "A", batch[1:], only_one=True)


def test_of_two_that_begin_at_once_one_goes_on(place: TableLocation) -> None:
    seen = topic_logs.known(place)
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
    place: TableLocation,
) -> None:
    assert add(place, "A", 0)
    batch, asked = rows(range(10, 20)), 0

    def prepared(known: Properties) -> bool:
        nonlocal asked
        asked += 1
        has_changed = topic_logs.note(place, "A", [("a", "one")], known)
        if asked == 1:  # between the look and the commit
            topic_logs.claim(place, "B", ["a"], takes_over=True)
        return has_changed

    with pytest.raises(ConfigError, match="the archive B writes this topic"):
        commit(place, SHAPE, "A", 1, stage(place, batch), prepared=prepared)
    assert asked == 2
    assert len(read(place)) == 10
    assert add(place, "B", 0)


def test_two_archives_at_once_lose_nothing_of_each_other(place: TableLocation) -> None:
    with ThreadPoolExecutor(4) as pool:
        for owner in "ABCD":
            for n in range(5):
                pool.submit(topic_logs.claim, place, owner, [f"{owner}{n}"])
    assert {topic: log.owner for topic, log in logs(place).items()} == {
        f"{owner}{n}": owner for owner in "ABCD" for n in range(5)
    }


def test_a_crash_between_the_file_and_the_property_changes_nothing(
    place: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_logs.claim(place, "A", ["a"])
    before = place.version()
    with monkeypatch.context() as patched:
        patched.setattr(TableAlterer, "set_table_properties", killed)
        with pytest.raises(KeyboardInterrupt):
            topic_logs.claim(place, "B", ["b"])
    assert (logs(place), place.version()) == ({"a": TopicLog((), "A")}, before)
    assert len(files(place)) == 2
    topic_logs.claim(place, "C", ["b"])
    assert logs(place)["b"].owner == "C"


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_files_that_were_replaced_go_and_one_that_may_yet_be_named_stays(
    place: TableLocation,
) -> None:
    for topic in "abc":
        topic_logs.claim(place, "A", [topic])
    first, second, named = files(place)
    lost = named.with_name("3-lost.parquet")  # the race for the number 3
    coming = named.with_name("4-coming.parquet")
    for path in (lost, coming):
        path.write_bytes(named.read_bytes())
    for path in (second, named, lost, coming):
        os.utime(path, (0, 0))
    assert vacuum(place, 3600) == 2
    assert files(place) == [first, named, coming]
    assert sorted(logs(place)) == ["a", "b", "c"]


def test_thousands_of_topics_do_not_make_metadata_larger(place: TableLocation) -> None:
    topic_logs.claim(place, "A", ["a"])
    assert add(place, "A", 0)
    few = metadata_bytes(place)
    topic_logs.claim(place, "A", [f"topic-{n}" for n in range(3000)])
    assert len(logs(place)) == 3001
    assert abs(metadata_bytes(place) - few) < 10


def metadata_bytes(place: TableLocation) -> int:
    """Of the last change of the metadata, as the log of the table has it."""
    actions = [
        json.loads(line)
        for path in sorted(Path(place.root, "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    return len(json.dumps([one for one in actions if "metaData" in one][-1]))


def test_a_copy_of_the_table_without_the_file_says_so(place: TableLocation) -> None:
    topic_logs.claim(place, "A", ["a"])
    files(place)[0].unlink()
    topic_logs._read.cache_clear()
    with pytest.raises(LakeFailed, match=r"_penstock_topics/1-.*copy of the table needs"):
        topic_logs.claim(place, "A", ["a"])
