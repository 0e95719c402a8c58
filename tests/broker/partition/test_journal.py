"""The two files of a journal, and every fault that can meet them."""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import examples
from penstock.broker.partition.journal import Journal
from penstock.log.fold import EntryKind, Group, cursor_entry, generation_of
from penstock.log.follower_journal import FollowedJournal
from penstock.log.journal_file import NAMES as ALL_NAMES
from sim.disk import Fault, SimDisk

from ..following import new_disk

NAMES = ALL_NAMES[:2]  # of a node by itself
BYTES_MAX = 400  # a few records


class Cursor:
    """One channel whose cursor is a number; it says it to a journal."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.at = 0
        self.open()

    def open(self) -> int:
        """Read it back: what the files say."""
        self.journal, folded = Journal.open(self.disk, self.directory, BYTES_MAX)
        self.at = folded.channels[1].next if folded is not None else 0
        self.torn = folded is not None and folded.torn
        return self.at

    def move(self, count: int = 1) -> None:
        self.at += count
        entry = cursor_entry(EntryKind.CURSOR, self.at, self.at)
        self.journal.append(self.at, [Group(1, entry)], self.snapshot)
        self.journal.files.validate()

    def snapshot(self) -> tuple[int, list[Group]]:
        return self.at, [Group(1, cursor_entry(EntryKind.CURSOR, self.at, self.at))]


@pytest.fixture
def cursor(disk: SimDisk) -> Cursor:
    return Cursor(disk, "/data")


def reopened(cursor: Cursor) -> int:
    cursor.journal.close()
    return cursor.open()


def test_the_file_that_was_found_is_synced_before_the_other_is_overwritten(cursor: Cursor) -> None:
    """After a kill it may be in the system's memory only, and the other file all there is."""
    cursor.move()
    reopened(cursor)
    cursor.disk.inject(Fault("sync", path_part=NAMES[0]))
    with pytest.raises(OSError, match="Input/output"):
        cursor.journal.begin(cursor.snapshot)
    assert not cursor.disk.exists(f"/data/{NAMES[1]}")
    cursor.journal.begin(cursor.snapshot)
    assert cursor.disk.exists(f"/data/{NAMES[1]}")
    cursor.journal.close()


def test_after_an_orderly_stop_an_idle_journal_is_left_alone(cursor: Cursor) -> None:
    cursor.move()
    cursor.journal.files.sync()
    cursor.journal.close()
    content = cursor.disk.content(f"/data/{NAMES[0]}")
    journal, _ = Journal.open(cursor.disk, "/data", BYTES_MAX, on_disk=True)
    assert not journal.files.unsynced
    journal.close()
    assert cursor.disk.content(f"/data/{NAMES[0]}") == content


