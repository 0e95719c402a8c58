"""The identity of an idempotent producer: its id, its epochs, and the numbers of its messages.

nsqd remembers, per topic, producer and epoch, the number of the next message. So a number may be
used again only for the very same messages, or when it is certain that nothing was stored under it.
Where that is not certain and the publish is given up, a new epoch begins: its numbers are fresh,
and a straggler of the old epoch (bytes in some buffer) is refused once the new one has begun.

Where epochs come from:

- No id was given: the id is random, nobody else has it, and epochs are counted up.
- An id and a number: that epoch is all there is. After a doubt the topic stops.
- An id and a function (`EpochFile`): it is asked at the start and for each further epoch, and gives
  a higher one each time, over restarts too.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from penstock import limits
from penstock.errors import ConfigError
from penstock.log.disk import OsDisk, replace_file

EPOCH_MAX = (1 << 16) - 1
ID_MAX = (1 << 64) - 1
SEQUENCE_MAX = 1 << 31  # then another epoch; nsqd takes twice as many
IDLE_S_MAX = limits.PRODUCER_FORGET_NS / limits.SECOND / 2  # after this nsqd may soon forget us

Epochs = Callable[[], int]


class Numbering:
    """`epoch` is the present one, once `begin` was called."""

    def __init__(self, producer_id: int | None, epoch: int | Epochs) -> None:
        if producer_id is None and epoch != 0:
            raise ConfigError("producer_epoch", epoch, "goes with a producer_id")
        if producer_id is not None and not 1 <= producer_id <= ID_MAX:
            raise ConfigError("producer_id", producer_id, f"must be from 1 to {ID_MAX}")
        self.producer_id = producer_id or random_id()
        self.epoch = 0 if callable(epoch) else checked_epoch(epoch)
        self._is_random = producer_id is None
        self._given = epoch

    @property
    def renews(self) -> bool:
        """Can a new epoch be begun?"""
        return self._is_random or callable(self._given)

    def begin(self) -> None:
        if callable(self._given):
            self.renew()

    def renew(self) -> None:
        """The next epoch. Only where `renews`."""
        if callable(self._given):
            self.epoch = checked_epoch(self._given())
        elif self.epoch < EPOCH_MAX:
            self.epoch += 1
        else:
            self.producer_id, self.epoch = random_id(), 0


class Destination:
    """One topic at one nsqd, or in a cluster: the numbers of our publishes there. `address`: of the
    last attempt. `stopped`: why there are no numbers any more."""

    def __init__(self, numbering: Numbering, is_shared: bool = False) -> None:
        self.address = ""
        self.is_shared = is_shared
        self.stopped = ""
        self._numbering = numbering
        self._used_s = 0.0
        self._take_epoch()

    def _take_epoch(self) -> None:
        self.producer_id = self._numbering.producer_id
        self.epoch = self._numbering.epoch
        self.sequence = 0

    def prepare(self, count: int, now_s: float) -> None:
        """Before a first attempt: do the present numbers suffice for `count` more messages?"""
        idle = self._used_s and now_s - self._used_s > IDLE_S_MAX
        if self.sequence + count > SEQUENCE_MAX or (idle and self._numbering.renews):
            self.spoil("the numbers of its epoch are used up")
        self._used_s = now_s

    def stored(self, count: int) -> None:
        self.sequence += count

    def spoil(self, reason: str) -> None:
        """The numbers from here on may be used: take fresh ones, or none at all."""
        if not self._numbering.renews:
            self.stopped = f"{reason}; go on with a higher producer_epoch"
            return
        try:
            self._numbering.renew()
            self._take_epoch()
        except (OSError, ConfigError) as error:
            self.stopped = f"{reason}; no new epoch: {error}"

    @property
    def options(self) -> list[tuple[str, str]]:
        numbers = (self.producer_id, self.epoch, self.sequence)
        names = ("producer_id", "producer_epoch", "sequence")
        return [(name, str(number)) for name, number in zip(names, numbers, strict=True)]


class EpochFile:
    """A small text file with the last epoch. Each call returns the next one, which the file holds
    before: restarted processes, or two started by mistake, never share one. A process that finds a
    newer epoch in the file stops, and does not fence the newer one.

    Raises OSError, and ConfigError when the file holds anything else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._given = -1  # the last one, by this object

    def __call__(self) -> int:
        disk = OsDisk()
        lock = disk.lock(f"{self._path}.lock")
        try:
            last = self._last()
            if self._given >= 0 and last != self._given:
                rule = f"another producer has begun it after our {self._given}"
                raise ConfigError(str(self._path), last, rule)
            epoch = last + 1
            replace_file(disk, str(self._path), b"%d\n" % checked_epoch(epoch))
            disk.sync_directory(str(self._path.absolute().parent))
        finally:
            lock.release()
        self._given = epoch
        return epoch

    def _last(self) -> int:
        try:
            text = self._path.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return -1
        if not text.isdecimal():
            raise ConfigError(str(self._path), text[:20], "must hold the last epoch, a number")
        return checked_epoch(int(text))


def random_id() -> int:
    """63 bits: two producers with the same one are not to be expected."""
    return secrets.randbits(63) or 1


def checked_epoch(epoch: int) -> int:
    if type(epoch) is not int or not 0 <= epoch <= EPOCH_MAX:
        raise ConfigError("producer_epoch", epoch, f"must be from 0 to {EPOCH_MAX}")
    return epoch
