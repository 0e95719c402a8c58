"""What the trailer of an open batch is to say of its messages: a table for each section."""

from __future__ import annotations

from penstock.kernel.batch_interface import Section
from penstock.kernel.layout import SECTION_BYTES_TYPE_MIN
from penstock.kernel.pure.sections import Value

_KNOWN = frozenset(Section)
_UNSIGNED = (Section.ID, Section.TRACE)
_INTEGER_BYTES = 8
_INTEGER_ENTRY_BYTES = 12
_BYTES_ENTRY_BYTES = 8  # without the value itself


def check_label(section: int, value: Value) -> None:
    if section not in _KNOWN:
        raise ValueError(f"unknown section type {int(section)}")
    if section < SECTION_BYTES_TYPE_MIN:
        int(value).to_bytes(_INTEGER_BYTES, "little", signed=section not in _UNSIGNED)
    elif not isinstance(value, bytes):
        raise TypeError(f"section {int(section)} holds bytes, not {type(value).__name__}")


class Labels:
    def __init__(self) -> None:
        self.tables: dict[int, dict[int, Value]] = {}
        self.size = 0  # of the entries, as they go to disk

    def put(self, section: int, index: int, value: Value) -> None:
        """The last word counts."""
        table = self.tables.setdefault(int(section), {})
        if index not in table:
            bytes_of = _BYTES_ENTRY_BYTES + len(value) if isinstance(value, bytes) else 0
            self.size += bytes_of or _INTEGER_ENTRY_BYTES
        table[index] = value
