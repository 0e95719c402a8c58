"""Pages of several nodes' logs, merged by time, and searches that go on. The logs are lists."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import MagicMock

import pytest
from nicegui import ui

from cases import each
from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin import criteria, messages
from penstock.nsqadmin.browse import OffsetSpan, Page, Search, TopicLogs
from penstock.nsqadmin.messages import Extent, InputInvalid, Log, Message
from penstock.nsqadmin.pages.messages import _Browser
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


def topic_logs(*logs: FakeLog) -> TopicLogs:
    found = TopicLogs(Upstream(None, (), ()), [], "t", ())  # type: ignore[arg-type]
    found.by_address = {str(log.address): log for log in logs}
    return found


def search(count: int = 10, contains: str = "", **more: int) -> Search:
    return Search(criteria.read(contains), count, **more)


def seen(page: Page) -> list[tuple[str, int]]:
    return [(one.address, one.message.offset) for one in page.lines]


ODD, EVEN = FakeLog("a", list(range(1, 41, 2))), FakeLog("b", list(range(0, 40, 2)))


@pytest.mark.parametrize("is_back", [True, False])
def test_all_of_two_nodes_by_time_and_nothing_twice(is_back: bool) -> None:
    both, found, at = topic_logs(ODD, EVEN), [], dict.fromkeys("ab", 20 if is_back else 0)
    while True:
        page = asyncio.run(both.read(at, search(7), is_back))
        found = seen(page) + found if is_back else found + seen(page)
        if page.is_end:
            break
        at = {node: span[not is_back] for node, span in page.spans.items()}
    assert found == [pair for offset in range(20) for pair in (("b", offset), ("a", offset))]


def test_a_node_keeps_its_order_although_its_clock_went_back() -> None:
    page = asyncio.run(topic_logs(FakeLog("a", [5, 1, 3])).page("newest", search()))
    assert seen(page) == [("a", 0), ("a", 1), ("a", 2)]


def test_a_page_begins_where_the_log_does() -> None:
    one = topic_logs(FakeLog("a", list(range(30)), earliest=100))
    page = asyncio.run(one.read({"a": 0}, search(5)))
    assert seen(page) == [("a", 100 + number) for number in range(5)]
    assert not page.is_end
    page = asyncio.run(one.read({"a": 103}, search(5), is_back=True))
    assert [offset for _, offset in seen(page)] == [100, 101, 102]
    assert page.is_end


@pytest.mark.parametrize("is_back", [True, False])
def test_a_search_says_how_far_it_came_and_goes_on(is_back: bool) -> None:
    one = topic_logs(FakeLog("a", list(range(5000))))
    mine = search(10, "123", searched_max=1000)
    found: list[int] = []
    at = {"a": 5000 if is_back else 0}
    for _ in range(20):
        page = asyncio.run(one.read(at, mine, is_back))
        assert mine.searched >= 10
        found += [offset for _, offset in seen(page)]
        span = page.spans["a"]
        at = {"a": span.first if is_back else span.following}
        if page.is_end:
            break
    assert sorted(found) == [offset for offset in range(5000) if "123" in str(offset)]


def test_a_search_can_be_stopped() -> None:
    mine = search(10, "nowhere")
    mine.on_progress = lambda answer: setattr(answer, "is_stopped", answer.searched >= 100)
    page = asyncio.run(topic_logs(FakeLog("a", list(range(5000)))).read({"a": 0}, mine))
    assert page.lines == ()
    assert not page.is_end
    assert 100 <= mine.searched <= limits.ADMIN_BACKWARD_MESSAGES
    assert page.spans["a"] == OffsetSpan(0, mine.searched)


def test_a_node_that_is_down_is_named_and_the_other_shown() -> None:
    down = FakeLog("b", [1])
    down.is_down = True
    page = asyncio.run(topic_logs(ODD, down).read({"a": 0, "b": 0}, search(3)))
    assert seen(page) == [("a", 0), ("a", 1), ("a", 2)]
    assert page.errors == ("b: down",)
    with pytest.raises(FetchFailed):
        asyncio.run(topic_logs(down).page("newest", search()))


def test_an_offset_is_of_one_node() -> None:
    with pytest.raises(InputInvalid, match="choose a node"):
        asyncio.run(topic_logs(ODD, EVEN).page("7", search()))


def test_a_look_that_fails_late_hides_nothing_newer() -> None:
    """A node that hangs was chosen before one that answers."""
    shown = MagicMock(_search=Search())
    shown._contains.value = shown._where.value = ""

    async def late(search: Search) -> Page:
        await asyncio.sleep(0.05)
        raise FetchFailed("a", "timed out")

    async def quick(search: Search) -> Page:
        return Page()

    async def both() -> list[bool]:
        return await asyncio.gather(*(_Browser._look(shown, ask) for ask in (late, quick)))

    assert asyncio.run(both()) == [False, True]
    shown._fail.assert_not_called()


def test_a_message_that_could_not_be_read_can_be_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ui, "notify", MagicMock())
    shown = MagicMock()
    shown._logs().by_address = {}
    asyncio.run(_Browser._show_message(shown, "a", 7))
    assert shown._open == ("", -1)


# --- terms that messages are filtered by ---


BODY = (
    b'{"status":"paid","total":12.5,"big":9007199254740993,"ok":true,"at":"2026-11-21T06:00",'
    b'"customer":{"name":"van Gogh"},"items":[{"price":3}],"a.b":1}'
)
MESSAGE = Message(7, 0, "00000000000000ff", BODY, attempts=2, key=b"k 1", headers={"source": "web"})


@each(
    "where",
    [
        "",
        "status=paid",
        "total>12 total<=12.5 total!=12",
        "big=9007199254740993",
        "ok=true",
        "at>2026-11-20",
        'customer.name="van Gogh"',
        "items.0.price>=3",
        "header.source=web",
        "header:source!=mail",
        "key='k 1' attempts=2 size>100",
        "nowhere!=1",
    ],
)
def test_terms_that_hold(where: str) -> None:
    assert criteria.read("", where).hold(MESSAGE)


@each(
    "where",
    ["status=open", "total>12.5", "big=9007199254740992", "ok=1", "nowhere=1", "nowhere<1",
     "items.1.price=3", "items.x=3", "header.source=mail", "status=paid total=1", "trace=0",
     "customer>1", "customer.name.x=1", "total=1" + "0" * 500],
)  # fmt: skip
def test_terms_that_do_not(where: str) -> None:
    assert not criteria.read("", where).hold(MESSAGE)


@each("where", ["paid", "=paid", 'name="open', "a b=1", "!", "a>", "a<=", "x" * 3000])
def test_invalid_terms(where: str) -> None:
    with pytest.raises(InputInvalid):
        criteria.read("", where)


@pytest.mark.parametrize("text", ["ell", "0" * 16, "kv", ""])
def test_text_is_found_in_body_id_and_headers(text: str) -> None:
    message = Message(0, 0, "0" * 16, b"hello", headers={"k": "v"})
    assert criteria.read(text).hold(message)
    assert not criteria.read("nowhere").hold(message)


def test_a_body_that_is_no_json_has_no_fields() -> None:
    message = Message(0, 0, "0" * 16, b"plain")
    assert not criteria.read("", "a=1").hold(message)
    assert criteria.read("plain", "size=5").hold(message)


def test_masked_fields_cannot_be_guessed() -> None:
    shown = messages.masked(MESSAGE, ["total", "source"])
    for guess in ("total=12.5", "total>12", "header.source=web"):
        assert not criteria.read("", guess).hold(shown)
