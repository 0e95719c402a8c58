"""Batches and logs for tests."""

import os
from pathlib import Path

from kernel.batches import short_batch
from penstock.ids.guid import IdRange
from penstock.kernel import decode_bodies, decode_header, encode_batch
from penstock.log.disk import Disk
from penstock.log.inspect import PartitionDirectory
from penstock.log.partition import PartitionLog
from penstock.log.segment import LogSettings
from sim.disk import SimDisk

NOW_NS = 1_790_000_000 * 10**9
SECOND = 10**9
SMALL = LogSettings(
    segment_bytes_max=4096,
    index_every_bytes=512,
    preallocate_bytes_min=1024,
    preallocate_bytes_max=2048,
)


PATH = "data/topics/orders/0"
DIRECTORY = PartitionDirectory("orders", 0, PATH)
END = 120  # of `filled_disk`


class Writer:
    """Plays the broker: makes batches and writes them to a log."""

    def __init__(self, log: PartitionLog, node_id: int = 5) -> None:
        self.log = log
        self.ids = IdRange(node_id, log.last_id)

    def write(
        self,
        bodies: list[bytes],
        wall_ns: int = NOW_NS,
        sections: dict[int, dict[int, int | bytes]] | None = None,
        epoch: int = 0,
        synced_end: int | None = None,
    ) -> bytes:
        """`synced_end`: what the header says, if not how far the log itself is synced."""
        log = self.log
        synced = log.synced_end if synced_end is None else synced_end
        wall_ns = max(wall_ns, log.last_timestamp_ns)
        base_id = self.ids.take(len(bodies), wall_ns)
        unsynced = log.written_end - synced
        if len(bodies) == 1 and not sections and 0 <= unsynced <= 0xFFFF and epoch <= 0xFFFF:
            place = (log.written_end, base_id, wall_ns, unsynced, epoch)
            data = short_batch(bodies[0], *place)  # as the kernel does
        else:
            data = encode_batch(
                bodies, log.written_end, base_id, wall_ns, synced, epoch, sections=sections
            )
        half = len(data) // 2
        place = (log.written_end, len(bodies), base_id, self.ids.last_id, wall_ns)
        log.write([data[:half], data[half:]], len(data), *place, (), epoch, synced)
        return data

    def encode(
        self, bodies: list[bytes], base_offset: int, epoch: int = 0, synced_end: int | None = None
    ) -> bytes:
        synced = self.log.synced_end if synced_end is None else synced_end
        base_id = self.ids.take(len(bodies), NOW_NS)
        return encode_batch(bodies, base_offset, base_id, NOW_NS, synced, epoch)

    def fill(self, batches: int, wall_ns: int = NOW_NS, body_bytes: int = 40) -> None:
        for _ in range(batches):
            end = self.log.written_end
            self.write([body(end + n, body_bytes) for n in range(3)], wall_ns)


def body(offset: int, size: int = 40) -> bytes:
    """What the message at `offset` says in most tests."""
    return b"message %d " % offset + bytes((offset * 7 + n) % 251 for n in range(size))


def new_log(
    disk: Disk, path: str | os.PathLike[str], settings: LogSettings = SMALL
) -> tuple[PartitionLog, Writer]:
    log = PartitionLog.create(disk, path, settings)
    return log, Writer(log)


def bodies_from(log: PartitionLog, offset: int, bytes_max: int = 1024) -> list[bytes]:
    """All bodies from the batch that holds `offset` to the end, read block by block."""
    found: list[bytes] = []
    while offset < log.written_end:
        block = log.read(offset, bytes_max)
        position = 0
        while position < len(block):
            header = decode_header(block, position)
            found += decode_bodies(block, position)
            position += header.length
            offset = header.base_offset + header.count
    return found


def filled_disk() -> SimDisk:
    """Some segments of batches with three messages each."""
    disk = SimDisk()
    disk.mkdir(PATH)
    log, writer = new_log(disk, PATH)
    writer.fill(END // 3)
    log.close()
    return disk


def corrupt(disk: SimDisk, offset: int) -> str:
    """Flip a bit of the batch that holds `offset`; the segment's path."""
    log = PartitionLog.open(disk, PATH, SMALL)
    position = log.locate(offset).position
    path = next(s.path for s in log.segments if s.from_offset <= offset < s.to_offset)
    log._segments.close()
    disk.flip(path, position + 90, 3)
    return path


def durable_disk() -> SimDisk:
    """With the directories of a topic, which outlast a power loss."""
    disk = SimDisk()
    disk.mkdir("data/topics/orders")
    for path in ("", "data", "data/topics", "data/topics/orders"):
        disk.sync_directory(path)
    return disk


def segments(disk: SimDisk, path: str = PATH) -> list[str]:
    return sorted(f"{path}/{name}" for name in disk.listdir(path) if name.endswith(".log"))


def first_offset(segment: str) -> int:
    """Its name says it."""
    return int(segment[-24:-4])


def contents(disk: SimDisk, path: str = PATH) -> dict[str, bytes]:
    """Of its files, by name."""
    return {name: disk.content(f"{path}/{name}") for name in disk.listdir(path)}


def put(disk: SimDisk, path: str, content: bytes) -> None:
    disk.create(path)
    disk.replace(path, content)


def descriptors(path: Path) -> int:
    """How many of files below `path`."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(path))
        except FileNotFoundError:
            continue  # that of the listing
    return found
