"""How often an nsqd is asked, and that one that hangs holds up nobody."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cases import within
from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin.attention import findings
from penstock.nsqadmin.noderecords import NodeRecords, words_about
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.store import Store
from penstock.nsqadmin.upstream import NsqdAddress, Upstream
from penstock.nsqadmin.watch import Watch, pause_s

from .conftest import Installation


@pytest.mark.parametrize(
    ("took_s", "pause"),
    [((), 1.0), ((0.001,), 1.0), ((0.1, 0.1), 5.0), ((60.0,), limits.ADMIN_POLL_S_MAX),
     ((0.01, 0.01, 2.0), 1.0)],
)  # fmt: skip
def test_an_answer_takes_no_more_than_a_fiftieth_of_the_time(
    took_s: tuple[float, ...], pause: float
) -> None:
    """One slow answer among quick ones slows nothing."""
    state = NodeState("a:1", NsqdAddress("", "a:1", 0, 0, ""), took_s=took_s)
    assert pause_s(1.0, state) == pytest.approx(pause)


class Nodes(Upstream):
    """Nodes "a" and "b", known to a nsqlookupd, and topics on them. Those in `hung` do not answer,
    those in `failed` say no."""

    def __init__(self) -> None:
        super().__init__(None, ("lookupd",), ())  # type: ignore[arg-type]
        self.count = 0
        self.asked: list[str] = []
        self.hung: set[str] = set()
        self.failed: set[str] = set()
        self.gone: set[str] = set()  # nsqlookupd knows them no more
        self.missed = ""
        self.is_silent = False  # nsqlookupd
        self.clusters: dict[str, Any] = {}  # what nodes say of theirs; others are of none
        self.asked_for_cluster: list[str] = []

    async def producers(self) -> tuple[list[NsqdAddress], str]:
        while self.is_silent:
            await asyncio.sleep(0.01)
        topics = (("both", False), ("orders", False))
        found = [NsqdAddress(name, name, 0, 1, "1", topics=topics) for name in "ab"]
        return [one for one in found if one.address not in self.gone], self.missed

    async def topics(self) -> tuple[list[str], str]:
        return ["both", "idle", "orders"], ""

    async def document(self, address: str, path: str, query: Any = None) -> dict[str, Any]:
        assert path == "/cluster"
        self.asked_for_cluster.append(address)
        if address not in self.clusters:
            raise FetchFailed(address, "NOT_FOUND", 404)
        found: dict[str, Any] = self.clusters[address]
        return found

    async def light_stats(self, address: str) -> dict[str, Any]:
        self.asked.append(address)
        while address in self.hung:
            await asyncio.sleep(0.01)
        if address in self.failed:
            raise FetchFailed(address, "timed out")
        self.count += 10
        names = ("both", "orders") if address == "b:1" else ("both",)
        return {"start_time": 1, "topics": [
            {"topic_name": name, "message_count": self.count, "paused": address == "b:1",
             "depth": 7, "channels": []} for name in names
        ]}  # fmt: skip


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[Watch, Nodes]]:
    upstream = Nodes()
    with TemporaryDirectory() as path, closing(Store(Path(path))) as store:
        watch = Watch(upstream, limits.SECOND // 100, NodeRecords(store))
        yield watch, upstream
        await watch.stop()


async def looks(watch: Watch, until: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not until():
            await watch.look()
            await asyncio.sleep(0.01)


@within(watching, 2)
async def test_any_node_describes_the_cluster(
    watch: Watch, upstream: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_DISCOVERY_S", 0.02)
    upstream.clusters["b:1"] = {"cluster": {"name": "c"}, "nodes": [], "partitions": []}
    asked = upstream.asked_for_cluster
    await looks(watch, lambda: asked.count("b:1") > 2)
    assert watch.latest.cluster.name == "c"
    assert asked.count("a:1") == 1  # it is of none until it starts again
    upstream.clusters["b:1"] = {"something": "else"}
    asked.clear()
    await looks(watch, lambda: "b:1" in asked)
    await watch.look()
    assert watch.latest.cluster.name == "c"


@within(watching, 2)
async def test_a_hanging_node_does_not_slow_the_others(
    watch: Watch, upstream: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_LOOK_S", 0.05)
    monkeypatch.setattr(limits, "ADMIN_STALE_S", 0.2)
    await watch.look()
    upstream.hung.add("b:1")
    upstream.asked.clear()
    await looks(watch, lambda: upstream.asked.count("a:1") > 5)
    await looks(watch, lambda: not watch.latest.nodes["b:1"].can_be_asked)
    assert upstream.asked.count("b:1") == 1  # it is not asked again while it hangs
    stale, fresh = watch.latest.nodes["b:1"], watch.latest.nodes["a:1"]
    assert (stale.can_be_asked, fresh.can_be_asked) == (False, True)
    assert 0.2 < stale.stale_s < 5
    topics = watch.latest.topics
    assert topics["orders"].stale_s == topics["both"].stale_s == stale.stale_s
    assert topics["orders"].nodes == ["b:1"]  # what it said last is still there
    assert (topics["both"].paused_on, topics["both"].is_paused_partly) == (["b:1"], True)
    upstream.hung.clear()
    await looks(watch, lambda: not any(one.stale_s for one in watch.latest.nodes.values()))


@within(watching, 2)
async def test_a_rate_holds_until_the_next_answer(
    watch: Watch, upstream: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_LOOK_S", 0.05)
    await watch.look()
    async with asyncio.timeout(20):  # a busy machine misses the time of a look
        while not watch.latest.nodes["b:1"].in_rate:
            await asyncio.sleep(0.25)
            await watch.look()
    rate = watch.latest.nodes["b:1"].in_rate
    upstream.hung.add("b:1")
    await asyncio.sleep(0.02)
    await watch.look()  # asks a and b
    assert watch.latest.nodes["b:1"].in_rate == rate


@within(watching, 2)
async def test_silence_is_no_absence(watch: Watch, upstream: Nodes) -> None:
    """A node that has never answered may have what is registered for it."""
    upstream.failed.add("b:1")
    await watch.look()
    topics = watch.latest.topics
    assert [name for name in sorted(topics) if topics[name].is_idle] == ["idle"]
    assert topics["orders"].registered == ["a:1", "b:1"]
    assert topics["orders"].stale_s > 0
    assert watch.latest.nodes["b:1"].error == "timed out"


@within(watching, 2)
async def test_a_nsqlookupd_that_hangs_holds_up_no_nsqd(
    watch: Watch, upstream: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_LOOK_S", 0.05)
    monkeypatch.setattr(limits, "ADMIN_DISCOVERY_S", 0.0)
    await watch.look()
    upstream.is_silent = True
    upstream.asked.clear()
    await looks(watch, lambda: upstream.asked.count("a:1") > 5)


@within(watching, 2)
async def test_after_an_action_all_are_asked_at_once(watch: Watch, upstream: Nodes) -> None:
    watch._interval_s = 3600.0
    await watch.look()
    upstream.asked.clear()
    await watch.look()
    assert upstream.asked == []  # nobody's turn
    watch.hurry()
    await watch.look()
    assert sorted(upstream.asked) == ["a:1", "b:1"]


def test_a_node_that_died_stays_with_what_it_held(tmp_path: Path) -> None:
    """Also after a restart of nsqadmin; until somebody forgets it."""

    async def live(upstream: Nodes, store: Store, forget: bool = False) -> Snapshot:
        watch = Watch(upstream, limits.SECOND // 100, NodeRecords(store))
        try:
            await watch.look()
            upstream.failed.add("b:1")
            upstream.gone.add("b:1")  # nsqlookupd has dropped it
            watch.hurry()
            found = await watch.look()
            if forget:
                watch.forget("b:1")
                found = await watch.look()
            return found
        finally:
            await watch.stop()

    store, upstream = Store(tmp_path), Nodes()
    for _ in range(2):  # the second run has never heard of it itself
        found = asyncio.run(live(upstream, store))
        node = found.nodes["b:1"]
        assert (node.is_listed, node.error, node.seen_s > 0) == (False, "timed out", True)
        assert found.topics["orders"].nodes == ["b:1"]
        assert not found.topics["orders"].is_idle
        assert "b:1, silent since 20" in words_about(found, "orders")
        assert "has 7 messages of it on its disk" in words_about(found, "orders")
        (finding,) = [one for one in findings(found, lambda name: ()) if "b:1" in one.what]
        assert "It held 14 messages in 2 topics. On no other node: orders." in finding.why
    found = asyncio.run(live(upstream, store, forget=True))
    assert "b:1" not in found.nodes
    assert "b:1" not in asyncio.run(live(upstream, store)).nodes
    store.close()


@pytest.mark.parametrize("topics", [[1], [{"replicas": [{}]}]])
def test_what_a_foreign_server_says_is_not_remembered(tmp_path: Path, topics: Any) -> None:
    told = {"a:1": topics, "b:1": []}
    nodes = {at: NodeState(at, NsqdAddress("", at, 0, 0, ""), {"topics": rows}, seen_s=1.0)
             for at, rows in told.items()}  # fmt: skip
    with closing(Store(tmp_path)) as store:
        NodeRecords(store).keep(nodes)
        assert [address for address, *_ in store.nodes()] == ["b:1"]


@within(watching, 2)
async def test_a_failing_nsqlookupd_drops_no_node(watch: Watch, upstream: Nodes) -> None:
    await watch.look()
    upstream.gone.add("b:1")
    upstream.missed = "WARNING: one nsqlookupd does not answer"
    watch.hurry()
    await watch.look()
    assert watch.latest.nodes["b:1"].is_listed


@within(watching, 2)
async def test_a_node_is_unknown_only_when_those_who_may_know_it_have_answered(
    watch: Watch, upstream: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADMIN_LOOK_S", 0.05)
    upstream.is_silent = True
    await watch.look()
    assert not watch.is_unknown("a:1")
    upstream.is_silent = False
    await looks(watch, lambda: watch.is_unknown("c:1"))
    assert not watch.is_unknown("a:1")


def test_a_page_that_asks_a_node_that_hangs_is_sent_without_its_answer(
    installation: Installation,
) -> None:
    with installation.topic("unread") as nsqd:
        nsqd.signal(signal.SIGSTOP)
        try:
            status, body, _ = installation.admin.request("GET", "/messages/unread")
        finally:
            nsqd.signal(signal.SIGCONT)
    assert (status, b"Messages of unread" in body) == (200, True)
