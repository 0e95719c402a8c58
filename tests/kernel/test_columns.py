"""Columns: what a reader gets row by row, in the layout that Arrow and numpy take as it is."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel import BatchCheck, Columns, Section, Values

from .batches import batch_arguments, section, with_trailer


def as_arrays(columns: Columns) -> dict[str, Any]:
    return {
        "offsets": np.frombuffer(columns.offsets, "<i8"),
        "timestamps": np.frombuffer(columns.timestamps, "<i8"),
        "ids": np.frombuffer(columns.ids, "<u8"),
        "attempts": np.frombuffer(columns.attempts, "<u2"),
        "body_offsets": np.frombuffer(columns.body_offsets, "<i8"),
    }


def rows_of(columns: Columns) -> list[tuple[int, int, int, int, bytes]]:
    arrays = as_arrays(columns)
    ends = arrays["body_offsets"].tolist()
    bodies = [bytes(columns.bodies[a:b]) for a, b in pairwise(ends)]
    named = (arrays[name].tolist() for name in ("offsets", "timestamps", "ids", "attempts"))
    return list(zip(*named, bodies, strict=True))


def expected_rows(codec: ModuleType, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
    own = arguments["sections"]
    return [
        (
            arguments["base_offset"] + index,
            own.get(Section.TIMESTAMP, {}).get(index, arguments["timestamp_ns"]),
            own.get(Section.ID, {}).get(index, codec.id_at(arguments["base_id"], index)),
            min(max(own.get(Section.ATTEMPTS, {}).get(index, 0), 0), 65535),
            body,
        )
        for index, body in enumerate(arguments["bodies"])
    ]


@given(batches=st.lists(batch_arguments(), max_size=4))
def test_rows_are_those_of_the_batches(
    functions: ModuleType, codec: ModuleType, batches: list[dict[str, Any]]
) -> None:
    data = b"".join(functions.encode_batch(**arguments) for arguments in batches)
    columns = functions.decode_columns(data)
    expected = [row for arguments in batches for row in expected_rows(codec, arguments)]
    assert columns.count == len(expected)
    assert rows_of(columns) == expected


TEXTS = (Section.HEADERS, Section.KEY)


def texts_of(values: Values | None, count: int) -> list[bytes | None]:
    if values is None:
        return [None] * count
    ends = np.frombuffer(values.offsets, "<i8").tolist()
    bits = np.unpackbits(np.frombuffer(values.present, np.uint8), bitorder="little")
    assert not bits[count:].any()
    rows = [bytes(values.values[a:b]) for a, b in pairwise(ends)]
    return [row if bit else None for row, bit in zip(rows, bits[:count], strict=True)]


@given(batches=st.lists(batch_arguments(), max_size=4))
def test_sections_of_bytes_are_columns_too(
    functions: ModuleType, batches: list[dict[str, Any]]
) -> None:
    data = b"".join(functions.encode_batch(**arguments) for arguments in batches)
    columns = functions.decode_columns(data, TEXTS)
    for section_, values in zip(TEXTS, columns.sections, strict=True):
        expected = [
            arguments["sections"].get(section_, {}).get(index)
            for arguments in batches
            for index in range(len(arguments["bodies"]))
        ]
        assert texts_of(values, columns.count) == expected
        assert (values is None) == all(text is None for text in expected)


def test_of_two_tables_the_last_one_counts(functions: ModuleType) -> None:
    def table(*entries: tuple[int, bytes]) -> bytes:
        indexes = struct.pack(f"<{len(entries)}I", *(index for index, _ in entries))
        lengths = struct.pack(f"<{len(entries)}I", *(len(text) for _, text in entries))
        texts = b"".join(text for _, text in entries)
        count = struct.pack("<I", len(entries))
        return section(Section.KEY, count + indexes + lengths + texts)

    trailer = table((0, b"a"), (1, b"before")) + table((1, b""), (2, b"c"))
    columns = functions.decode_columns(with_trailer(trailer, [b"x"] * 4), (Section.KEY,))
    assert texts_of(columns.sections[0], 4) == [b"a", b"", b"c", None]


def test_a_section_of_numbers_is_no_column_of_bytes(functions: ModuleType) -> None:
    with pytest.raises(ValueError, match="section 5 holds no bytes"):
        functions.decode_columns(b"", (Section.TRACE,))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda batch: batch[:-8], "SHORT"),
        (lambda batch: bytes(len(batch)), "NO_MAGIC"),
        (lambda batch: batch[:75] + b"\xff" + batch[76:], "BAD_CRC"),
        (lambda batch: batch[:64] + bytes(4) + batch[68:], "BAD_FIELDS"),
    ],
)
def test_a_batch_that_is_not_sound_is_named(functions: ModuleType, damage: Any, name: str) -> None:
    batch = functions.encode_batch([b"body"] * 5, 0, 0, 0)
    with pytest.raises(ValueError, match=rf"batch at {len(batch)}: {name}$"):
        functions.decode_columns(batch + damage(batch))


# --- the way back ---


def parts_of(functions: ModuleType, arguments: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """(lengths, bodies, trailer) of a batch as encode_batch makes it."""
    bodies = arguments["bodies"]
    whole = functions.encode_batch(**arguments)
    header = functions.decode_header(whole, 0)
    end = 72 + 4 * len(bodies) + sum(map(len, bodies))
    trailer = whole[end:] if header.flags else b""
    return struct.pack(f"<{len(bodies)}I", *map(len, bodies)), b"".join(bodies), trailer


@given(arguments=batch_arguments())
def test_a_batch_of_columns_is_the_batch_of_its_messages(
    functions: ModuleType, arguments: dict[str, Any]
) -> None:
    place = {name: arguments[name] for name in ("base_offset", "base_id", "timestamp_ns")}
    plain = {**place, "bodies": arguments["bodies"], "sections": arguments["sections"]}
    lengths, bodies, trailer = parts_of(functions, plain)
    made = functions.encode_columns(lengths, bodies, **place, trailer=trailer)
    assert made == functions.encode_batch(**plain)
    assert functions.check_batch(made, 0) == (BatchCheck.SOUND, len(made))


@each(
    ("lengths", "bodies", "trailer", "reason"),
    [
        (b"", b"", b"", "at least one message"),
        (bytes(5), b"", b"", "at least one message"),
        (bytes(8), b"a", b"", "do not add up"),
        (struct.pack("<2I", 1, 0xFFFFFFFF), b"a", b"", "do not add up"),
        (struct.pack("<I", 1), b"a", b"\1\0\0\0\4", "trailer is malformed"),
        (struct.pack("<I", 1), b"a", section(1, struct.pack("<IIq", 1, 1, 5)), "is malformed"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    functions: ModuleType, lengths: bytes, bodies: bytes, trailer: bytes, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        functions.encode_columns(lengths, bodies, 0, 0, 0, trailer)


@pytest.mark.parametrize("offset", [(1 << 63) - 1, -1])
def test_a_batch_of_columns_has_a_possible_offset(functions: ModuleType, offset: int) -> None:
    with pytest.raises(OverflowError):
        functions.encode_columns(bytes(4), b"", offset, 0, 0)
