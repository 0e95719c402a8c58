"""That the numbers of the compiled modules are those of Python, and what is imported of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import kernel
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

KERNEL = Path(kernel.__file__).parent


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
WITHOUT_COMPILED = WITHOUT % (["_codec", "engine", "bulk"],)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (REPORT, "penstock.kernel._codec\n"),
        (WITHOUT_COMPILED + REPORT, "penstock.kernel.codec.hashes\n"),  # plain ones, in silence
        (WITHOUT_COMPILED + "import penstock.client, penstock.spark.decode", ""),
        ("import penstock.kernel, sys; print('penstock.kernel.engine' in sys.modules)", "False\n"),
    ],
)
def test_imports_of_the_package(code: str, given: str) -> None:
    done = run(code)
    assert (done.stdout, done.stderr, done.returncode) == (given, "", 0)


def test_nsqd_without_the_kernel_says_what_to_install() -> None:
    code = "from penstock.nsqd.main import main; sys.exit(main(['-data-path=/nowhere']))"
    done = run(WITHOUT_COMPILED + code)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the compiled kernel cannot be imported" in line
    assert "install a wheel of penstock" in line


# --- places and names of batches ---


def test_a_position_is_written_into_a_batch() -> None:
    claims = {"producer_id": 9, "producer_epoch": 8, "first_sequence": 7, "leader_epoch": 6}
    moved = bytearray(kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, **claims))
    layout.put_position(moved, 50, 5 << 22, 100, 45)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]
    layout.put_position(moved, 50, 5 << 22, 100, 45, 3)
    wanted = kernel.encode_batch([b"a", b"bc"], 50, 5 << 22, 100, 45, 3)
    assert moved[layout.CRC_FROM :] == wanted[layout.CRC_FROM :]


def test_a_batch_is_named_by_epoch_offset_and_crc() -> None:
    for batch in (
        kernel.encode_batch([b"a", b"bc"], 41, 4 << 22, 99, 40, 6),
        short_batch(b"body", 41, 4 << 22, 99, 1, 6),
    ):
        count = 1 if batch[:4] == layout.SHORT_MAGIC else 2
        behind = bytearray(8) + batch
        assert layout.head_at(behind, 8) == (len(batch), 0, 41, count)
        assert layout.base_offset_at(behind, 8) == 41
        assert layout.name_at(behind, 8) == (6, 41, int.from_bytes(batch[4:8], "little"))
