"""What a partition, or one of its files, says: rows for people and for scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from penstock.kernel import (
    Section,
    decode_bodies,
    decode_sections,
    id_at,
    id_to_hex,
)
from penstock.log import names
from penstock.log.disk import Disk, File, read_file
from penstock.log.head import read_beginning
from penstock.log.index import decode_entries
from penstock.log.inspect import Place
from penstock.log.journals import read_journal
from penstock.log.mark import COPY_BYTES, COPY_POSITIONS, decode
from penstock.log.scan import Batch, Blocks, walk

FILE_BYTES_READ_MAX = 1 << 30
Row = dict[str, Any]
_SECTION_NAMES = {section.value: section.name.lower() for section in Section}


def dump_partition(disk: Disk, place: Place, from_offset: int = 0) -> Iterator[Row]:
    """A row per message from `from_offset` on, and one per hole."""
    bases = names.segment_bases(disk.listdir(place.path))
    for number, base in enumerate(bases):
        limit = bases[number + 1] if number + 1 < len(bases) else None
        if limit is None or limit > from_offset:
            path = os.path.join(place.path, names.segment_name(base))
            yield from dump_segment(disk, path, from_offset, limit)


def dump_segment(disk: Disk, path: str, from_offset: int, limit: int | None) -> Iterator[Row]:
    base = _base_of(os.path.basename(path))
    if base is None:
        raise ValueError(f"{path} is not named like a segment")
    file = disk.open(path)
    try:
        blocks = Blocks(file, file.size())
        expected = base
        for batch in walk(blocks, read_beginning(file, base).start, base, limit):
            if batch.header.base_offset != expected:
                yield {"hole": [expected, batch.header.base_offset], "path": path}
            expected = batch.end_offset
            if expected > from_offset:
                yield from _messages(file, batch, from_offset)
        if limit is not None and expected != limit:
            yield {"hole": [expected, limit], "path": path}
    finally:
        file.close()


def _base_of(name: str) -> int | None:
    """Of a segment, and of what a cut has removed from one."""
    base = names.segment_base(name)
    return names.cut_base(name) if base is None else base


def _messages(file: File, batch: Batch, from_offset: int) -> Iterator[Row]:
    data = bytearray(batch.length)
    file.pread_into(data, batch.position)
    header = batch.header
    sections = decode_sections(data, 0)
    for index, body in enumerate(decode_bodies(data, 0)):
        offset = header.base_offset + index
        if offset < from_offset:
            continue
        extra = {
            _SECTION_NAMES.get(type_, str(type_)): table[index]
            for type_, table in sections.items()
            if index in table
        }
        own_id = extra.pop("id", None)
        yield {
            "offset": offset,
            "id": id_to_hex(
                own_id if isinstance(own_id, int) else id_at(header.base_id, index)
            ).decode(),
            "timestamp_ns": extra.pop("timestamp", header.timestamp_ns),
            "batch": header.base_offset,
            "position": batch.position,
            "size": len(body),
            "body": body,
            **extra,
        }


def dump_file(disk: Disk, path: str, from_offset: int = 0) -> Iterator[Row]:
    """A single file, whichever kind it is."""
    name = os.path.basename(path)
    if _base_of(name) is not None:
        yield from dump_segment(disk, path, from_offset, None)
        return
    data = read_file(disk, path, FILE_BYTES_READ_MAX)
    if names.index_base(name) is not None:
        yield from (entry._asdict() for entry in decode_entries(data))
    elif name == names.MARK:
        for number, at in enumerate(COPY_POSITIONS):
            mark = decode(data[at : at + COPY_BYTES])
            yield {"copy": number, **(mark._asdict() if mark else {"sound": False})}
    elif names.is_journal(name):
        journal = read_journal(data)
        yield from (record._asdict() for record in journal.records)
        if journal.problem:
            yield {"position": journal.end_position, "problem": journal.problem}
    else:
        yield {"path": path, "bytes": len(data)}
