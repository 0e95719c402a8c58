from __future__ import annotations

from penstock.broker.ended import EndedTopics


def test_the_newest_are_kept_each_life_by_itself() -> None:
    ended = EndedTopics(3)
    for identity in ("one", "two"):
        ended.add("a", identity, len(identity))
    ended.add("b", "one", 7)
    assert ended.of({"a", "c"}) == {"a": {"one": 3, "two": 3}}
    ended.add("c", "one", 9)
    assert ended.of({"a", "b", "c"}) == {"a": {"two": 3}, "b": {"one": 7}, "c": {"one": 9}}
