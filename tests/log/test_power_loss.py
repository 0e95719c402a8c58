"""A thousand histories of writes, syncs, rolls and retention, each cut short again and again.

`History` drives one log on a simulated disk and keeps the books: which body stands at which
offset, and up to where the log said "synced". After every power loss it checks the promise of
recovery.py: nothing that was synced is lost, nothing appears that was not written there, nothing
sound is called damaged. A write that was refused may have reached the disk whole all the same and
lose its removal with the power: its publisher was told "failed", which never meant "certainly not
there".
"""

import random

from cases import each
from penstock.errors import WriteRefused
from penstock.log.head import Owner
from penstock.log.partition import PartitionLog, SyncJob
from penstock.log.segment import LogSettings
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SECOND, Writer, bodies_from

ROUNDS = 1000
ROUNDS_PER_TEST = 100
PATH = "data/0"
OWNER = Owner("orders", 0, "005-18a26f9ac7a69000")
SETTINGS = LogSettings(
    segment_bytes_max=3000,
    index_every_bytes=400,
    preallocate_bytes_min=512,
    preallocate_bytes_max=4096,
)


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk()
        self.disk.mkdir("data")
        self.disk.sync_directory("")
        # a third begins without heads, as a log of an older release, and is opened by this one
        self.log = PartitionLog.create(self.disk, PATH, SETTINGS, OWNER if seed % 3 else None)
        self.writer = Writer(self.log)
        self.job: SyncJob | None = None
        self.now_ns = NOW_NS
        self.serial = 0
        self.bodies: dict[int, bytes] = {}
        self.refused: dict[int, set[bytes]] = {}  # what failed writes would have put there
        self.ids: dict[int, int] = {}
        self.synced_end = 0
        self.synced_id = 0  # the highest id of a message that was ever synced
        self.written_end = 0
        self.cuts = 0

    # --- what happens to a log ---

    def write(self) -> None:
        first = self.log.written_end
        bodies = self._make_bodies()
        try:
            self.writer.write(bodies, self.now_ns)
        except WriteRefused:
            for index, body in enumerate(bodies):
                self.refused.setdefault(first + index, set()).add(body)
            raise
        for index, body in enumerate(bodies):
            self.bodies[first + index] = body
            self.ids[first + index] = self.log.last_id
        self.written_end = self.log.written_end

    def _make_bodies(self) -> list[bytes]:
        bodies = []
        for _ in range(self.rng.choice((1, 1, 2, 3, 8))):
            self.serial += 1
            size = self.rng.choice((0, 10, 100, 700))
            bodies.append(b"%d:" % self.serial + self.rng.randbytes(size))
        return bodies

    def write_and_fail(self) -> None:
        before = (self.log.written_end, self.log.last_id, self.log.bytes_stored)
        fault = Fault(
            self.rng.choice(("write", "write", "create", "rename", "open")),
            number=self.rng.choice((5, 28)),
            path_part=".log",
            written=self.rng.random(),
            times=self.rng.choice((1, 0)),
            skip=self.rng.choice((0, 0, 1)),
        )
        self.disk.inject(fault)
        try:
            self.write()
        except WriteRefused:
            assert (self.log.written_end, self.log.last_id, self.log.bytes_stored) == before
        self.disk.faults.clear()

    def sync_begin(self) -> None:
        if self.job is None:
            self.job = self.log.sync_begin()

    def sync_end(self) -> None:
        if self.job is not None:
            self.job.run()
            self.log.sync_end(self.job, None)
            self.job = None
            self._note_synced()

    def _note_synced(self) -> None:
        self.synced_end = self.log.synced_end
        self.synced_id = max(self.synced_id, self.ids.get(self.synced_end - 1, 0))

    def sync(self) -> None:
        self.sync_end()
        self.sync_begin()
        self.sync_end()

    def mark(self) -> None:
        self.log.mark(self.now_ns)

    def retain(self) -> None:
        floor = self.rng.randint(self.log.start_offset, self.log.written_end)
        self.log.retain(floor, self.now_ns, self.rng.choice((SECOND, 10**18)), 2000)
        self._note_synced()

    def wait(self) -> None:
        self.now_ns += self.rng.choice((1, SECOND, 3 * SECOND, 4000 * SECOND))

    def read(self) -> None:
        start = self.rng.randint(self.log.start_offset, self.log.written_end)
        if start < self.log.written_end:
            self.log.read(start, self.rng.choice((100, 5000)))

    # --- how it ends, and what must hold then ---

    def crash(self) -> None:
        """The power goes, often in the middle of a job."""
        if self.job is not None and self.rng.random() < 0.5:
            self.disk.inject(Fault("sync", skip=self.rng.randint(0, 2)))
            try:
                self.job.run()
            except OSError:
                self.disk.faults.clear()
        start = self.log.start_offset
        self.disk.crash(self.rng)
        self._open()
        assert self.log.start_offset == start  # a removal is durable when `retain` returns
        assert self.log.written_end >= self.synced_end
        self._take_refused()
        self._check()

    def kill(self) -> None:
        self.disk.kill()
        self._open()
        assert self.log.written_end == self.written_end  # all that was written
        cut = self.log.report.cut
        assert cut is None or cut.reason == "an unfinished write"
        self._check()

    def restart(self) -> None:
        self.sync_end()
        self.log.close()
        self._open()
        assert self.log.report.clean
        assert self.log.written_end == self.written_end
        self._check()

    def _take_refused(self) -> None:
        """Above the synced end a refused batch may stand where another was written later."""
        log = self.log
        found = bodies_from(log, log.start_offset)
        for offset in range(self.synced_end, log.written_end):
            if found[offset - log.start_offset] in self.refused.get(offset, ()):
                self.bodies[offset] = found[offset - log.start_offset]
                self.ids[offset] = 0

    def _open(self) -> None:
        self.job = None
        self.log = PartitionLog.open(self.disk, PATH, SETTINGS, self.now_ns, OWNER)
        self.writer = Writer(self.log, node_id=self.rng.choice((5, 5, 5, 2)))

    def _check(self) -> None:
        log = self.log
        assert log.damaged == []
        assert log.stopped is None
        assert log.synced_end == log.written_end
        log.validate()
        found = bodies_from(log, log.start_offset, self.rng.choice((100, 1000, 100_000)))
        wanted = [self.bodies[n] for n in range(log.start_offset, log.written_end)]
        assert found == wanted
        kept_ids = [self.ids[n] for n in range(log.start_offset, log.written_end)]
        assert log.last_id >= max([self.synced_id, *kept_ids])
        self.cuts += log.report.cut is not None
        self.written_end = self.synced_end = log.written_end
        self.refused.clear()
        for offset in [n for n in self.bodies if n >= log.written_end]:
            del self.bodies[offset]  # another message may come to stand there

    def play(self) -> None:
        steps = {
            self.write: 40,
            self.sync: 8,
            self.sync_begin: 6,
            self.sync_end: 6,
            self.write_and_fail: 3,
            self.mark: 4,
            self.retain: 4,
            self.wait: 4,
            self.read: 4,
            self.crash: 6,
            self.kill: 2,
            self.restart: 2,
        }
        for step in self.rng.choices(list(steps), list(steps.values()), k=100):
            step()
        self.crash()


@each("first_seed", range(0, ROUNDS, ROUNDS_PER_TEST))
def test_nothing_synced_is_lost_and_nothing_is_invented(first_seed: int) -> None:
    cuts = 0
    for seed in range(first_seed, first_seed + ROUNDS_PER_TEST):
        history = History(seed)
        try:
            history.play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        cuts += history.cuts
    assert cuts > ROUNDS_PER_TEST // 2  # unfinished tails were really met
