"""The number of a partition in a command, as Youzan's NSQ has it: `PUB <topic> [partition]`.

-1, or no word at all, leaves the choice to nsqd. NSQ itself ignores what follows a command's
parameters, and some clients count on that: in its own commands a word that does not begin as a
number is ignored.
Whether a topic has the partition is not known here.
"""

from __future__ import annotations

import re

from penstock.limits import PARTITIONS_MAX
from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote

ANY = -1  # partition
_BEGINS_AS_NUMBER = re.compile(rb"[+-]?[0-9]")
_RIGHT = re.compile(rb"-1|\+?0*([0-9]{1,3})")


def read_partition(command: bytes, text: bytes) -> int:
    """Of a command that is defined with a partition. Raises WireFault."""
    if text in (b"", b"-1"):
        return ANY
    found = _RIGHT.fullmatch(text)
    number = int(found[1]) if found else PARTITIONS_MAX
    if number >= PARTITIONS_MAX:
        raise bad_partition(command, text)
    return number


def read_extra(command: bytes, text: bytes) -> int:
    """Of the word behind the parameters of one of NSQ's commands. Raises WireFault."""
    return read_partition(command, text) if _BEGINS_AS_NUMBER.match(text) else ANY


def bad_partition(command: bytes, text: bytes) -> WireFault:
    return WireFault(Fault.BAD_PARTITION, command, quote(text))
