"""The layouts of Python are those of the compiled kernel and of docs/formats.md."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from types import ModuleType

import pytest

from penstock.kernel import layout

from .batches import short_batch

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "src" / "penstock" / "kernel"
CODES = {  # of C's types, in the words of the compiled kernel
    "unsigned int": "I",
    "unsigned short": "H",
    "unsigned long long": "Q",
    "long long": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "i64": "q",
}


def compiled_format(text: str, name: str) -> str:
    """The format of a packed struct, its magic as a number."""
    (body,) = re.findall(rf"^cdef packed struct {name}:\n((?: +.+\n)+)", text, re.MULTILINE)
    fields = re.findall(r"^ +([a-z0-9 ]+) \w+", body, re.MULTILINE)
    return "<" + "".join(CODES[field] for field in fields)


@pytest.mark.parametrize(
    ("file", "name", "written"),
    [
        ("_codec.pxd", "batch_header_t", layout.HEADER),
        ("_codec.pxd", "short_header_t", layout.SHORT_HEADER),
        ("_codec.pxd", "event_t", layout.TRACE_RECORD),
        ("strays.pxi", "entry_t", layout.JOURNAL_ENTRY),
    ],
)
def test_the_compiled_structs_are_these(file: str, name: str, written: struct.Struct) -> None:
    text = (KERNEL / file).read_text()
    assert compiled_format(text, name) == written.format.replace("4s", "I")


def test_the_compiled_constants_are_these() -> None:
    text = (KERNEL / "_codec.pxd").read_text()
    found = {name: int(value, 0) for name, value in re.findall(r"(\w+) = (0x\w+|\d+)", text)}
    assert found["HEADER_BYTES"] == layout.HEADER_BYTES
    assert found["SHORT_HEADER_BYTES"] == layout.SHORT_HEADER_BYTES
    assert found["SHORT_MAGIC"].to_bytes(4, "little") == layout.SHORT_MAGIC
    assert found["BATCH_MAGIC"].to_bytes(4, "little") == layout.BATCH_MAGIC
    assert found["BATCH_CRC_FROM"] == layout.CRC_FROM
    assert found["BATCH_ALIGNMENT_BYTES"] == layout.ALIGNMENT_BYTES
    assert found["BATCH_FLAG_TRAILER"] == layout.FLAG_TRAILER
    assert found["SECTION_HEADER_BYTES"] == layout.SECTION_HEADER.size
    assert found["SECTION_BYTES_TYPE_MIN"] == layout.SECTION_BYTES_TYPE_MIN


def documented(section: str) -> list[tuple[int, int]]:
    """Offset and size of each field in the first table of a section of docs/formats.md."""
    text = (ROOT / "docs" / "formats.md").read_text().split(f"\n## {section}\n")[1]
    rows = re.findall(r"^\| (\d+) \| (\d+) \|", text.split("\n## ")[0], re.MULTILINE)
    return [(int(offset), int(size)) for offset, size in rows]


def fields_of(written: struct.Struct) -> list[tuple[int, int]]:
    found, end = [], 0
    for code in re.findall(r"\d*[a-zA-Z]", written.format):
        size = struct.calcsize("<" + code)
        found.append((end, size))
        end += size
    return found


def test_the_documented_fields_are_these() -> None:
    both = fields_of(layout.HEADER) + fields_of(layout.SHORT_HEADER)
    assert documented("The batch") == both
    record = fields_of(layout.TRACE_RECORD)
    assert documented("Trace events")[-len(record) :] == record


def test_the_docstring_has_the_same_fields() -> None:
    rows = re.findall(r"^    (\d+) +(\d+)  ", layout.__doc__ or "", re.MULTILINE)
    assert [(int(offset), int(size)) for offset, size in rows] == (
        fields_of(layout.HEADER) + fields_of(layout.SHORT_HEADER)
    )


def test_a_place_is_read_and_written(kernel: ModuleType) -> None:
    claims = {"producer_id": 9, "producer_epoch": 8, "first_sequence": 7, "leader_epoch": 6}
    batch = bytearray(8) + kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, **claims)
    assert layout.place_at(batch, 8) == (len(batch) - 8, 0, 41, 2)
    assert layout.base_offset_at(batch, 8) == 41
    moved = batch[8:]
    layout.put_place(moved, 50, 5 << 22, 100, 45)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]
    layout.put_place(moved, 50, 5 << 22, 100, 45, 3)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45, 3)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]


def test_a_batch_is_named_by_epoch_offset_and_crc(kernel: ModuleType) -> None:
    batch = bytearray(8) + kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, 6)
    crc = int.from_bytes(batch[12:16], "little")
    assert layout.name_at(batch, 8) == (6, 41, crc)


def test_the_same_of_the_short_form() -> None:
    batch = bytearray(8) + short_batch(b"body", 41, 4 << 22, 99, 1, 6)
    assert layout.place_at(batch, 8) == (48, 0, 41, 1)
    assert layout.base_offset_at(batch, 8) == 41
    assert layout.name_at(batch, 8) == (6, 41, int.from_bytes(batch[12:16], "little"))
