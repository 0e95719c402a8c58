"""The simulated disk forgets what was not synced, and only that."""

import asyncio
import errno
import os
import random

import pytest

from penstock.limits import SECOND
from sim.clock import START_MONO_NS, START_WALL_NS, FakeClock
from sim.disk import Fault, SimDisk
from sim.loop import FakeLoop
from sim.threads import SlowThreads, Threads

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


def test_what_was_synced_survives() -> None:
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


def test_faults_skip_and_count() -> None:
    disk = disk_with_file()
    file = disk.open("d/f", write=True)
    fault = disk.inject(Fault("write", errno.EIO, "f", skip=1, times=2, written=0.5))
    file.pwritev([b"a"], 0, 1)
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.pwritev([b"bbbb"], 0, 4)
    assert disk.content("d/f").startswith(b"bbdold")
    file.pwritev([b"c"], 0, 1)
    assert fault.failed == 2


def test_a_full_disk_takes_what_fits() -> None:
    disk = disk_with_file()
    disk.capacity_bytes = 1600
    file = disk.open("d/f", write=True)
    file.pwritev([b"x" * 1500], 0, 1500)  # overwriting needs no room
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.pwritev([b"y" * 200], 1450, 200)
    assert disk.size("d/f") == 1600
    assert disk.free_bytes("d") == 0


def test_a_flipped_bit_stays() -> None:
    disk = disk_with_file()
    disk.flip("d/f", 1, 0)
    assert disk.content("d/f")[:3] == b"omd"
    assert after_crash(disk, 3).content("d/f")[:3] == b"omd"


def test_a_lock_is_free_again_after_a_kill() -> None:
    disk = SimDisk()
    lock = disk.lock("lock")
    with pytest.raises(BlockingIOError):
        disk.lock("lock")
    disk.kill()
    other = disk.lock("lock")
    lock.release()  # the dead process's: it holds nothing any more
    with pytest.raises(BlockingIOError):
        disk.lock("lock")
    other.release()
    disk.lock("lock").release()


def test_errors_are_those_of_the_system() -> None:
    disk = disk_with_file()
    for call, number in (
        (lambda: disk.open("d/none"), errno.ENOENT),
        (lambda: disk.open("d"), errno.EISDIR),
        (lambda: disk.listdir("d/f"), errno.ENOTDIR),
        (lambda: disk.rmdir("d"), errno.ENOTEMPTY),
        (lambda: disk.rename("d/none", "d/x"), errno.ENOENT),
    ):
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            call()
        assert caught.value.errno == number


def test_it_moves_only_when_time_passes() -> None:
    clock = FakeClock()
    assert (clock.mono_ns(), clock.wall_ns()) == (START_MONO_NS, START_WALL_NS)
    clock.pass_ns(SECOND)
    clock.pass_ns(1)
    assert clock.mono_ns() == START_MONO_NS + SECOND + 1
    assert clock.wall_ns() == START_WALL_NS + SECOND + 1


def test_a_wall_clock_that_is_set_moves_no_other() -> None:
    clock = FakeClock(wall_ns=5, mono_ns=7)
    clock.wall_step_ns -= 2
    assert (clock.mono_ns(), clock.wall_ns()) == (7, 3)


def test_timers_run_in_their_order_and_each_at_its_time() -> None:
    clock = FakeClock()
    loop = FakeLoop(clock)
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, clock.since_ns))

    loop.call_later(2e-9, note, "b")
    loop.call_later(1e-9, note, "a")
    loop.call_later(2e-9, note, "c")
    loop.call_later(1e-9, note, "cancelled").cancel()
    loop.call_later(9e-9, note, "later")
    rests: list[int] = []
    loop.pass_ns(5, lambda: rests.append(clock.since_ns))
    assert ran == [("a", 1), ("b", 2), ("c", 2)]
    assert (rests, clock.since_ns) == ([1, 1, 2, 2], 5)


def test_calls_run_until_none_is_left() -> None:
    loop = FakeLoop(FakeClock())
    ran: list[int] = []

    def count() -> None:
        ran.append(1)
        if len(ran) < 5:
            loop.call_soon(count)

    loop.call_soon(count)
    loop.call_soon(count).cancel()
    loop.run_ready()
    assert len(ran) == 5


def test_calls_that_never_end_are_an_error() -> None:
    loop = FakeLoop(FakeClock())

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="never comes to rest"):
        loop.run_ready()


def test_tasks_take_their_steps_in_the_order_of_the_calls() -> None:
    loop = FakeLoop(FakeClock())
    said: list[str] = []

    async def work(name: str) -> str:
        assert asyncio.get_running_loop() is loop  # type: ignore[comparison-overlap]
        for step in range(2):
            said.append(f"{name}{step}")
            await asyncio.sleep(0)
        return name

    async def both() -> list[str]:
        return await asyncio.gather(work("a"), work("b"))

    task = loop.create_task(both())
    loop.run_ready()
    assert (said, task.result()) == (["a0", "b0", "a1", "b1"], ["a", "b"])
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_a_future_wakes_the_task_that_waits_for_it() -> None:
    loop = FakeLoop(FakeClock())
    answer = loop.create_future()

    async def wait() -> int:
        return 1 + await answer

    task = loop.create_task(wait())
    loop.run_ready()
    assert not task.done()
    answer.set_result(6)
    loop.run_ready()
    assert task.result() == 7


class Job:
    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        if self._error is not None:
            raise self._error


def test_a_job_ends_at_once_or_when_it_is_let_go() -> None:
    woken: list[int] = []
    threads = Threads(lambda: woken.append(1))
    first, second = Job(), Job()
    threads.submit(first)
    assert (threads.take_done(), len(woken)) == ([(first, None)], 1)
    threads.held = True
    threads.submit(second)
    assert (threads.take_done(), second.runs, len(woken)) == ([], 0, 1)
    threads.run()
    assert (threads.take_done(), second.runs, len(woken)) == ([(second, None)], 1, 2)


def test_an_error_of_the_disk_is_an_answer() -> None:
    threads = Threads()
    error = OSError(5, "Input/output error")
    own, all_fail = Job(error), Job()
    threads.submit(own)
    threads.error = error
    threads.submit(all_fail)
    assert threads.take_done() == [(own, error), (all_fail, error)]
    assert all_fail.runs == 0


def test_what_ends_the_process_comes_up_again_in_who_waits() -> None:
    threads = Threads()
    with pytest.raises(KeyboardInterrupt):
        threads.submit(Job(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        threads.wait()
    assert threads.take_done() == []


def test_slow_ones_end_one_by_one_in_any_order() -> None:
    orders = set()
    for seed in range(20):
        threads = SlowThreads(random.Random(seed))
        jobs = [Job() for _ in range(3)]
        for job in jobs:
            threads.submit(job)
        assert [job.runs for job in jobs] == [0, 0, 0]
        threads.between_turns()
        assert sum(job.runs for job in jobs) == 1
        ended = []
        while threads.outstanding:
            ended += [jobs.index(job) for job, _ in threads.take_done()]  # type: ignore[arg-type]
        orders.add(tuple(ended))
    assert len(orders) == 6
