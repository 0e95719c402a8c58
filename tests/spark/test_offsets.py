"""Rules about offsets: pure, so every case is told in a line."""

import json

import pytest

from cases import each
from penstock.errors import ConfigError, DataLost
from penstock.nsqdapi.calls import LogSpan, TopicSpans
from penstock.spark import offsets
from penstock.spark.offsets import Log, Range
from penstock.spark.options import Bound

A = Log("a", "one", 0)
B = Log("b", "two", 0)
AGAIN = Log("a", "three", 0)


def logs(**topics: tuple[str, int, int]) -> dict[Log, LogSpan]:
    return offsets.spans(
        {
            name: TopicSpans(identity, {0: LogSpan(earliest, end)})
            for name, (identity, earliest, end) in topics.items()
        }
    )


class Losses(list[str]):
    def __call__(self, lost: DataLost) -> None:
        self.append(str(lost))

    def deleted(self, log: Log, offset: int, lost: DataLost, is_back: bool) -> None:
        self.append(str(lost))


def written(where: offsets.Offsets) -> str:
    return json.dumps(offsets.to_document(where))


def test_the_form_is_sorted_and_comes_back() -> None:
    many = {Log("a", "one", number): number for number in (10, 9, 2)}
    text = written({B: 5, **many})
    assert text == (
        '{"topics": {"a": {"identity": "one", "partitions": {"2": 2, "9": 9, "10": 10}}, '
        '"b": {"identity": "two", "partitions": {"0": 5}}}, "version": 1}'
    )
    assert offsets.from_document(json.loads(text)) == {B: 5, **many}
    assert written({**many, B: 5}) == text


@pytest.mark.parametrize("text", ["{}", "[]", '{"version":2,"topics":{}}', '{"version":1}'])
def test_a_foreign_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="version 1"):
        offsets.from_document(json.loads(text))


def test_bounds_are_resolved() -> None:
    topics = logs(a=("one", 5, 20), b=("two", 0, 3))

    def resolve(bound: Bound, latest: bool = False, unnamed: str = "earliest") -> list[int]:
        found = offsets.resolve(bound, topics, lambda log, ms: min(ms, 20), latest, unnamed)
        return [found[A], found[B]]

    assert resolve(Bound(word="earliest")) == [5, 0]
    assert resolve(Bound(word="latest")) == [20, 3]
    assert resolve(Bound(offsets={"": {"a": {0: 7}, "b": {0: -1}}})) == [7, 3]
    assert resolve(Bound(offsets={"": {"a": {0: -2}}})) == [5, 0]
    assert resolve(Bound(time_ms=2)) == [5, 2]
    assert resolve(Bound(time_ms=90), latest=True) == [20, 3]
    with pytest.raises(ConfigError, match="no message at or after"):
        resolve(Bound(time_ms=90))
    assert resolve(Bound(offsets={"": {"a": {0: 9}}}), unnamed="latest") == [9, 3]


def test_a_stream_can_begin_in_a_topic_that_is_there() -> None:
    topics = {"a"}
    for place in (0, -1, -2):
        offsets.check_begin(Bound(offsets={"": {"a": {0: 7}, "b": {0: place}}}), topics)
    offsets.check_begin(Bound(word="latest"), topics)
    with pytest.raises(ConfigError, match=r"b: \{0: 3\}.*there is no such topic"):
        offsets.check_begin(Bound(offsets={"": {"a": {0: 7}, "b": {0: 3}}}), topics)


def test_a_rate_limit_is_shared_by_size() -> None:
    ranges = [Range(A, 0, 90), Range(B, 100, 110)]
    assert offsets.rate_limited(ranges, 1000) == {A: 90, B: 110}
    assert offsets.rate_limited(ranges, 50) == {A: 45, B: 105}
    assert offsets.rate_limited(ranges, 1) == {A: 1, B: 101}  # nobody starves


def test_an_end_never_steps_back() -> None:
    losses = Losses()
    assert offsets.next_end({A: 5}, {A: 9, B: 2}, losses, losses.deleted) == {A: 9, B: 2}
    assert losses == []
    assert offsets.next_end({A: 5}, {A: 3}, losses, losses.deleted) == {A: 5}
    assert offsets.next_end({A: 5, B: 1}, {AGAIN: 3}, losses, losses.deleted) == {AGAIN: 3}
    assert ["ends at 3" in losses[0], "made again" in losses[1], "gone" in losses[2]] == [True] * 3


def planned(start: offsets.Offsets, end: offsets.Offsets, losses: Losses) -> list[Range]:
    topics = logs(a=("one", 5, 20), b=("two", 0, 3))
    return offsets.planned(start, end, topics, losses, losses.deleted)


def test_available_offsets_are_planned_without_losses() -> None:
    losses = Losses()
    assert planned({A: 5, B: 3}, {A: 20, B: 3}, losses) == [Range(A, 5, 20)]
    assert planned({A: 20}, {A: 20, B: 3}, losses) == [Range(B, 0, 3)]
    assert losses == []


@each(
    ("start", "end", "ranges", "reason"),
    [
        ({A: 2}, {A: 9}, [Range(A, 5, 9)], "offsets 2 to 4 are gone"),
        ({A: 1}, {A: 4}, [], "offsets 1 to 3 are gone"),
        ({A: 7}, {A: 25}, [Range(A, 7, 20)], "beyond the end"),
        ({}, {A: 9}, [Range(A, 5, 9)], "begins at 5 instead of 0"),
        ({AGAIN: 2}, {A: 9}, [Range(A, 5, 9)], "deleted and made again"),
        ({AGAIN: 2}, {AGAIN: 9}, [], "gone, or was deleted"),
    ],
)
def test_each_loss_is_told(
    start: offsets.Offsets, end: offsets.Offsets, ranges: list[Range], reason: str
) -> None:
    losses = Losses()
    assert planned(start, end, losses) == ranges
    assert len(losses) == 1
    assert reason in losses[0]


def test_bytes_are_shared_by_what_the_logs_have() -> None:
    ranges = [Range(A, 0, 100), Range(B, 50, 60)]
    asked: list[tuple[str, int, int]] = []

    def after(log: Log, offset: int, length: int) -> int:
        asked.append((log.topic, offset, length))
        return offset + 7

    sizes = {A: 9_000, B: 1_000}
    assert offsets.byte_limited(ranges, sizes, 10_000, after) == {A: 100, B: 60}
    assert asked == []
    assert offsets.byte_limited(ranges, sizes, 1_000, after) == {A: 7, B: 57}
    assert asked == [("a", 0, 900), ("b", 50, 100)]
    ranges = [Range(A, 5, 9), Range(B, 3, 3)]  # a message at least
    assert offsets.byte_limited(ranges, {A: 1 << 30}, 1, lambda *_: 5) == {A: 6, B: 3}
    assert offsets.byte_limited(ranges, {A: 1 << 30}, 1, lambda *_: 99) == {A: 9, B: 3}
