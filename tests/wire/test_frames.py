from collections.abc import Callable

import pytest

from cases import each
from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import (
    ANY,
    NUMBER_MAX,
    is_valid_name,
    parse_number,
    quote,
    read_extra,
    read_partition,
)
from penstock.wire.states import COMMANDS, State, Verdict


@each(
    ("name", "valid"),
    [
        (b"a", True),
        (b"A.b_c-9", True),
        (b".", True),
        (b"x" * 64, True),
        (b"x" * 54 + b"#ephemeral", True),
        (b"x" * 65, False),
        (b"x" * 60 + b"#ephemeral", False),
        (b"", False),
        (b"#ephemeral", False),
        (b"a#ephemeral#ephemeral", False),
        (b"a#other", False),
        (b"a\n", False),
        ("a.b-c#ephemeral", True),
        ("ä\ud800\udcff", False),
    ],
)
def test_valid_names(name: bytes | str, valid: bool) -> None:
    assert is_valid_name(name) is valid


@each(
    ("name", "quoted"),
    [
        (b"x", b'"x"'),
        (b"", b'""'),
        (b'a"b\\c', b'"a\\"b\\\\c"'),
        (b"\a\b\f\n\r\t\v", b'"\\a\\b\\f\\n\\r\\t\\v"'),
        (b"\x00\x1f\x7f", b'"\\x00\\x1f\\x7f"'),
        (b"\xff\xc3", b'"\\xff\\xc3"'),
        ("ä€😀".encode(), '"ä€😀"'.encode()),
        ("\u00a0\u2028".encode(), b'"\\u00a0\\u2028"'),
        ("\U000e0001".encode(), b'"\\U000e0001"'),
    ],
)
def test_quoting_is_that_of_go(name: bytes, quoted: bytes) -> None:
    assert quote(name) == quoted


@each(
    ("text", "number"),
    [
        (b"", 0),
        (b"0", 0),
        (b"007", 7),
        (b"2500", 2500),
        (b"0" * 30 + b"1", 1),
        (b"18446744073709551615", NUMBER_MAX),
        (b"18446744073709551616", NUMBER_MAX),
        (b"9" * 10_000, NUMBER_MAX),
    ],
)
def test_digits_are_a_number(text: bytes, number: int) -> None:
    assert parse_number(text) == number


@each("text", [b"-1", b"+1", b" 1", b"1 ", b"0x1", b"1.0", b"1e3", b"1_0", b"\xb2", "٣".encode()])
def test_anything_else_is_not(text: bytes) -> None:
    assert parse_number(text) is None


# --- the number of a partition behind a topic ---


@each(
    ("text", "number"),
    [(b"", ANY), (b"-1", ANY), (b"0", 0), (b"00", 0), (b"+0", 0), (b"7", 7), (b"+007", 7),
     (b"254", 254), (b"0" * 40 + b"3", 3)],
)  # fmt: skip
def test_a_number_is_read(text: bytes, number: int) -> None:
    assert read_partition(b"PUB_TRACE", text) == number
    assert read_extra(b"SUB", text) == number


@each("text", [b"255", b"-2", b"-0", b"1000", b"9" * 40, b"1x", b"0x", b"1.0", b"0\n"])
@each("read", [read_partition, read_extra])
def test_invalid_partitions_are_refused(read: Callable[[bytes, bytes], int], text: bytes) -> None:
    with pytest.raises(WireFault) as refused:
        read(b"SUB", text)
    assert refused.value.fault is Fault.BAD_PARTITION
    assert refused.value.data == b'E_BAD_PARTITION SUB partition "%b" is not valid' % text.replace(
        b"\n", b"\\n"
    )


@each("text", [b"x", b"x1", b"-"])
def test_a_word_that_is_no_number_is_refused_where_a_partition_is_due(text: bytes) -> None:
    with pytest.raises(WireFault, match="E_BAD_PARTITION"):
        read_partition(b"PUB_TRACE", text)
    assert read_extra(b"SUB", text) == ANY


YES, NO, SKIP = Verdict.ALLOWED, Verdict.REFUSED, Verdict.IGNORED

# command: init, subscribed, closing; as the protocol's documentation has it
EXPECTED = {
    b"IDENTIFY": (YES, NO, NO),
    b"AUTH": (YES, NO, NO),
    b"SUB": (YES, NO, NO),
    b"SUB_ORDERED": (YES, NO, NO),
    b"SUB_ADVANCED": (YES, NO, NO),
    b"RDY": (NO, YES, SKIP),
    b"FIN": (NO, YES, YES),
    b"REQ": (NO, YES, YES),
    b"TOUCH": (NO, YES, YES),
    b"CLS": (NO, YES, NO),
    b"PUB": (YES, YES, YES),
    b"MPUB": (YES, YES, YES),
    b"DPUB": (YES, YES, YES),
    b"PUB_TRACE": (YES, YES, YES),
    b"MPUB_TRACE": (YES, YES, YES),
    b"PUB_EXT": (YES, YES, YES),
    b"MPUB_EXT": (YES, YES, YES),
    b"NOP": (YES, YES, YES),
}


def test_the_table_is_complete() -> None:
    assert {name: tuple(map(row.get, State)) for name, row in COMMANDS.items()} == EXPECTED
