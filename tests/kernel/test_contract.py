"""What the compiled modules refuse, and that their numbers and layouts are those of Python."""

import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import penstock.kernel
from penstock.kernel import (
    BadPub,
    Cause,
    Cut,
    Event,
    Held,
    Locality,
    Order,
    TraceKind,
    Verb,
    layout,
)

from .batches import short_batch

KERNEL = Path(penstock.kernel.__file__).parent


def test_the_numbers_are_those_of_types() -> None:
    """Wherever the compiled kernel has a number under the name of a member, it is the same."""
    text = "".join(path.read_text() for path in sorted(KERNEL.glob("*.p[yx][xdi]")))
    blocks = re.findall(r"^cdef enum:  # (\w+).*\n((?: +\w+ = .+\n)+)", text, re.MULTILINE)
    kinds = {kind.__name__: kind for kind in (BadPub, Cause, Cut, Event, Held, Locality, Order,
                                              TraceKind, Verb)}  # fmt: skip
    seen = set()
    for name, block in blocks:
        if name not in kinds:
            continue
        values = {int(value) for value in re.findall(r" = (\d+)", block)}
        assert values <= {int(member) for member in kinds[name]}, name
        for member, value in re.findall(r"(\w+) = (\d+)", block):
            if member in kinds[name].__members__:
                assert kinds[name][member] == int(value), member
                seen.add(name)
    assert {"Event", "Verb", "BadPub", "Locality", "TraceKind", "Held"} <= seen


# --- what a process gets: the compiled kernel, or without it the functions over bytes alone ---


REPORT = "from penstock import kernel; print(kernel.crc32c.__module__)"
WITHOUT = "import sys; sys.modules.update({f'penstock.kernel.{n}': None for n in %r}); "
WITHOUT_COMPILED = WITHOUT % (["_codec", "engine", "window", "bulk"],)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (REPORT, "penstock.kernel._codec\n"),
        (WITHOUT_COMPILED + REPORT, "penstock.kernel.codec.hashes\n"),  # plain ones, in silence
        (WITHOUT_COMPILED + "import penstock.client, penstock.spark.decode", ""),
        ("import penstock.kernel, sys; print('penstock.kernel.engine' in sys.modules)", "False\n"),
    ],
)
def test_what_is_imported(code: str, said: str) -> None:
    done = run(code)
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)


def test_nsqd_without_it_says_what_to_install() -> None:
    code = "from penstock.nsqd.main import main; sys.exit(main(['-data-path=/nowhere']))"
    done = run(WITHOUT_COMPILED + code)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the compiled kernel cannot be imported" in line
    assert "install a wheel of penstock" in line


# --- the layouts of Python are those of the compiled kernel and of docs/formats.md ---


ROOT = Path(__file__).resolve().parents[2]
KERNEL_LAYOUT = ROOT / "src" / "penstock" / "kernel"
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
    text = (KERNEL_LAYOUT / file).read_text()
    assert compiled_format(text, name) == written.format.replace("4s", "I")


def test_the_compiled_constants_are_these() -> None:
    text = (KERNEL_LAYOUT / "_codec.pxd").read_text()
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


def test_a_place_is_written(kernel: ModuleType) -> None:
    claims = {"producer_id": 9, "producer_epoch": 8, "first_sequence": 7, "leader_epoch": 6}
    moved = bytearray(kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, **claims))
    layout.put_place(moved, 50, 5 << 22, 100, 45)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]
    layout.put_place(moved, 50, 5 << 22, 100, 45, 3)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45, 3)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]


def test_a_batch_is_named_by_epoch_offset_and_crc(kernel: ModuleType) -> None:
    for batch in (
        kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, 6),
        short_batch(b"body", 41, 4 << 22, 99, 1, 6),
    ):
        count = 1 if batch[:4] == layout.SHORT_MAGIC else 2
        behind = bytearray(8) + batch
        assert layout.place_at(behind, 8) == (len(batch), 0, 41, count)
        assert layout.base_offset_at(behind, 8) == 41
        assert layout.name_at(behind, 8) == (6, 41, int.from_bytes(batch[4:8], "little"))
