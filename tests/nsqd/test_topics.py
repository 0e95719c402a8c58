"""Topics are made after the lookups, once, and everybody who waits is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import limits
from penstock.broker.ports import NewTopic
from penstock.errors import (
    ChangeUnknown,
    FetchFailed,
    NameInvalid,
    NotFound,
    PartitionElsewhere,
    PenstockError,
    Refused,
)
from penstock.nsqd.topics import ANY, TopicMaker


class FakeTopic:
    def __init__(self, name: str) -> None:
        self.name = name
        self.channels: list[str] = []

    def channel(self, name: str) -> None:
        self.channels.append(name)


class FakeBroker:
    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.shapes: dict[str, tuple[int, bool, bool]] = {}
        self.context = SimpleNamespace(exiting=False)
        self.replica_host: Any = None  # it is in no cluster

    def default_partitions(self, name: str) -> int:
        return 4

    def topic(
        self, name: str, partitions: int = 0, extended: bool = False, registered: bool = False
    ) -> FakeTopic:
        if self.context.exiting:
            raise Refused("exiting")
        self.shapes.setdefault(name, (partitions, extended, registered))
        return self.topics.setdefault(name, FakeTopic(name))


class FakeFetcher:
    """Answers by URL; an answer that is an exception is raised. Waits for `release`."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.release = asyncio.Event()

    async def get_json(self, url: str) -> Any:
        self.asked.append(url)
        await self.release.wait()
        answer = self.answers[url.removeprefix("http://").partition("/")[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    def __init__(self, **answers: Any) -> None:
        self.broker = FakeBroker()
        self.fetcher = FakeFetcher(answers)
        self.lookups = list(answers)
        self.turns = 0
        self.found: list[Any] = []
        self.faults: list[Exception] = []
        self.maker = TopicMaker(
            self.broker,  # type: ignore[arg-type]
            self.fetcher,  # type: ignore[arg-type]
            lambda: self.lookups,
            self._soon,
            self.faults.append,
        )

    def _soon(self) -> None:
        self.turns += 1

    def ask(self, name: str, shape: NewTopic = ANY) -> None:
        self.maker.topic(name, self.found.append, shape)

    async def wait(self) -> None:
        self.fetcher.release.set()
        while self.maker._tasks._running:
            await asyncio.sleep(0)


async def test_at_once_without_lookupds_and_for_topics_that_are_there() -> None:
    world = World()
    world.ask("t")
    assert world.found == [world.broker.topics["t"]]
    world.lookups = ["a:1"]
    world.ask("t")
    assert len(world.found) == 2
    assert world.maker.at_once("t") is world.found[0]
    assert world.fetcher.asked == []


async def test_channels_of_all_nsqlookupds_are_created_before_the_answer() -> None:
    world = World(
        a={"channels": ["c1", "c2", "gone#ephemeral"]},
        b={"channels": ["c2", "c3", "bad$", 7, "\ud800", "x" * 65]},
        c=FetchFailed("http://c", "timed out"),
        d=["no", "object"],
        e={"channels": None},
    )
    world.ask("t#ephemeral")
    await asyncio.sleep(0)
    assert world.found == []
    assert world.broker.topics == {}
    await world.wait()
    (topic,) = world.found
    assert topic.channels == ["c1", "c2", "c3"]
    assert sorted(world.fetcher.asked) == [
        f"http://{a}/channels?topic=t%23ephemeral" for a in "abcde"
    ]
    assert world.turns == 1


async def test_failed_lookups_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    many = {"channels": [f"c{n}" for n in range(limits.LOOKUP_CHANNELS_MAX + 1)]}
    world = World(a=FetchFailed("http://a/channels", "timed out"), b=many, c={"channels": [7]})
    world.ask("t")
    await world.wait()
    assert len(world.found[0].channels) == limits.LOOKUP_CHANNELS_MAX
    text = caplog.text
    assert "failed to query nsqlookupd for channels of t: http://a/channels: timed out" in text
    assert "nsqlookupd b: 1001 channels are too many for one topic" in text
    assert "nsqlookupd c: 1 bad channel names" in text


async def test_a_shape_that_is_asked_for_while_it_is_waited_for_is_the_topics() -> None:
    """A publisher was first, and wants none."""
    world = World(a={"channels": []})
    world.ask("t")
    world.ask("t", NewTopic(4, True, True))
    world.ask("t", NewTopic(5))
    world.ask("u")
    await world.wait()
    assert world.broker.shapes == {"t": (4, True, True), "u": (0, False, False)}


async def test_errors_reach_waiting_callers() -> None:
    world = World(a={"channels": []})
    world.ask("bad$")
    assert isinstance(world.found.pop(), NameInvalid)
    world.ask("t")
    world.broker.context.exiting = True
    world.ask("u")
    refused: PenstockError = world.found.pop()
    assert isinstance(refused, Refused)
    await world.wait()
    assert isinstance(world.found.pop(), Refused)
    with pytest.raises(Refused):
        world.maker.at_once("v")


@pytest.mark.parametrize("fault", [NotFound("topic", "t"), RuntimeError("a bug")])
async def test_a_fault_reaches_waiting_callers_too(fault: Exception) -> None:
    world = World(a={"channels": []})

    def fail(name: str, *shape: object) -> FakeTopic:
        raise fault

    world.broker.topic = fail  # type: ignore[method-assign]
    world.ask("t")
    await world.wait()
    assert isinstance(world.found[0], PenstockError)
    assert world.faults == ([] if isinstance(fault, PenstockError) else [fault])


async def test_a_stop_ends_the_waiting() -> None:
    world = World(a={"channels": []})
    world.ask("t")
    await asyncio.sleep(0)
    await world.maker.stop()
    assert isinstance(world.found[0], Refused)
    assert world.broker.topics == {}


# --- in a cluster ---


class FakeMetadata:
    """Answers when the test says so, or at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, NewTopic]] = []
        self.waiting: list[Any] = []
        self.at_once: list[PenstockError | None] = []

    def make_topic(self, topic: str, wanted: NewTopic, done: Any) -> None:
        self.asked.append((topic, wanted))
        if self.at_once:
            done(self.at_once[0])
        else:
            self.waiting.append(done)


class ClusterWorld(World):
    def __init__(self) -> None:
        super().__init__(a={"channels": ["old"]})
        self.metadata = FakeMetadata()
        self.broker.replica_host = SimpleNamespace(
            remote_topic=lambda name: None, metadata=self.metadata
        )


async def test_a_cluster_node_asks_its_metadata_and_no_nsqlookupd() -> None:
    world = ClusterWorld()
    world.ask("t", NewTopic(2, extended=True))
    world.ask("t")
    assert world.metadata.asked == [("t", NewTopic(2, extended=True))]
    assert (world.found, world.broker.topics) == ([], {})
    topic = world.broker.topics["t"] = FakeTopic("t")  # it has come true here
    world.metadata.waiting[0](None)
    assert world.found == [topic, topic]
    assert world.turns == 1
    world.ask("t")
    assert world.found == [topic] * 3
    assert len(world.metadata.asked) == 1
    assert world.fetcher.asked == []


async def test_each_caller_gets_the_reason_of_the_cluster() -> None:
    world = ClusterWorld()
    world.ask("t")
    world.ask("t")
    assert world.metadata.asked == [("t", NewTopic(4))]
    unknown = ChangeUnknown("topic t", "ask again")
    world.metadata.waiting[0](unknown)
    assert world.found == [unknown, unknown]


async def test_a_topic_that_other_nodes_have_is_named_as_such() -> None:
    world = ClusterWorld()
    world.ask("later")
    world.metadata.waiting[0](None)
    world.metadata.at_once = [None]
    world.ask("now")
    world.metadata.at_once = [Refused("no")]
    world.ask("never")
    kinds = [type(found) for found in world.found]
    assert kinds == [PartitionElsewhere, PartitionElsewhere, Refused]


async def test_topics_of_one_node_do_not_go_to_the_cluster() -> None:
    world = ClusterWorld()
    world.lookups = []
    for name in ("t#ephemeral", "_trace"):
        world.ask(name)
    assert world.found == [world.broker.topics["t#ephemeral"], world.broker.topics["_trace"]]
    world.ask("no such name!")
    assert isinstance(world.found[-1], NameInvalid)
    world.broker.context.exiting = True
    world.ask("t")
    assert str(world.found[-1]) == "exiting"
    assert world.metadata.asked == []
