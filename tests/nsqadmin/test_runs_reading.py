"""Reading `_pipelines` node by node: from where it was read last, and only when there is news."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.answering import served
from penstock import limits
from penstock.broker.topics.settings import PIPELINES
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.runs import VANISHED, RunWatch
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import NsqdAddress, Upstream
from penstock.pipelines.runs import encode, parts_of
from spark.fakebroker import FakeBroker

from .test_runs import state as status

broker = served(FakeBroker)


def state(seq: int, run: str = "r1") -> bytes:
    return encode(status(seq, run))


class World:
    """One look after the other; nothing is asked but by a look."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.address = broker.url.removeprefix("http://")
        self.fetcher = Fetcher(limits.FETCH_CONNECT_NS, limits.FETCH_REQUEST_NS, None)
        upstream = Upstream(self.fetcher, (), (self.address,))
        watch: Any = SimpleNamespace(listen=lambda listener: None, latest=Snapshot())
        self.watch = RunWatch(upstream, watch)
        self.runs = self.watch.runs
        self.start_s = 1

    def publish(self, *bodies: bytes) -> None:
        self.broker.topic(PIPELINES).publish(list(bodies))

    async def look(self, error: str = "") -> list[str]:
        """The paths that were asked for."""
        topic = self.broker.topics.get(PIPELINES)
        rows = [{"topic_name": PIPELINES, "message_count": topic.end}] if topic else []
        node = NodeState(
            self.address,
            NsqdAddress("n", "n", 1, 1, ""),
            {"start_time": self.start_s, "topics": rows},
            error=error,
        )
        before = len(self.broker.requests)
        await self.watch._look(Snapshot(1.0, {self.address: node}))
        return [path for _, path, _ in self.broker.requests[before:]]

    def seqs(self) -> dict[str, int]:
        return {run.id: run.state.seq for run in self.runs.all()}


async def test_nobody_is_asked_while_there_is_no_news(broker: FakeBroker) -> None:
    world = World(broker)
    assert await world.look() == []
    world.publish(state(1), state(2))
    assert await world.look() == ["/log/positions", "/log/fetch"]
    assert await world.look() == []
    world.publish(state(3))
    assert await world.look() == ["/log/positions", "/log/fetch"]
    assert broker.requests[-1][2]["from"] == ["2"]
    assert world.seqs() == {"r1": 3}
    world.start_s = 2  # the node has begun anew
    assert await world.look() == ["/log/positions"]
    await world.fetcher.close()


async def test_only_the_newest_are_read_after_a_start(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_RUNS_READ", 3)
    world = World(broker)
    world.publish(*(state(1, f"r{number}") for number in range(10)))
    await world.look()
    assert set(world.seqs()) == {"r7", "r8", "r9"}
    await world.fetcher.close()


async def test_a_topic_that_was_made_again_is_read_from_its_start(broker: FakeBroker) -> None:
    world = World(broker)
    world.publish(state(1), state(2))
    await world.look()
    del broker.topics[PIPELINES]
    broker.topic(PIPELINES, "second").publish([state(1, "r2"), state(9), state(10)])
    await world.look()
    assert world.seqs() == {"r1": 10, "r2": 1}
    await world.fetcher.close()


@pytest.mark.parametrize("what", ["gone", "damaged"])
async def test_unreadable_messages_are_skipped(broker: FakeBroker, what: str) -> None:
    world = World(broker)
    world.publish(state(1, "r1"))
    world.publish(state(1, "r2"))
    topic = broker.topics[PIPELINES]
    if what == "gone":
        topic.earliest = 1
    else:
        topic.damaged = (0, 2)
    await world.look()
    assert set(world.seqs()) == ({"r2"} if what == "gone" else set())
    topic.damaged = None
    world.publish(state(1, "r3"))
    await world.look()
    assert "r3" in world.seqs()
    await world.fetcher.close()


async def test_a_node_that_does_not_answer_says_nothing_about_silence(broker: FakeBroker) -> None:
    world = World(broker)
    world.publish(state(1))  # in 1970, by the node's clock
    await world.look()
    (run,) = world.runs.all()
    assert world.runs.phase(run) == VANISHED
    world.publish(state(2))  # now, whatever that clock says
    await world.look(error="refused")
    assert world.runs.phase(run) == VANISHED
    await world.look()
    assert world.runs.phase(run) == "running"
    await world.fetcher.close()


async def test_a_page_is_read_when_somebody_wants_it(broker: FakeBroker) -> None:
    world = World(broker)
    text = "ä" * (2 * limits.RUN_PART_CHARS + 1)
    parts = [encode(part) for part in parts_of("r1", "html", text)]
    world.publish(parts[2], state(1), *parts[:2])
    assert await world.watch.page("r1", "html") is None
    await world.look()
    assert await world.watch.page("r1", "html") == text
    assert await world.watch.page("r1", "json") is None
    del broker.topics[PIPELINES]
    broker.topic(PIPELINES, "second").publish([b"other"] * 4)
    with pytest.raises(FetchFailed, match="gone"):
        await world.watch.page("r1", "html")
    await world.fetcher.close()


async def test_looks_are_rare_until_somebody_listens(broker: FakeBroker) -> None:
    world = World(broker)
    started: list[int] = []

    async def look(snapshot: Snapshot) -> None:
        started.append(1)

    world.watch._look = look  # type: ignore[method-assign]

    async def snapshot() -> int:
        world.watch._on_snapshot(Snapshot())
        await asyncio.sleep(0)
        return len(started)

    assert [await snapshot(), await snapshot(), await snapshot()] == [1, 1, 1]
    end = world.watch.listen(lambda _: None)
    await asyncio.sleep(0)
    assert [await snapshot(), await snapshot()] == [3, 4]
    end()
    assert await snapshot() == 4
    await world.watch.stop()
    await world.fetcher.close()
