"""A leader's journal and two followers', over links that a test holds in its hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import kernel
from penstock.broker.commits.jobrow import JobRow
from penstock.broker.commits.shelf import Place
from penstock.broker.commits.stagestore import StageStore
from penstock.broker.cursors import Cursors
from penstock.broker.followedchannels import FollowedChannels
from penstock.broker.health import Health
from penstock.broker.journal import Journal
from penstock.broker.ledchannels import LedChannels
from penstock.broker.ports import Lane
from penstock.broker.promises import Promises
from penstock.broker.station import Station
from penstock.broker.syncs import Syncs
from penstock.log.fold import ChannelState, epoch_of
from penstock.log.followedjournal import FollowedJournal
from penstock.log.ledger import Ledger
from penstock.log.ledgerfile import Node, ReplicaEntry
from penstock.replica.frames import Frames
from sim.disk import Fault
from sim.threads import Threads

from .following import KEY, new_disk

EPOCH = 6
MEMBERS = {(0, 100), (1, 101), (2, 102)}


class Links:
    """Frames on their way, by the nodes that they go from and to."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.cut: set[int] = set()  # nodes that get nothing and send nothing

    def of(self, node: int) -> Any:
        def send(target: int, lane: Lane, frames: Sequence[Any]) -> None:
            if not self.cut & {node, target}:
                self.sent.append((node, target, b"".join(b"".join(parts) for parts in frames)))

        return SimpleNamespace(send=send)


class Cluster:
    """Node 0 leads five messages; nodes 1 and 2 follow."""

    def __init__(self) -> None:
        self.links = Links()
        self.threads = Threads()
        self.syncs = Syncs(self.threads)
        self.drops: list[tuple[int, int]] = []
        self.ends: list[str] = []
        self.disks = [new_disk() for _ in range(3)]
        self.stations = [self.station(node) for node in range(3)]
        self.channels = [self.follow(node) for node in (1, 2)]
        self.lead()

    def station(self, node: int) -> Station:
        ledger = Ledger.create(self.disks[node], "data", Node(generation=4, life=5))
        ledger.put(KEY, ReplicaEntry(EPOCH, b""))
        return Station(node, 5, 4, Promises(ledger, self.syncs), self.links.of(node))

    def follow(self, node: int) -> FollowedChannels:
        return FollowedChannels(
            self.stations[node], KEY, "orders", 100 + node,
            FollowedJournal.open(self.disks[node], "data"), self.syncs, Health(),
            lambda start: self.drops.append((node, start)), self.ends.append, self.store(node),
        )  # fmt: skip

    def store(self, node: int) -> StageStore:
        place = Place("orders", KEY.identity, KEY.partition)
        return StageStore(self.disks[node], Health(), JobRow(self.syncs), "data", place)

    def lead(self) -> None:
        self.engine = kernel.Engine(1 << 20, 5 << 20, 2500)
        self.tail = self.engine.tail(b"orders", 5, 1 << 20, 0)
        followed = FollowedJournal.open(self.disks[0], "data")
        journal = Journal(followed.files, 1 << 20, EPOCH, followed.folding.handed_end)
        context: Any = SimpleNamespace(health=Health(), killed=False, syncs=self.syncs)
        self.cursors = Cursors(context, "orders", journal, followed.folded())
        self.led = LedChannels(
            self.stations[0], KEY, EPOCH, self.cursors,
            lambda start: self.drops.append((0, start)), self.ends.append,
        )  # fmt: skip
        self.cursors.begin(self.tail)
        self.led.needs(MEMBERS)
        for node in (1, 2):
            self.led.linked(node, 10 + node)

    def add(self, number: int, offset: int) -> list[int]:
        """A channel; the list has its number when all have it."""
        held: list[int] = []
        self.cursors.add(number, self.engine.window(self.tail, offset), offset)
        self.led.when_held(lambda: held.append(number))
        return held

    def run(self, syncs: bool = True) -> None:
        """Until nothing moves."""
        for _ in range(20):
            sent, self.links.sent = self.links.sent, []
            for source, target, data in sent:
                self.deliver(source, target, data)
            self.led.settle()
            if syncs:
                self.cursors.settle(sync=True)
                self.syncs.settle()
        assert not self.links.sent

    def deliver(self, source: int, target: int, data: bytes) -> None:
        for _, frame in Frames(source).feed(data):
            receiver: Any = self.channels[target - 1] if target else self.led
            receiver.receive(source, frame)

    def known(self, node: int) -> dict[int, ChannelState]:
        folded = self.channels[node - 1].journal.folded()
        return folded.channels if folded is not None else {}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.run()
    return cluster