def test_old_records_behind_a_new_beginning_never_join_on_to_it(cursor: Cursor) -> None:
    """A power loss may take the first record of a file, keep the second, and later undo the
    truncation of the file that was begun anew in the same place."""
    cursor.move()
    cursor.move()
    disk, path = cursor.disk, f"/data/{NAMES[0]}"
    old = disk.content(path)
    disk.replace(path, bytes(len(old) // 2) + old[len(old) // 2 :])
    assert reopened(cursor) == 0
    cursor.move()
    new = disk.content(path)
    disk.replace(path, new + old[len(new) :])
    assert reopened(cursor) == 1
    cursor.journal.close()


STEPS = st.lists(
    st.sampled_from(
        ["move", "move", "move", "sync", "rest", "kill", "crash", "bad write", "bad sync"]
    ),
    max_size=60,
)


@settings(max_examples=examples(400), deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_no_stop_takes_back_synced_records(steps: list[str], seed: int) -> None:
    """After a power loss all that was synced is there; after a kill all that was written, unless
    the disk failed in between; and what is there is never more than was said."""
    rng = random.Random(seed)
    disk = new_disk()
    cursor = Cursor(disk, "data")
    synced = 0
    write_failed = False
    lied_about = 0  # the generation that a killed process read, of which a sync had failed
    bad_syncs: list[Fault] = []
    for step in steps:
        if step in ("kill", "crash"):
            text = cursor.at
            sync_failed = any(fault.failed for fault in bad_syncs)
            if step == "kill" and sync_failed:
                synced, lied_about = 0, cursor.journal.files.generation
            disk.kill() if step == "kill" else disk.crash(rng)
            found = cursor.open()
            assert synced <= found <= text
            if step == "kill" and not (write_failed or sync_failed):
                assert found == text
            if step == "crash":
                assert sync_failed or lied_about or not cursor.journal.files.corrupt
                synced, lied_about = found, 0
            write_failed = False
            bad_syncs.clear()
        elif step == "rest":
            cursor.journal.rest()
        elif step == "bad write":
            write_failed = True
            disk.inject(Fault("write", path_part="channels.", written=rng.random()))
        elif step == "bad sync":
            bad_syncs.append(disk.inject(Fault("sync", path_part="channels.")))
        else:
            with contextlib.suppress(OSError):
                cursor.move() if step == "move" else cursor.journal.files.sync()
            files = cursor.journal.files
            if not files.unsynced and not files.broken and files.generation > lied_about:
                synced = cursor.at
                bad_syncs.clear()


# --- a leader of others ---


def led(disk: SimDisk, epoch: int) -> tuple[Journal, Cursor]:
    """A replica takes over: its files are open already, and it begins with what it knows."""
    followed = FollowedJournal.open(disk, "data")
    folded = followed.folded()
    cursor = Cursor(disk, "data")
    cursor.at = folded.channels[1].next if folded is not None else 0
    handed_end = followed.folding.handed_end
    cursor.journal = Journal(followed.files, BYTES_MAX, epoch, handed_end)
    return cursor.journal, cursor


def test_a_leader_begins_its_epoch_with_a_snapshot_and_its_records_are_followed() -> None:
    journal, cursor = led(new_disk(), epoch=6)
    replica = FollowedJournal.open(new_disk(), "data")
    for count in range(30):
        cursor.at += 1
        entry = cursor_entry(EntryKind.CURSOR, cursor.at, cursor.at)
        record = journal.append(cursor.at, [Group(1, entry)], cursor.snapshot)
        is_snapshot = journal.files.written.sequence == 0
        assert is_snapshot == (count == 0) or journal.files.written.generation > generation_of(6, 0)
        replica.replace(record) if is_snapshot else replica.append(record)
        journal.files.sync()
        assert replica.position == journal.files.written == journal.files.synced
    folded = replica.folded()
    assert folded is not None
    assert folded.channels[1].next == 30
    assert generation_of(6, 0) < journal.files.generation < generation_of(7, 0)


def test_a_new_leader_does_not_go_on_in_the_file_of_another() -> None:
    disk = new_disk()
    journal, cursor = led(disk, epoch=6)
    cursor.move(5)
    journal.close()
    journal, cursor = led(disk, epoch=8)
    assert cursor.at == 5
    cursor.move()
    assert journal.files.written == (generation_of(8, 0), 0)
    assert (disk.exists("data/channels.0"), disk.exists("data/channels.1")) == (True, True)
    with pytest.raises(RuntimeError, match="of epoch 8 is continued by a leader of epoch 7"):
        led(disk, epoch=7)


def test_a_single_node_continues_the_journal_of_a_cluster() -> None:
    disk = new_disk()
    journal, cursor = led(disk, epoch=6)
    for _ in range(3):  # one file after the other, up to the third
        journal.begin(cursor.snapshot)
    cursor.move(7)
    journal.close()
    assert disk.exists("data/channels.2")
    alone = Cursor(disk, "data")
    assert alone.at == 7
    for _ in range(40):
        alone.move()
        alone.journal.files.sync()
    alone.journal.close()
    assert Cursor(disk, "data").at == 47
