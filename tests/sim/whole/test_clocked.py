"""Three nodes with the product's own offices, on a clock: what must hold, and what must follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.documents import RECORD
from penstock.limits import SECOND
from penstock.log.sync import SyncJob
from penstock.replica.record import Seat, elected, resigned
from penstock.sim.main import sim_main
from penstock.sim.protocol.observer import Breach
from penstock.sim.timeline import as_text
from penstock.sim.whole.clocked import _KEY, ClockedWorld
from penstock.sim.whole.histories import CLOCKED, play_clocked, play_some
from penstock.sim.whole.timeline import clocked_timeline
from penstock.sim.whole.trouble import TROUBLE, Trouble, become_whole, why_not_whole

HISTORIES = 60
BLOCK = 10
CUT_SEEDS = (60, 10)  # the first one, and how many: some 12 in 100 have a cut
CANARY_SEEDS = 5
SYNC_SEEDS = 10
measured_already = pytest.mark.no_cover  # in the first of the histories


@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_no_history_breaks_a_promise(first: int) -> None:
    tally, found = play_some(first, BLOCK, kind=CLOCKED)
    assert found == []
    assert tally.answered > 200 * BLOCK, tally  # else nothing has happened
    assert tally.offices > 2 * BLOCK, tally
    assert tally.growths > 2 * BLOCK, tally
    assert tally.shrinks > BLOCK, tally


@measured_already
def test_logs_are_cut_in_some_histories() -> None:
    """Few are: a leader has to end with rows that no other replica has."""
    tally, found = play_some(*CUT_SEEDS, kind=CLOCKED)
    assert found == []
    assert tally.cuts > 0, tally


@measured_already
@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert play_clocked(seed) == play_clocked(seed)


@measured_already
def test_a_lost_message_is_found() -> None:
    found = play_some(0, CANARY_SEEDS, canary=True, kind=CLOCKED)[1]
    assert {one.invariant for one in found} == {"KEPT"}


@measured_already
def test_syncs_that_do_nothing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda _: None)
    found = play_some(0, SYNC_SEEDS, kind=CLOCKED)[1]
    assert {one.invariant for one in found} & {"I5", "I14", "I3", "I4", "KEPT"}


@measured_already
def test_the_command_plays_and_shows_histories(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--world", "whole", "--histories", "4", "--processes", "2", "--json"]
    assert sim_main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["histories"], figures["broken"]) == (4, [])
    assert figures["answered"] == play_some(0, 4, kind=CLOCKED)[0].answered
    assert sim_main(["--world", "whole", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert "everything held" in text
    assert "the record changes" in text


@measured_already
def test_a_history_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "history.html"
    assert sim_main(["--world", "whole", "--seed", "1", "--html", str(page)]) == 0
    assert page.read_text().count("<th>node ") == 3
    assert capsys.readouterr().out == f"{page}: seed 1, everything held\n"


@measured_already
def test_a_broken_promise_is_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda _: None)
    seed = play_some(0, 20, kind=CLOCKED)[1][0].seed
    assert as_text(clocked_timeline(seed)).splitlines()[-1].startswith("BROKEN ")


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda one: one.__name__)
def test_each_kind_of_trouble_passes(trouble: Trouble) -> None:
    world = ClockedWorld(5)
    try:
        world.run(8)
        for _ in range(3):
            trouble(world)
            world.run(3)
        leader = become_whole(world)
        world.observer.check_kept(leader)
    finally:
        world.close()


class TestWhatTheObserverSees:
    @pytest.fixture
    def world(self) -> Iterator[ClockedWorld]:
        world = ClockedWorld(5)
        world.run(12)
        yield world
        world.close()

    def test_a_record_that_no_rule_allows(self, world: ClockedWorld) -> None:
        record = world.record()
        with pytest.raises(Breach, match="I12: epoch"):
            world.observer.record_changed(record, record._replace(epoch=record.epoch + 2))

    def test_a_suspect_that_is_elected_before_a_sound_one(self, world: ClockedWorld) -> None:
        become_whole(world)
        record = world.record()
        node = world.machines[0]
        seat = Seat(0, node.life, node.own.replica)
        world.observer.record_changed(record, elected(record, seat))
        world.waits = False
        node.memory_lost_generation = node.generation + 1
        with pytest.raises(Breach, match="I13"):
            world.observer.record_changed(record, elected(record, seat))
        world.observer.record_changed(record, resigned(record))

    def test_an_older_record_that_is_acted_upon(self, world: ClockedWorld) -> None:
        record = world.record()
        with pytest.raises(Breach, match="I8"):
            world.observer.acts_on(0, record._replace(epoch=record.epoch - 1))

    def test_two_leaders_of_one_epoch(self, world: ClockedWorld) -> None:
        world.publishes = False
        node = world.serving()
        assert node is not None
        office = node.assigned.office
        assert office is not None
        epoch = office.line.record.epoch
        world.observer.seats[epoch] = Seat(9, 9, 9)
        with pytest.raises(Breach, match="I2"):
            world.observer.serves(node, office)

    def test_a_set_that_is_not_full(self, world: ClockedWorld) -> None:
        become_whole(world)
        assert why_not_whole(world) == ""
        world.machines[2].kill()
        world.run(5)
        world.machines[2].start()
        assert why_not_whole(world) == "node 2 is no member"

    def test_a_partition_without_a_leader(self, world: ClockedWorld) -> None:
        for node in world.machines:
            node.kill()
        assert why_not_whole(world) == "no replica is in office"

    def test_publishes_that_are_never_answered(self, world: ClockedWorld) -> None:
        world.observer.asked(0, (b"lost",))
        with pytest.raises(Breach, match="L-g: 1 publishes"):
            become_whole(world)

    def test_records_that_change_without_end(self, world: ClockedWorld) -> None:
        become_whole(world)
        world.publishes = True
        world._repeat(SECOND, lambda: world._put(_KEY, RECORD.encode(world.record())))
        with pytest.raises(Breach, match="L-e"):
            become_whole(world)


def test_a_lone_leader_publishes_as_long_as_the_coordinator_knows_it() -> None:
    """Else it would go on while an operator recovers the partition elsewhere."""
    world = ClockedWorld(5)
    try:
        become_whole(world)
        world.publishes = True
        for node in world.machines[1:]:
            node.kill()
        world.run(90)
        assert [member.node for member in world.record().members] == [0]
        assert answers_in(world, 10) > 0
        world.machines[0].port.is_cut = True
        assert answers_in(world, 50) > 0
        world.run(15)
        assert answers_in(world, 10) == 0
        world.machines[0].port.is_cut = False
        assert answers_in(world, 10) > 0
        assert not world.observer.never
    finally:
        world.close()


def answers_in(world: ClockedWorld, seconds: float) -> int:
    before = len(world.observer.ok)
    world.run(seconds)
    return len(world.observer.ok) - before
