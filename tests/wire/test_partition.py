"""The number of a partition behind a topic; a word that does not begin as one is ignored in
NSQ's own commands only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cases import each
from penstock.wire.errors import Fault, WireFault
from penstock.wire.partition import ANY, read_extra, read_partition


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
def test_what_no_topic_can_have_is_refused(
    read: Callable[[bytes, bytes], int], text: bytes
) -> None:
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
