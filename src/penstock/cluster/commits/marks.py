"""What a log says of parts: the marks in the headers of their batches, and the visible end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    transaction: int
    place: int  # of the batch's first message in the part
    more: bool  # another batch of the part follows


class Marked(NamedTuple):
    """A batch [base, end) of a part."""

    mark: Mark
    base: int
    end: int


class Found(NamedTuple):
    """As much of a part as a log has."""

    base: int
    end: int
    messages: int
    whole: bool


def found_parts(batches: Iterable[Marked]) -> dict[int, Found]:
    """By transaction, in the order of the log."""
    parts: dict[int, Found] = {}
    for batch in batches:
        parts[batch.mark.transaction] = found_with(parts.get(batch.mark.transaction), batch)
    return parts


def found_with(found: Found | None, batch: Marked) -> Found:
    base = batch.base if found is None else found.base
    messages = batch.mark.place + batch.end - batch.base
    return Found(base, batch.end, messages, not batch.mark.more)


def visible_end(committed: int, parts: Iterable[Found]) -> int:
    """What readers may see: never a part of a part. `parts` are those of the log that reach the
    committed end or lie above it; earlier ones do no harm."""
    for part in parts:
        if part.base < committed and not (part.whole and part.end <= committed):
            return part.base
    return committed
