"""Pages of several nodes' logs, merged by time, and searches that go on. The logs are lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.errors import FetchFailed
from penstock.nsqadmin import criteria
from penstock.nsqadmin.browse import Hunt, Page, Shelf, Span
from penstock.nsqadmin.messages import Extent, Log, Message, PlaceInvalid
from penstock.nsqadmin.upstream import Upstream


class FakeLog(Log):
    """Of messages at the given times; the first offset is `earliest`."""

    def __init__(self, node: str, times: list[int], earliest: int = 0, partition: int = 0) -> None:
        self.node = node
        self.partition = partition
        self.times = times
        self.earliest = earliest
        self.is_down = False

    async def extents(self) -> dict[int, Extent]:
        if self.is_down:
            raise FetchFailed(self.node, "down", 0)
        return {self.partition: Extent("i", self.earliest, self.earliest + len(self.times))}

    async def find(self, text: str) -> int:
        return (await self.extent()).earliest if text == "oldest" else int(text)

    async def walk(
        self, extent: Extent, from_offset: int, to_offset: int
    ) -> AsyncIterator[list[Message]]:
        position = max(from_offset, extent.earliest)
        stop = min(to_offset, extent.end)
        for first in range(position, stop, 7):
            yield [
                Message(
                    offset, self.times[offset - self.earliest], f"{offset:016x}", b"%d" % offset
                )
                for offset in range(first, min(first + 7, stop))
            ]


def shelf(*logs: FakeLog) -> Shelf:
    found = Shelf(Upstream(None, (), ()), [], "t", ())  # type: ignore[arg-type]
    found.logs = {str(log.place): log for log in logs}
    return found


def hunt(count: int = 10, contains: str = "", **more: int) -> Hunt:
    return Hunt(criteria.read(contains), count, **more)


def seen(page: Page) -> list[tuple[str, int]]:
    return [(one.place, one.message.offset) for one in page.lines]


ODD, EVEN = FakeLog("a", list(range(1, 41, 2))), FakeLog("b", list(range(0, 40, 2)))


def test_the_newest_of_two_nodes_and_all_before_nothing_twice() -> None:
    both, found, ends = shelf(ODD, EVEN), [], {"a": 20, "b": 20}
    while True:
        page = asyncio.run(both.back(ends, hunt(7)))
        found = seen(page) + found
        if page.is_end:
            break
        ends = {node: span.first for node, span in page.spans.items()}
    assert found == [pair for offset in range(20) for pair in (("b", offset), ("a", offset))]


def test_onward_through_two_nodes() -> None:
    both, found, offsets = shelf(ODD, EVEN), [], {"a": 0, "b": 0}
    while True:
        page = asyncio.run(both.onward(offsets, hunt(7)))
        found += seen(page)
        if page.is_end:
            break
        offsets = {node: span.following for node, span in page.spans.items()}
    assert found == [pair for offset in range(20) for pair in (("b", offset), ("a", offset))]


def test_a_node_keeps_its_order_although_its_clock_went_back() -> None:
    page = asyncio.run(shelf(FakeLog("a", [5, 1, 3])).page("newest", hunt()))
    assert seen(page) == [("a", 0), ("a", 1), ("a", 2)]


def test_a_page_begins_where_the_log_does() -> None:
    one = shelf(FakeLog("a", list(range(30)), earliest=100))
    page = asyncio.run(one.onward({"a": 0}, hunt(5)))
    assert seen(page) == [("a", 100 + number) for number in range(5)]
    assert not page.is_end
    page = asyncio.run(one.back({"a": 103}, hunt(5)))
    assert [offset for _, offset in seen(page)] == [100, 101, 102]
    assert page.is_end


@pytest.mark.parametrize("is_back", [True, False])
def test_a_search_says_how_far_it_came_and_goes_on(is_back: bool) -> None:
    one = shelf(FakeLog("a", list(range(5000))))
    mine = hunt(10, "123", searched_max=1000)
    found: list[int] = []
    at = {"a": 5000 if is_back else 0}
    for _ in range(20):
        page = asyncio.run((one.back if is_back else one.onward)(at, mine))
        assert mine.searched >= 10
        found += [offset for _, offset in seen(page)]
        span = page.spans["a"]
        at = {"a": span.first if is_back else span.following}
        if page.is_end:
            break
    assert sorted(found) == [offset for offset in range(5000) if "123" in str(offset)]


def test_a_search_can_be_stopped() -> None:
    mine = hunt(10, "nowhere")
    mine.on_progress = lambda told: setattr(told, "is_stopped", told.searched >= 100)
    page = asyncio.run(shelf(FakeLog("a", list(range(5000)))).onward({"a": 0}, mine))
    assert page.lines == ()
    assert not page.is_end
    assert 100 <= mine.searched < 200
    assert page.spans["a"] == Span(0, mine.searched)


def test_a_node_that_is_down_is_named_and_the_other_shown() -> None:
    down = FakeLog("b", [1])
    down.is_down = True
    page = asyncio.run(shelf(ODD, down).onward({"a": 0, "b": 0}, hunt(3)))
    assert seen(page) == [("a", 0), ("a", 1), ("a", 2)]
    assert page.errors == ("b: down",)
    with pytest.raises(FetchFailed):
        asyncio.run(shelf(down).page("newest", hunt()))


def test_an_offset_is_of_one_node() -> None:
    with pytest.raises(PlaceInvalid, match="choose a node"):
        asyncio.run(shelf(ODD, EVEN).page("7", hunt()))
