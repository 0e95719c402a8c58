"""One message of a topic, in whichever of its partitions it is.

An id that was given out here is searched for in the index of every log before any log is walked
through: a walk reads all that is stored.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from penstock.broker.reading import TopicReader
from penstock.kernel import Section


class Found(NamedTuple):
    partition: int
    offset: int


def find_id(readers: Sequence[TopicReader], id: int) -> Generator[None, None, Found | None]:
    for reader in readers:
        offset = reader.find_own_id(id)
        if offset is not None:
            return Found(reader.partition, offset)
    return (yield from find_value(readers, Section.ID, id))


def find_value(
    readers: Sequence[TopicReader], section: Section, value: int
) -> Generator[None, None, Found | None]:
    """The first message with this value in a section, by partition and offset."""
    for reader in readers:
        offset = yield from reader.find_value(section, value)
        if offset is not None:
            return Found(reader.partition, offset)
    return None
