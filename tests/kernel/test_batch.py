"""The batch format: what is encoded comes back, and nothing damaged is called intact."""

import struct
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cases import each
from penstock import kernel
from penstock.kernel import BatchCheck, Columns, Section, Values, codec

from .batches import U64, U64_MAX, batch_arguments, section, short_batch, with_crc, with_trailer

BODIES = [b"first", b"", b"the third"]


def small(functions: ModuleType, **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "bodies": BODIES,
        "base_offset": 41,
        "base_id": 5 << 22 | 3 << 12 | 4094,
        "timestamp_ns": 1_700_000_000_000_000_000,
    }
    return functions.encode_batch(**arguments | changes)


class TestIds:
    def test_the_sequence_runs_into_the_next_tick(self, functions: ModuleType) -> None:
        base = 5 << 22 | 3 << 12 | 4094
        ids = [functions.id_at(base, index) for index in range(3)]
        assert ids == [base, 5 << 22 | 3 << 12 | 4095, 6 << 22 | 3 << 12]
        assert functions.id_at(base, 2 + 4096) == 7 << 22 | 3 << 12

    @given(base=U64, index=st.integers(0, 1 << 20), count=st.integers(1, 1 << 20))
    @example(base=U64_MAX, index=1, count=2)  # the last tick wraps to the first
    def test_index_is_the_way_back(
        self, functions: ModuleType, base: int, index: int, count: int
    ) -> None:
        id = functions.id_at(base, index)
        assert functions.id_index(base, count, id) == (index if index < count else -1)

    def test_above_the_last_one(self, functions: ModuleType) -> None:
        def at(tick: int, node: int, sequence: int) -> int:
            return tick << 22 | node << 12 | sequence

        def above(last_id: int, tick: int) -> int:
            id: int = functions.id_above(last_id, 3, 1288834974288 + tick << 20)
            return id

        assert above(at(4, 3, 9), 5) == at(5, 3, 0)
        assert above(at(5, 3, 9), 5) == above(at(5, 3, 9), 2) == at(5, 3, 10)
        assert above(at(5, 3, 4095), 5) == at(6, 3, 0)
        assert above(at(7, 2, 9), 7) == at(7, 3, 0)
        assert above(at(7, 4, 9), 7) == at(8, 3, 0)
        assert above(0, -7) == at(1, 3, 0)
        assert above(0, 1 << 41) == at((1 << 41) - 1, 3, 0)


class TestRoundTrip:
    @given(arguments=batch_arguments())
    def test_all_that_was_given_comes_back(
        self, functions: ModuleType, arguments: dict[str, Any]
    ) -> None:
        batch = functions.encode_batch(**arguments)
        data = b"\xee" * 8 + batch + b"\xee" * 3
        assert functions.check_batch(data, 8) == (BatchCheck.INTACT, len(batch))
        header = functions.decode_header(data, 8)
        for name in header._fields:
            if name in arguments:
                assert getattr(header, name) == arguments[name], name
        assert header.length == len(batch)
        assert header.count == len(arguments["bodies"])
        assert header.bodies_length == sum(map(len, arguments["bodies"]))
        assert functions.decode_bodies(data, 8) == arguments["bodies"]
        assert functions.decode_sections(data, 8) == arguments["sections"]

    @given(arguments=batch_arguments())
    def test_both_forms_write_the_same_bytes(self, arguments: dict[str, Any]) -> None:
        assert kernel.encode_batch(**arguments) == codec.encode_batch(**arguments)

    def test_the_bytes_are_those_of_the_table(self, functions: ModuleType) -> None:
        batch = small(
            functions,
            synced_end=40,
            leader_epoch=2,
            producer_id=77,
            producer_epoch=6,
            first_sequence=9,
        )
        header = struct.pack(
            "<4sIIHHQQqQQIIII",
            *(b"PSB1", functions.crc32c(batch[8:]), 104, 0, 6, 41, 5 << 22 | 3 << 12 | 4094),
            *(1_700_000_000_000_000_000, 40, 77, 9, 2, 3, 14),
        )
        content = struct.pack("<3I", 5, 0, 9) + b"firstthe third"
        assert batch == header + content + bytes(104 - 72 - len(content))

    def test_the_bytes_of_a_trailer(self, functions: ModuleType) -> None:
        batch = small(functions, sections={Section.KEY: {0: b"k", 2: b"ey"}, Section.DUE: {1: -2}})
        due = section(3, struct.pack("<IIq", 1, 1, -2))
        key = section(64, struct.pack("<IIIII", 2, 0, 2, 1, 2) + b"key")
        trailer_at = 72 + 12 + 14
        assert batch[12:14] == b"\x01\x00"
        assert batch[trailer_at:] == due + key + bytes(-(trailer_at + len(due + key)) % 8)

    def test_empty_tables_are_no_trailer(self, functions: ModuleType) -> None:
        assert small(functions, sections={Section.DUE: {}}) == small(functions)
        assert functions.decode_sections(small(functions), 0) == {}


