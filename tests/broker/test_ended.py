from __future__ import annotations

from penstock.broker.ended import EndedTopics


def test_the_newest_are_kept_each_life_by_itself() -> None:
    ended = EndedTopics(3)
    for identity in ("one", "two"):
        ended.add("a", identity, [len(identity)])
    ended.add("b", "one", [7])
    assert ended.of({"a", "c"}) == {"a": {"one": 3, "two": 3}}
    ended.add("c", "one", [9])
    assert ended.of({"a", "b", "c"}) == {"a": {"two": 3}, "b": {"one": 7}, "c": {"one": 9}}


def test_the_logs_of_all_partitions_are_kept() -> None:
    ended = EndedTopics()
    ended.add("a", "one", [4, 0, 36])
    assert ended.of({"a"}) == {"a": {"one": 4}}
    assert ended.logs_of({"a", "b"}) == {"a": {"one": {0: 4, 1: 0, 2: 36}}}