def test_a_channel_is_confirmed_when_all_members_have_synced_its_start(cluster: Cluster) -> None:
    cluster.threads.held = True
    held = cluster.add(1, 3)
    cluster.run()
    assert (held, cluster.known(1)[1].low) == ([], 3)  # written everywhere, synced nowhere
    cluster.threads.held = False
    cluster.threads.run()
    cluster.run()
    assert held == [1]


def test_a_member_that_does_not_answer_holds_it_up_until_it_is_left_out(cluster: Cluster) -> None:
    cluster.links.cut.add(2)
    held = cluster.add(1, 3)
    cluster.run()
    assert held == []
    cluster.led.needs({(0, 100), (1, 101)})
    assert held == [1]
    assert not cluster.led.line.is_level(2, 102)
    cluster.links.cut.clear()
    cluster.led.linked(2, 22)
    cluster.run()
    assert cluster.led.line.is_level(2, 102)
    assert cluster.known(2) == cluster.known(1)


def test_the_office_begins_a_generation_of_its_epoch(cluster: Cluster) -> None:
    places = {
        cluster.channels[0].line.place,
        cluster.channels[1].line.place,
        cluster.led.line.place,
    }
    assert len(places) == 1
    assert epoch_of(places.pop().generation) == EPOCH


def test_segments_go_when_all_members_have_the_start(cluster: Cluster) -> None:
    cluster.links.cut.add(2)
    cluster.cursors.decide_start(3)
    cluster.run()
    assert cluster.drops == []
    cluster.links.cut.clear()
    cluster.led.linked(2, 22)
    cluster.run()
    assert sorted(cluster.drops) == [(0, 3), (1, 3), (2, 3)]


def test_a_follower_whose_disk_refused_a_record_comes_back(cluster: Cluster) -> None:
    cluster.disks[1].inject(Fault("write"))
    held = cluster.add(1, 3)
    cluster.run()
    assert held == []
    cluster.channels[0].settle(sync=False)
    cluster.run()
    assert held == [1]


def test_what_is_waited_for_needs_no_housekeeping(cluster: Cluster) -> None:
    """A turn that syncs nothing by itself, neither here nor there."""
    before = cluster.threads.submitted
    cluster.cursors.append([])
    cluster.run(syncs=False)
    assert cluster.threads.submitted == before
    cluster.cursors.add(1, cluster.engine.window(cluster.tail, 3), 3)
    held: list[int] = []
    cluster.led.when_held(lambda: held.append(1))
    for _ in range(5):
        cluster.run(syncs=False)
        cluster.syncs.settle()
    assert (held, cluster.threads.submitted - before) == ([1], 3)


def test_a_sync_of_the_leaders_journal_that_fails_ends_the_office(cluster: Cluster) -> None:
    cluster.disks[0].inject(Fault("sync", path_part="channels"))
    held = cluster.add(1, 3)
    cluster.run()
    assert cluster.ends == ["a sync of the channel journal failed"]
    assert held == []
    assert cluster.led.leave() == 1


def test_after_the_office_nothing_is_sent(cluster: Cluster) -> None:
    cluster.led.leave()
    cluster.cursors.append([])
    assert cluster.links.sent == []


def test_what_the_disk_refused_is_held_once_it_is_written(cluster: Cluster) -> None:
    cluster.disks[0].inject(Fault("write", path_part="channels"))
    held = cluster.add(1, 3)
    cluster.run(syncs=False)
    assert (held, cluster.known(1)) == ([], {})
    cluster.run()
    assert (held, cluster.known(1)[1].low) == ([1], 3)


def test_an_office_that_has_ended_holds_nothing(cluster: Cluster) -> None:
    cluster.disks[0].inject(Fault("write", path_part="channels"))
    cluster.cursors.append([])
    told: list[str] = []
    cluster.led.when_held(lambda: told.append("held"), lambda: told.append("lost"))
    assert told == []
    assert cluster.led.leave() == 1
    assert told == ["lost"]
    cluster.led.when_held(lambda: told.append("held"), lambda: told.append("lost"))
    assert told == ["lost", "lost"]
