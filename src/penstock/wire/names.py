"""Topic and channel names: valid names, ephemeral ones, and their form in errors.

A name is 1 to 64 characters of `. a-z A-Z 0-9 _ -`, optionally followed by `#ephemeral`; the
suffix counts towards the 64. Names in error texts are quoted the way Go's `%q` does it, because
clients and tests match these bytes.
"""

import re

from penstock import limits
from penstock.limits import PARTITIONS_MAX
from penstock.wire.errors import Fault, WireFault

EPHEMERAL_SUFFIX = "#ephemeral"

_NAME = re.compile(rb"[.a-zA-Z0-9_-]+(?:#ephemeral)?")
_SHORT_ESCAPES = dict(zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True))
_RAW_BYTE_FIRST = 0xDC80  # where `surrogateescape` puts bytes that are not UTF-8
_RAW_BYTE_LAST = 0xDCFF


def is_valid_name(name: bytes | str) -> bool:
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogatepass")
    return len(name) <= limits.NAME_BYTES_MAX and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL_SUFFIX)


def quote(name: bytes) -> bytes:
    """`name` between double quotes, escaped as Go's `%q` does."""
    text = name.decode("utf-8", "surrogateescape")
    return b'"' + "".join(map(_quote_character, text)).encode("utf-8") + b'"'


def _quote_character(character: str) -> str:
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return f"\\{short}"
    code = ord(character)
    if _RAW_BYTE_FIRST <= code <= _RAW_BYTE_LAST:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


NUMBER_MAX = (1 << 64) - 1

_DIGITS_MAX = 20  # of NUMBER_MAX; longer numbers need no conversion to be known as too large


def parse_number(text: bytes) -> int | None:
    """A decimal number in a command line; None when `text` holds anything but digits. Nothing at
    all means zero.

    NSQ takes no sign, blank or prefix in RDY, REQ and DPUB. Its own parser lets a 64-bit number
    overflow silently; here a number that is too large stays at the largest one, which every range
    check refuses and every clamp clamps.
    """
    if not text:
        return 0
    if not text.isdigit():
        return None
    significant = text.lstrip(b"0")
    if len(significant) > _DIGITS_MAX:
        return NUMBER_MAX
    return min(int(significant or b"0"), NUMBER_MAX)


ANY = -1  # partition
_BEGINS_AS_NUMBER = re.compile(rb"[+-]?[0-9]")
_RIGHT = re.compile(rb"-1|\+?0*([0-9]{1,3})")


def read_partition(command: bytes, text: bytes) -> int:
    """The partition in a command of Youzan's NSQ, which is defined with one: `PUB_EXT <topic>
    [partition]`. -1, or no word at all, leaves the choice to nsqd. Raises WireFault.

    Whether a topic has the partition is not known here.
    """
    if text in (b"", b"-1"):
        return ANY
    found = _RIGHT.fullmatch(text)
    number = int(found[1]) if found else PARTITIONS_MAX
    if number >= PARTITIONS_MAX:
        raise bad_partition(command, text)
    return number


def read_extra(command: bytes, text: bytes) -> int:
    """The same for the word behind the parameters of one of NSQ's own commands. NSQ ignores it, and
    some clients count on that: so is a word that does not begin as a number."""
    return read_partition(command, text) if _BEGINS_AS_NUMBER.match(text) else ANY


def bad_partition(command: bytes, text: bytes) -> WireFault:
    return WireFault(Fault.BAD_PARTITION, command, quote(text))
