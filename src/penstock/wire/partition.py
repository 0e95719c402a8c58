"""The number of a partition in a command, as Youzan's NSQ has it: `PUB <topic> [partition]`.

A topic has one partition on a node, number 0; -1 is whichever there is. Another number would be a
promise that nobody keeps, so it is refused. NSQ itself ignores what follows a command's
parameters, and some clients count on that: in its own commands a word that is no number is ignored.
"""

from __future__ import annotations

import re

from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote

_OURS = re.compile(rb"-1|\+?0+")
_NUMBER = re.compile(rb"[+-]?[0-9]+")


def check_partition(command: bytes, text: bytes) -> None:
    """Of a command that is defined with a partition. Raises WireFault."""
    if text and not _OURS.fullmatch(text):
        raise WireFault(Fault.BAD_PARTITION, command, quote(text))


def check_extra(command: bytes, text: bytes) -> None:
    """Of the word behind the parameters of one of NSQ's commands. Raises WireFault."""
    if _NUMBER.fullmatch(text):
        check_partition(command, text)
