from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.index import ENTRY_BYTES, IndexEntry, SparseIndex, encode_entries, load_index
from sim.disk import Fault, SimDisk

DATA_BYTES = 100_000


def entries(count: int, base: int = 100) -> list[IndexEntry]:
    return [IndexEntry(base + 10 * n, 800 * n, 5000 + n, 7000 + 100 * n) for n in range(count)]


def index_of(rows: list[IndexEntry], path: str = "i") -> SparseIndex:
    index = SparseIndex(path)
    for row in rows:
        index.add(*row)
    return index


def saved(rows: list[IndexEntry]) -> SimDisk:
    disk = SimDisk()
    index_of(rows).save(disk)
    return disk


def test_a_cut_shortens_the_file() -> None:
    disk = SimDisk()
    index = index_of(entries(10))
    index.save(disk)
    index.cut(4)
    index.save(disk)
    assert disk.content("i") == encode_entries(entries(4))


def test_a_failed_save_is_made_up_for() -> None:
    disk = SimDisk()
    index = index_of(entries(3))
    disk.inject(Fault("write", written=0.5))
    try:
        index.save(disk)
    except OSError:
        index.add(*entries(4)[3])
    index.save(disk)
    assert disk.content("i") == encode_entries(entries(4))


@given(st.integers(0, 40 * ENTRY_BYTES), st.binary(min_size=0, max_size=80))
def test_whatever_the_file_holds_what_is_loaded_can_be_true(at: int, junk: bytes) -> None:
    disk = saved(entries(40))
    content = bytearray(disk.content("i"))
    content[at : at + len(junk)] = junk
    disk.replace("i", bytes(content))
    index = load_index(disk, "i", 100, DATA_BYTES)
    offsets, positions = list(index.offsets), list(index.positions)
    assert offsets == sorted(set(offsets))
    assert positions == sorted(set(positions))
    assert all(p % 8 == 0 and p < DATA_BYTES for p in positions)
    assert len(index) >= min(at // ENTRY_BYTES, 40) or junk == b""
    if len(index):
        assert (offsets[0], positions[0]) == (100, 0)
    index.save(disk)
    assert disk.content("i") == encode_entries(index.entries())


def test_an_index_of_another_segment_is_not_believed() -> None:
    assert len(load_index(saved(entries(5, base=200)), "i", 100, DATA_BYTES)) == 0


def test_entries_behind_the_data_are_not_believed() -> None:
    assert len(load_index(saved(entries(5)), "i", 100, 1600)) == 2
