"""The coordinator in memory and etcd itself keep the same promises.

What is simulated rests on the one in memory; what runs rests on etcd. One class asks both.
"""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cases import seeds
from net.etcd.server import Etcd
from penstock.clock import SystemClock
from penstock.cluster.coordinator import (
    Changes,
    Compacted,
    Coordinator,
    CreatedIs,
    Delete,
    Granted,
    KeyPage,
    KeyValue,
    LeaseGone,
    Put,
    Reading,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.errors import TransactionTooLarge
from penstock.limits import LIST_PAGE_KEYS, SECOND, TRANSACTION_KEYS_MAX
from penstock.net.etcd.address import EtcdAddress
from penstock.net.etcd.session import EtcdCoordinator, Secrets
from penstock.replication.leader import Outcome
from sim.brokers.port import Port
from sim.store import Store

ANSWER_S = 10.0
LEASE_NS = 2 * SECOND
NO_SECRETS = Secrets()


class Desk:
    """A coordinator of either kind, and answers that are waited for."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.faults: list[Exception] = []

    async def turn(self) -> None:
        if isinstance(self.coordinator, Port):
            now_ns = SystemClock().mono_ns()
            self.coordinator.store.run_out(now_ns)
            self.coordinator.run(now_ns)
        await asyncio.sleep(0.001)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not holds():
                await self.turn()

    async def ask(self, call: Callable[..., object], *arguments: object) -> Any:
        answers: list[Any] = []
        call(*arguments, answers.append)
        assert answers == [], "answered within the call"
        await self.until(lambda: answers)
        assert len(answers) == 1
        return answers[0]

    async def transact(self, *parts: object) -> Settled:
        compares = tuple(p for p in parts if not isinstance(p, (Put, Delete)))
        operations = tuple(p for p in parts if isinstance(p, (Put, Delete)))
        transaction = Transaction(compares, operations)  # type: ignore[arg-type]
        settled = await self.ask(self.coordinator.transact, transaction)
        assert isinstance(settled, Settled)
        return settled

    async def read(self, key: str) -> KeyValue | None:
        reading = await self.ask(self.coordinator.read, key)
        assert isinstance(reading, Reading)
        return reading.entry

    async def list(self, prefix: str) -> list[KeyPage]:
        pages: list[Any] = []
        self.coordinator.list(prefix, pages.append)
        await self.until(lambda: pages and pages[-1].is_last)
        return pages


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    path = tmp_path_factory.mktemp("etcd")
    server = Etcd(path).start()
    yield server
    server.kill()
    shutil.rmtree(path)


_clusters = iter(range(1 << 30))


@asynccontextmanager
async def etcd_desk(address: EtcdAddress, secrets: Secrets = NO_SECRETS) -> AsyncIterator[Desk]:
    faults: list[Exception] = []
    coordinator = EtcdCoordinator(address, secrets, faults.append)
    try:
        yield Desk(coordinator)
    finally:
        await coordinator.close()
    assert faults == []


@asynccontextmanager
async def desk_of(kind: str, etcd: Etcd) -> AsyncIterator[Desk]:
    if kind == "memory":
        yield Desk(Port(Store()))
        return
    address = EtcdAddress((etcd.endpoint,), f"test-{next(_clusters)}")
    async with etcd_desk(address) as desk:
        yield desk


def on_both(story: Callable[[Desk], Awaitable[None]]) -> Callable[[str, Etcd], None]:
    """A test of it, in memory and with etcd."""

    @pytest.mark.parametrize("kind", ["memory", "etcd"])
    def test(kind: str, etcd: Etcd) -> None:
        async def tell() -> None:
            async with desk_of(kind, etcd) as desk:
                await story(desk)

        asyncio.run(tell())

    return test


@on_both
async def test_a_transaction_has_a_size(desk: Desk) -> None:
    puts = [Put(str(n), b"") for n in range(TRANSACTION_KEYS_MAX)]
    compares = [RevisionIs(f"x{n}", 0) for n in range(2 * TRANSACTION_KEYS_MAX)]
    assert (await desk.transact(*compares, *puts)).outcome is Outcome.DONE
    with pytest.raises(TransactionTooLarge, match="61 keys; at most 60"):
        await desk.transact(*puts, Put("one more", b""))


@on_both
async def test_a_list_comes_by_pages_as_of_one_revision(desk: Desk) -> None:
    names = [f"p/{number:05}" for number in range(LIST_PAGE_KEYS + 5)]
    for start in range(0, len(names), TRANSACTION_KEYS_MAX):
        some = names[start : start + TRANSACTION_KEYS_MAX]
        last = await desk.transact(*(Put(name, b"") for name in some))
    await desk.transact(Put("q/1", b""), Put("o", b""))
    pages = await desk.list("p/")
    assert [entry.key for page in pages for entry in page.entries] == names
    assert [page.is_last for page in pages] == [False, True]
    assert {page.revision for page in pages} == {last.revision + 1}
    assert [page.entries for page in await desk.list("none/")] == [()]
    assert len(await desk.list("")) == 2


@on_both
async def test_keys_go_with_their_lease(desk: Desk) -> None:
    granted = await desk.ask(desk.coordinator.grant, LEASE_NS)
    assert isinstance(granted, Granted)
    assert granted.ttl_ns >= LEASE_NS
    put = Put("alive", b"", granted.lease)
    made = (await desk.transact(put, Put("kept", b""))).revision
    assert await desk.read("alive") == KeyValue("alive", b"", made, made, granted.lease)
    assert await desk.ask(desk.coordinator.keep, granted.lease) == granted
    changes: list[Any] = []
    desk.coordinator.watch("", made + 1, changes.append)
    await desk.until(lambda: changes)  # it was not kept again
    assert [(event.key, event.entry) for event in changes[0].events] == [("alive", None)]
    assert await desk.read("alive") is None
    assert await desk.read("kept") is not None
    gone = await desk.ask(desk.coordinator.keep, granted.lease)
    assert gone == LeaseGone(granted.lease)
    refused = await desk.transact(RevisionIs("kept", made), put)
    there = (KeyValue("kept", b"", made, made),)
    assert refused == Settled(Outcome.REFUSED, changes[0].revision, there)


@on_both
async def test_a_watch_delivers_all_changes_in_order(desk: Desk) -> None:
    first = (await desk.transact(Put("k/a", b"1"), Put("k/b", b"1"))).revision
    answers: list[Changes] = []
    desk.coordinator.watch("k/", first, answers.append)
    await desk.transact(Put("other", b""))
    await desk.transact(Delete("k/a"), Put("k/c", b"2"))
    await desk.until(lambda: sum(len(one.events) for one in answers) == 4)
    events = [(e.revision, e.key, e.entry) for one in answers for e in one.events]
    last = first + 2
    assert sorted(events[:2]) == [
        (first, "k/a", KeyValue("k/a", b"1", first, first)),
        (first, "k/b", KeyValue("k/b", b"1", first, first)),
    ]
    assert sorted(events[2:]) == [
        (last, "k/a", None),
        (last, "k/c", KeyValue("k/c", b"2", last, last)),
    ]
    assert answers[-1].revision == last


@on_both
async def test_a_watch_reports_its_progress(desk: Desk) -> None:
    made = (await desk.transact(Put("a", b""))).revision
    answers: list[Changes] = []
    watch = desk.coordinator.watch("", made + 1, answers.append)
    watch.request_progress()
    await desk.until(lambda: answers)
    assert answers[-1].revision >= made
    assert answers[-1].events == ()
    watch.cancel()
    count = len(answers)
    watch.request_progress()
    await desk.transact(Put("a", b"2"))
    await desk.turn()
    assert len(answers) == count


@on_both
async def test_a_watch_from_a_future_revision_reports_that_it_is_behind(desk: Desk) -> None:
    """As after a backup was put back: nothing would come for a long time."""
    made = (await desk.transact(Put("a", b""))).revision
    answers: list[Changes] = []
    desk.coordinator.watch("", made + 1000, answers.append).request_progress()
    await desk.until(lambda: answers)
    assert answers[-1].revision < made + 999


@on_both
async def test_a_watch_from_before_a_compaction_ends(desk: Desk) -> None:
    made = (await desk.transact(Put("a", b"1"))).revision
    last = (await desk.transact(Put("a", b"2"))).revision
    await compact(desk.coordinator, last)
    answers: list[object] = []
    desk.coordinator.watch("", made, answers.append)
    await desk.until(lambda: answers)
    await desk.transact(Put("a", b"3"))
    await desk.turn()
    assert answers == [Compacted(last)]


async def compact(coordinator: Coordinator, revision: int) -> None:
    if isinstance(coordinator, Port):
        coordinator.store.compact(revision)
    else:
        from aetcd import rpc

        assert isinstance(coordinator, EtcdCoordinator)
        await coordinator._call("kv", "Compact", rpc.CompactionRequest(revision=revision))


async def test_random_transactions_have_the_same_outcomes(etcd: Etcd) -> None:
    """Revisions are compared from where each began."""
    dice = random.Random(4711)
    async with desk_of("memory", etcd) as memory, desk_of("etcd", etcd) as real:
        begun = [(await desk.transact(Put("begun", b""))).revision for desk in (memory, real)]
        for _ in seeds(150, 400):
            parts = [draw(dice) for _ in range(dice.randint(1, 4))]
            keys = {one.key for one, _ in parts}
            if len(keys) < len(parts):
                continue
            settled = [
                await desk.transact(*(at(part, of) for part in parts))
                for desk, of in zip((memory, real), begun, strict=True)
            ]
            assert relative(settled[0], begun[0]) == relative(settled[1], begun[1])
        lists = [await desk.list("k/") for desk in (memory, real)]
        seen = [
            [shifted(entry, of) for page in pages for entry in page.entries]
            for pages, of in zip(lists, begun, strict=True)
        ]
        assert seen[0] == seen[1]


def draw(dice: random.Random) -> tuple[Any, int]:
    """A part of a transaction, and a revision in it, counted from the beginning."""
    key = f"k/{dice.randrange(6)}"
    back = dice.randrange(400)
    kinds: list[Any] = [Put(key, b"%d" % dice.randrange(3)), Put(key, b"x"), Delete(key)]
    kinds += [RevisionIs(key, 0), CreatedIs(key, 0)]
    kinds += [RevisionIs(key, back), CreatedIs(key, back)]
    return dice.choice(kinds), back


def at(part: tuple[Any, int], begun: int) -> Any:
    one, back = part
    if isinstance(one, RevisionIs) and one.revision:
        return RevisionIs(one.key, begun + back)
    if isinstance(one, CreatedIs) and one.created:
        return CreatedIs(one.key, begun + back)
    return one


def shifted(entry: KeyValue, begun: int) -> KeyValue:
    return entry._replace(revision=entry.revision - begun, created=entry.created - begun)


def relative(settled: Settled, begun: int) -> Settled:
    found = tuple(shifted(entry, begun) for entry in settled.found)
    return Settled(settled.outcome, settled.revision - begun, found)