class TestEncodeRefuses:
    @each(
        "changes",
        [
            {"bodies": []},
            {"sections": {Section.DUE: {3: 1}}},  # a message that is not there
            {"sections": {Section.DUE: {-1: 1}}},
            {"sections": {6: {0: 1}}},  # no such section
            {"sections": {0: {0: 1}}},
        ],
    )
    def test_invalid_arguments(self, functions: ModuleType, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - the class is the contract
            small(functions, **changes)

    @each(
        "changes",
        [
            {"base_offset": -1},
            {"base_offset": (1 << 63) - 3},
            {"base_id": 1 << 64},
            {"timestamp_ns": 1 << 63},
            {"leader_epoch": 1 << 32},
            {"producer_epoch": 1 << 16},
            {"first_sequence": -1},
            {"sections": {Section.TIMESTAMP: {0: 1 << 63}}},
            {"sections": {Section.TRACE: {0: -1}}},
        ],
    )
    def test_numbers_too_large_for_their_field(
        self, functions: ModuleType, changes: dict[str, Any]
    ) -> None:
        with pytest.raises(OverflowError):
            small(functions, **changes)


class TestCheck:
    @pytest.mark.parametrize("is_short", [False, True])
    def test_every_flipped_bit_and_every_truncation_is_seen(
        self, functions: ModuleType, is_short: bool
    ) -> None:
        sections = {Section.KEY: {1: b"key"}, Section.ID: {0: 7}}
        whole = short_batch(b"some body", 41, 5 << 22, 99, 3, 2)
        batch = bytearray(whole if is_short else small(functions, sections=sections))
        for length in range(len(batch)):
            claim = len(batch) if length >= 12 else 0
            assert functions.check_batch(batch[:length], 0) == (BatchCheck.SHORT, claim), length
        for index in range(8 * len(batch)):
            batch[index // 8] ^= 1 << index % 8
            assert functions.check_batch(batch, 0)[0] != BatchCheck.INTACT, index
            batch[index // 8] ^= 1 << index % 8
        assert functions.check_batch(batch, 0)[0] == BatchCheck.INTACT

    @pytest.mark.parametrize("data", [bytes(100), b"PSB2" + bytes(100), b"PX", b"\0"])
    def test_foreign_bytes(self, functions: ModuleType, data: bytes) -> None:
        assert functions.check_batch(data, 0) == (BatchCheck.NO_MAGIC, 0)
        assert functions.check_batches(data, 41) == (0, 41, 0)

    def test_how_far_batches_follow_one_another(self, functions: ModuleType) -> None:
        count = functions.decode_header(small(functions), 0).count
        one, two, three = (
            small(functions, base_offset=offset) for offset in (41, 41 + count, 41 + 2 * count)
        )
        both = len(one + two)
        check, end = functions.check_batches, 41 + 2 * count
        assert check(b"", 41) == (0, 41, 0)
        assert check(one + two + three, 41, end) == (both, end, 0)  # as far as is asked for
        assert check(one + two + three[:-1], 41) == (both, end, len(three))
        assert check(one + two + three[:10], 41) == (both, end, 0)  # that does not say its length
        assert check(one + two + b"\0" * 64, 41) == (both, end, 0)
        assert check(one + three, 41) == (len(one), 41 + count, 0)  # one is missing
        assert check(one, 40) == (0, 40, 0)
        assert check(one + two[:-8] + b"\1" * 8, 41) == (len(one), 41 + count, 0)

    @each(
        ("format", "at", "value"),
        [
            ("<I", 8, 96),  # shorter than what it holds
            ("<I", 8, 103),  # not a multiple of 8
            ("<I", 8, 112),  # more padding than is needed
            ("<I", 8, 0),
            ("<H", 12, 2),  # a flag that nobody knows
            ("<H", 12, 0x8001),
            ("<Q", 16, (1 << 63) - 3),  # offsets past the last one
            ("<I", 64, 0),  # no message
            ("<I", 64, 2),
            ("<I", 64, 0xFFFFFFFF),  # count * 4 is past 32 bits
            ("<I", 64, 0x40000000),  # count * 4 wraps to 0 in 32 bits
            ("<I", 68, 13),  # not the sum of the lengths
            ("<I", 68, 0xFFFFFFFF),
            ("<I", 72, 6),
            ("<I", 72, 0xFFFFFFFF),
            ("<B", 98, 1),  # padding
            ("<B", 103, 1),
        ],
    )
    def test_impossible_numbers_under_a_right_crc(
        self, functions: ModuleType, format: str, at: int, value: int
    ) -> None:
        batch = bytearray(small(functions) + bytes(64))
        struct.pack_into(format, batch, at, value)
        length = struct.unpack_from("<I", batch, 8)[0]
        forged = with_crc(bytes(batch[: max(length, 104)])) if length else bytes(batch)
        assert functions.check_batch(forged, 0) == (BatchCheck.BAD_FIELDS, length)

    def test_lengths_that_wrap_to_the_right_sum(self, functions: ModuleType) -> None:
        batch = bytearray(small(functions))
        struct.pack_into("<3I", batch, 72, 0xFFFFFFFF, 6, 9)  # 14 in 32 bits
        assert functions.check_batch(with_crc(bytes(batch)), 0)[0] == BatchCheck.BAD_FIELDS
        with pytest.raises(ValueError, match="no whole batch at 0"):
            functions.decode_bodies(batch, 0)


DUE = section(3, struct.pack("<IIq", 1, 1, -2))


class TestTrailer:
    @each(
        ("trailer", "expected"),
        [
            (b"", {}),
            (bytes(16), {}),  # ends at type 0
            (DUE + bytes(24), {3: {1: -2}}),
            (section(9, b"whatever", flags=5) + DUE, {3: {1: -2}}),  # unknown types are skipped
            (section(63, b"") + section(66, b"\xff" * 11) + DUE, {3: {1: -2}}),
            (DUE + section(3, struct.pack("<IIq", 1, 0, 8)), {3: {1: -2, 0: 8}}),
            (section(5, struct.pack("<I", 0)), {5: {}}),
        ],
    )
    def test_intact(
        self, functions: ModuleType, trailer: bytes, expected: dict[int, dict[int, int]]
    ) -> None:
        batch = with_trailer(trailer, BODIES)
        assert functions.check_batch(batch, 0) == (BatchCheck.INTACT, len(batch))
        assert functions.decode_sections(batch, 0) == expected

    @each(
        "trailer",
        [
            struct.pack("<HHI", 9, 0, 1000),  # runs past the end, known or not
            struct.pack("<HHI", 3, 0, 0xFFFFFFFF) + bytes(20),
            section(3, struct.pack("<IIq", 1, 1, 5), flags=1),
            section(3, b""),  # no room for the number of entries
            section(3, b"\1\0\0"),
            section(3, struct.pack("<IIq", 2, 1, 5)),  # fewer entries than announced
            section(3, struct.pack("<IIq", 0xFFFFFFFF, 1, 5)),
            section(3, struct.pack("<IIqq", 1, 1, 5, 5)),  # more
            section(3, struct.pack("<IIIqq", 2, 1, 1, 5, 5)),  # indexes that do not rise
            section(3, struct.pack("<IIIqq", 2, 1, 0, 5, 5)),
            section(3, struct.pack("<IIq", 1, 3, 5)),  # a message that is not there
            section(64, struct.pack("<III", 1, 0, 4) + b"abc"),  # lengths that do not add up
            section(64, struct.pack("<III", 1, 0, 2) + b"abc"),
            section(64, struct.pack("<5I", 2, 0, 1, 0xFFFFFFFF, 4) + b"abc"),  # 3 in 32 bits
            section(64, struct.pack("<II", 1, 0)),
            DUE + bytes(8) + b"\1",  # something behind the end
            DUE + bytes(9) + b"\1" + bytes(30),
        ],
    )
    def test_malformed_under_a_right_crc(self, functions: ModuleType, trailer: bytes) -> None:
        batch = with_trailer(trailer, BODIES)
        assert functions.check_batch(batch, 0) == (BatchCheck.BAD_FIELDS, len(batch))
        with pytest.raises(ValueError, match=r"malformed|section|padding"):
            functions.decode_sections(batch, 0)


class TestDecodeRefuses:
    @pytest.mark.parametrize("decode", ["decode_header", "decode_bodies", "decode_sections"])
    def test_where_no_batch_begins(self, functions: ModuleType, decode: str) -> None:
        for data, position in ((b"", 0), (bytes(100), 4), (small(functions)[:71], 0)):
            with pytest.raises(ValueError, match=f"no batch header at {position}"):
                getattr(functions, decode)(data, position)

    @pytest.mark.parametrize("decode", ["decode_bodies", "decode_sections"])
    def test_half_a_batch(self, functions: ModuleType, decode: str) -> None:
        with pytest.raises(ValueError, match="no whole batch at 8"):
            getattr(functions, decode)(bytes(8) + small(functions)[:-8], 8)


class TestShort:
    """The short form, of a message alone."""

    def test_the_bytes_are_those_of_the_table(self, functions: ModuleType) -> None:
        batch = short_batch(b"body", 41, 5 << 22, 99, 3, 2)
        assert len(batch) == 48
        assert functions.check_batch(batch, 0) == (BatchCheck.INTACT, 48)
        wanted = (48, 0, 0, 41, 5 << 22, 99, 38, 0, 0, 2, 1, 4)
        assert functions.decode_header(bytes(8) + batch[:40], 8) == wanted
        assert functions.decode_bodies(batch, 0) == [b"body"]
        assert functions.decode_sections(batch, 0) == {}

    @each(
        ("format", "at", "value", "length"),
        [
            ("<I", 8, 0, 40),  # more padding than is needed
            ("<I", 8, 0xFFFFFFFF, 40),  # its length is past 32 bits
            ("<I", 8, 0xFFFFFFD8, 0),
            ("<H", 14, 42, 56),  # the synced end is below the first offset
            ("<Q", 16, (1 << 63) - 1, 56),  # offsets past the last one
            ("<B", 55, 1, 56),  # padding
        ],
    )
    def test_impossible_numbers_under_a_right_crc(
        self, functions: ModuleType, format: str, at: int, value: int, length: int
    ) -> None:
        batch = bytearray(short_batch(b"some body", 41, 5 << 22, 99))
        struct.pack_into(format, batch, at, value)
        forged = with_crc(bytes(batch[: length or 56]))
        wanted = BatchCheck.INTACT if (at, value) == (8, 0) else BatchCheck.BAD_FIELDS
        assert functions.check_batch(forged, 0) == (wanted, length)


# --- columns: what a reader gets row by row, in the layout that Arrow and numpy take as it is ---


def rows_of(columns: Columns) -> list[tuple[int, int, int, int, bytes]]:
    """Offset, timestamp, id, attempts and body of each."""
    numbers = [
        np.frombuffer(column, type_).tolist()
        for column, type_ in (
            (columns.offsets, "<i8"),
            (columns.timestamps, "<i8"),
            (columns.ids, "<u8"),
            (columns.attempts, "<u2"),
        )
    ]
    ends = np.frombuffer(columns.body_offsets, "<i8").tolist()
    bodies = [bytes(columns.bodies[a:b]) for a, b in pairwise(ends)]
    return list(zip(*numbers, bodies, strict=True))


def expected_rows(arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
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
def test_rows_and_sections_are_those_of_the_batches(
    functions: ModuleType, batches: list[dict[str, Any]]
) -> None:
    data = b"".join(functions.encode_batch(**arguments) for arguments in batches)
    columns = functions.decode_columns(data, TEXTS)
    rows = [row for arguments in batches for row in expected_rows(arguments)]
    assert (columns.count, rows_of(columns)) == (len(rows), rows)
    assert functions.decode_columns(data) == columns._replace(sections=())
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


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda batch: batch[:-8], "SHORT"),
        (lambda batch: bytes(len(batch)), "NO_MAGIC"),
        (lambda batch: batch[:75] + b"\xff" + batch[76:], "BAD_CRC"),
        (lambda batch: batch[:64] + bytes(4) + batch[68:], "BAD_FIELDS"),
    ],
)
def test_a_corrupt_batch_is_named(functions: ModuleType, damage: Any, name: str) -> None:
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
    position = {name: arguments[name] for name in ("base_offset", "base_id", "timestamp_ns")}
    plain = {**position, "bodies": arguments["bodies"], "sections": arguments["sections"]}
    lengths, bodies, trailer = parts_of(functions, plain)
    made = functions.encode_columns(lengths, bodies, **position, trailer=trailer)
    assert made == functions.encode_batch(**plain)
    assert functions.check_batch(made, 0) == (BatchCheck.INTACT, len(made))


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
