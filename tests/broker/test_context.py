"""Whether there is room for so many bytes, at this moment."""

from __future__ import annotations

import errno
from collections.abc import Callable

from .faults import FaultyDisk
from .world import World

Start = Callable[..., World]


class Unknowable(FaultyDisk):
    """Cannot say how much is free while `broken`."""

    broken = False

    def free_bytes(self, path: str) -> int:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error", path)
        return super().free_bytes(path)


def test_room_is_what_lies_above_the_watermark_and_is_not_reserved(start: Start) -> None:
    disk = FaultyDisk()
    disk.free = 1_500
    context = start(disk=disk, disk_free_bytes_min=1_000).broker.context
    assert context.room_refusal(500) == ""
    context.reserved_bytes = 100
    assert context.room_refusal(400) == ""
    reason = "401 bytes do not fit: 1400 bytes free, 1000 are to stay free"
    assert context.room_refusal(401) == reason


def test_a_disk_that_cannot_say_what_is_free_takes_nothing(start: Start) -> None:
    disk = Unknowable()
    world = start(disk=disk)
    disk.broken = True
    words = "cannot determine free disk space: [Errno 5]"
    assert world.broker.context.room_refusal(1).startswith(words)
    world.pass_ns(1_000_000_000)
    assert words in world.broker.health
    assert world.broker.context.room_refusal(1).startswith(words)
    disk.broken = False
    world.pass_ns(1_000_000_000)
    assert world.broker.health == "OK"
    assert world.broker.context.room_refusal(1) == ""
