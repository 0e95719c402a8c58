"""Which log a topic of a table is of, and which archive writes it."""

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

from .test_delta_table import SHAPE, location, read, rows, stage

__all__ = ["location"]


def add(location: TableLocation, owner: str, version: int, identity: str = "one") -> bool:
    """A batch of ten messages of topic a."""
    batch = rows(range(version * 10, version * 10 + 10))

    def prepared(known: Properties) -> bool:
        return topic_logs.note(location, owner, [("a", identity)], known)

    return commit(location, SHAPE, owner, version, stage(location, batch), prepared=prepared)


def logs(location: TableLocation) -> dict[str, TopicLog]:
    return dict(topic_logs.known(location))


def files(location: TableLocation) -> list[Path]:
    return sorted(Path(location.root, "_penstock_topics").iterdir())


def test_a_log_is_noted_with_the_first_batch_that_has_messages_of_it(
    location: TableLocation,
) -> None:
    topic_logs.claim(location, "A", ["a", "b"])
    assert logs(location) == {"a": TopicLog((), "A"), "b": TopicLog((), "A")}
    assert add(location, "A", 0)
    assert logs(location)["a"] == TopicLog(("one",), "A")
    before = location.version()
    assert add(location, "A", 1)
    assert location.version() == (before or 0) + 1  # nothing new to be noted


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(location: TableLocation) -> None:
    assert add(location, "A", 0)
    topic_logs.check_identities(logs(location), {"a": "one", "new": "two"}, {"a"})
    for present, topic, output in (
        ({"a": "two"}, "a", "deleted and made again"),
        ({"b": "two"}, "b", "does not say which log"),
    ):
        with pytest.raises(DataLost, match=output):
            topic_logs.check_identities(logs(location), present, {topic})
    assert add(location, "A", 1, "two")  # let in, so offsets are of two logs from now on
    assert logs(location)["a"].identities == ("one", "two")
    for identity in ("one", "two"):
        with pytest.raises(DataLost, match="deleted and made again"):
            topic_logs.check_identities(logs(location), {"a": identity}, {"a"})


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


def test_of_two_that_begin_at_once_one_goes_on(location: TableLocation) -> None:
    seen = topic_logs.known(location)
    topic_logs.claimed(seen, "A", ["a"])
    topic_logs.claimed(seen, "B", ["a"])  # both find the topic free
    topic_logs.claim(location, "A", ["a"])
    with pytest.raises(ConfigError, match=r"topics: 'a'.*the archive A writes this topic"):
        topic_logs.claim(location, "B", ["a"])
    with pytest.raises(ConfigError, match="the archive A writes this topic"):
        add(location, "B", 0)
    assert add(location, "A", 0)
    assert len(read(location)) == 10


def test_a_commit_that_was_prepared_before_the_topic_was_taken_over_is_refused(
    location: TableLocation,
) -> None:
    assert add(location, "A", 0)
    batch, asked = rows(range(10, 20)), 0

    def prepared(known: Properties) -> bool:
        nonlocal asked
        asked += 1
        has_changed = topic_logs.note(location, "A", [("a", "one")], known)
        if asked == 1:  # between the look and the commit
            topic_logs.claim(location, "B", ["a"], takes_over=True)
        return has_changed

    with pytest.raises(ConfigError, match="the archive B writes this topic"):
        commit(location, SHAPE, "A", 1, stage(location, batch), prepared=prepared)
    assert asked == 2
    assert len(read(location)) == 10
    assert add(location, "B", 0)


def test_two_archives_at_once_lose_nothing_of_each_other(location: TableLocation) -> None:
    with ThreadPoolExecutor(4) as pool:
        for owner in "ABCD":
            for n in range(5):
                pool.submit(topic_logs.claim, location, owner, [f"{owner}{n}"])
    assert {topic: log.owner for topic, log in logs(location).items()} == {
        f"{owner}{n}": owner for owner in "ABCD" for n in range(5)
    }


def test_a_crash_between_the_file_and_the_property_changes_nothing(
    location: TableLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_logs.claim(location, "A", ["a"])
    before = location.version()
    with monkeypatch.context() as patched:
        patched.setattr(TableAlterer, "set_table_properties", killed)
        with pytest.raises(KeyboardInterrupt):
            topic_logs.claim(location, "B", ["b"])
    assert (logs(location), location.version()) == ({"a": TopicLog((), "A")}, before)
    assert len(files(location)) == 2
    topic_logs.claim(location, "C", ["b"])
    assert logs(location)["b"].owner == "C"


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_files_that_were_replaced_go_and_one_that_may_yet_be_named_stays(
    location: TableLocation,
) -> None:
    for topic in "abc":
        topic_logs.claim(location, "A", [topic])
    first, second, named = files(location)
    lost = named.with_name("3-lost.parquet")  # the race for the number 3
    coming = named.with_name("4-coming.parquet")
    for path in (lost, coming):
        path.write_bytes(named.read_bytes())
    for path in (second, named, lost, coming):
        os.utime(path, (0, 0))
    assert vacuum(location, 3600) == 2
    assert files(location) == [first, named, coming]
    assert sorted(logs(location)) == ["a", "b", "c"]


def test_thousands_of_topics_do_not_make_metadata_larger(location: TableLocation) -> None:
    topic_logs.claim(location, "A", [f"topic-{n}" for n in range(3000)])
    assert len(logs(location)) == 3000
    assert len("".join(location.properties().values())) < 120


def test_a_copy_of_the_table_without_the_file_says_so(location: TableLocation) -> None:
    topic_logs.claim(location, "A", ["a"])
    files(location)[0].unlink()
    topic_logs._read.cache_clear()
    with pytest.raises(LakeFailed, match=r"_penstock_topics/1-.*copy of the table needs"):
        topic_logs.claim(location, "A", ["a"])
