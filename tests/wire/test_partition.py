"""The number of a partition behind a topic: 0 and -1 are served, and what is no number is ignored
in NSQ's own commands only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.wire.errors import Fault, WireFault
from penstock.wire.partition import check_extra, check_partition

OURS = [b"", b"0", b"00", b"+0", b"-1"]
OTHERS = [b"1", b"-2", b"+1", b"-0", b"9" * 40]
NO_NUMBERS = [b"x", b"0x", b"1 2", b"-", b"0\n"]


@pytest.mark.parametrize("text", OURS)
def test_the_one_partition_has_several_names(text: bytes) -> None:
    check_partition(b"PUB_TRACE", text)
    check_extra(b"PUB", text)


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("check", [check_partition, check_extra])
def test_another_partition_is_refused(check: Callable[[bytes, bytes], None], text: bytes) -> None:
    with pytest.raises(WireFault) as refused:
        check(b"SUB", text)
    assert refused.value.fault is Fault.BAD_PARTITION
    assert refused.value.data == b'E_BAD_PARTITION SUB partition "%b" is not valid' % text


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_word_that_is_no_number_is_refused_where_a_partition_is_due(text: bytes) -> None:
    with pytest.raises(WireFault, match="E_BAD_PARTITION"):
        check_partition(b"PUB_TRACE", text)
    check_extra(b"PUB", text)
