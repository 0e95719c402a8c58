"""The simulated disk forgets what was not synced, and only that."""

import errno
import os
import random

import pytest

from sim.disk import Fault, SimDisk

LIVES = range(300)


def disk_with_file() -> SimDisk:
    disk = SimDisk()
    disk.mkdir("d")
    disk.sync_directory("")
    file = disk.create("d/f")
    file.pwritev([b"old" * 500], 0, 1500)
    file.fdatasync()
    disk.sync_directory("d")
    return disk


def after_crash(disk: SimDisk, seed: int) -> SimDisk:
    disk.crash(random.Random(seed))
    return disk


def test_synced_content_survives() -> None:
    for seed in LIVES:
        disk = after_crash(disk_with_file(), seed)
        assert disk.content("d/f") == b"old" * 500


def test_a_move_between_directories_happens_in_both_or_in_none() -> None:
    seen = set()
    for seed in LIVES:
        disk = disk_with_file()
        disk.mkdir("e")
        disk.sync_directory("")
        disk.rename("d/f", "e/f")
        assert (disk.exists("d/f"), disk.exists("e/f")) == (False, True)
        after_crash(disk, seed)
        seen.add((disk.exists("d/f"), disk.exists("e/f")))
    assert seen == {(True, False), (False, True)}


@pytest.mark.parametrize("synced", ["d", "e"])
def test_a_synced_half_of_a_move_keeps_the_other(synced: str) -> None:
    for seed in LIVES:
        disk = disk_with_file()
        disk.mkdir("e")
        disk.sync_directory("")
        disk.rename("d/f", "e/g")
        disk.sync_directory(synced)
        after_crash(disk, seed)
        assert (disk.exists("d/f"), disk.exists("e/g")) == (False, True)


def test_an_unsynced_write_survives_whole_in_part_or_not_at_all() -> None:
    seen = set()
    for seed in LIVES:
        disk = disk_with_file()
        disk.open("d/f", write=True).pwritev([b"new" * 500], 0, 1500)
        assert disk.content("d/f") == b"new" * 500
        after_crash(disk, seed)
        content = disk.content("d/f")
        sectors = [content[at : at + 512] for at in range(0, 1500, 512)]
        old, new = b"old" * 500, b"new" * 500
        for at, sector in zip(range(0, 1500, 512), sectors, strict=True):
            assert sector in (old[at : at + 512], new[at : at + 512])
        seen.add(content)
    assert len(seen) == 8  # every way in which three sectors can be torn


def test_unsynced_writes_survive_in_any_order() -> None:
    seen = set()
    for seed in LIVES:
        disk = disk_with_file()
        file = disk.open("d/f", write=True)
        for n in range(3):
            file.pwritev([b"%d" % n * 512], n * 512, 512)
        after_crash(disk, seed)
        content = disk.content("d/f")
        seen.add(tuple(content[n * 512] == ord(str(n)) for n in range(3)))
    assert (False, False, True) in seen
    assert len(seen) == 8


def test_an_unsynced_truncation_may_be_undone() -> None:
    sizes = set()
    for seed in LIVES:
        disk = disk_with_file()
        disk.open("d/f", write=True).truncate(10)
        sizes.add(after_crash(disk, seed).size("d/f"))
    assert sizes == {10, 1500}


def test_names_need_a_sync_of_their_own() -> None:
    states = set()
    for seed in LIVES:
        disk = disk_with_file()
        file = disk.create("d/g")
        file.pwritev([b"x"], 0, 1)
        file.fdatasync()
        disk.rename("d/f", "d/h")
        states.add(frozenset(after_crash(disk, seed).listdir("d")))
    assert states == {frozenset(s) for s in (("f",), ("g", "h"), ("f", "g"), ("h",))}
    disk.sync_directory("d")


def test_a_removed_file_may_come_back() -> None:
    present = set()
    for seed in LIVES:
        disk = disk_with_file()
        disk.unlink("d/f")
        assert not disk.exists("d/f")
        present.add(after_crash(disk, seed).exists("d/f"))
    assert present == {False, True}


def test_a_kill_loses_nothing_but_open_files() -> None:
    disk = disk_with_file()
    file = disk.open("d/f", write=True)
    file.pwritev([b"new"], 0, 3)
    disk.kill()
    assert disk.content("d/f").startswith(b"newold")
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.pwritev([b"late"], 0, 4)


def test_a_failed_sync_forgets_what_it_should_have_written() -> None:
    disk = disk_with_file()
    file = disk.open("d/f", write=True)
    file.pwritev([b"new"], 0, 3)
    disk.inject(Fault("sync"))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fdatasync()
    file.fdatasync()  # the system calls it clean now
    assert disk.content("d/f").startswith(b"new")
    assert after_crash(disk, 1).content("d/f") == b"old" * 500
