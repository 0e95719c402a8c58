"""What the queues of a partition have not finished, by its files alone: the names of the channels
from topic.json, their state from the channel journal.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, read_file
from penstock.log.fold import ChannelState, Folded, fold
from penstock.log.head import Owner
from penstock.log.inspect import Place
from penstock.log.sealed import unseal

TOPIC_FILE = "topic.json"


class Queue(NamedTuple):
    """A channel, or the topic's own queue where that holds messages."""

    name: str
    state: ChannelState

    @property
    def lowest(self) -> int:
        """Of the offsets that are not finished."""
        return min([self.state.low, *(stray.offset for stray in self.state.strays)])

    def wants(self, from_offset: int, to_offset: int) -> bool:
        """Is any of [from, to) not finished?"""
        if any(from_offset <= stray.offset < to_offset for stray in self.state.strays):
            return True
        offset = max(from_offset, self.state.low)
        for start, end in self.state.finished:
            if start <= offset < end:
                offset = end
        return offset < to_offset


def read_queues(disk: Disk, place: Place) -> list[Queue]:
    """Nothing when topic.json or the journal do not tell. Raises OSError."""
    topic = _topic(disk, place)
    state = _journal(disk, place.path)
    if topic is None or state is None:
        return []
    channels, gathers = topic
    found = [
        Queue(f"channel {name}", state.channels[number])
        for name, number in channels
        if number in state.channels  # else it was made a moment ago
    ]
    if gathers:
        own = ChannelState(state.handed_end, state.handed_end, (), ())
        found.append(Queue("the topic's own queue", own))
    return found


def read_owner(disk: Disk, place: Place) -> Owner | None:
    """Whose log it is by topic.json; None when that does not tell. Raises OSError."""
    document = _document(disk, place)
    try:
        return Owner(str(document["name"]), place.partition, str(document["identity"]))
    except KeyError:
        return None


def _topic(disk: Disk, place: Place) -> tuple[list[tuple[str, int]], bool] | None:
    topic = _document(disk, place)
    try:
        channels = [(str(row["name"]), int(row["number"])) for row in topic.get("channels", ())]
    except (ValueError, KeyError, TypeError):
        return None
    if not topic:
        return None
    is_own = place.topic.startswith("_")  # Penstock's own topics hold nothing back
    return channels, not is_own and bool(topic.get("paused") or not channels)


def _document(disk: Disk, place: Place) -> dict[str, Any]:
    """Empty when it is not there or not sound: `verify` names that file itself."""
    path = os.path.join(os.path.dirname(place.path), TOPIC_FILE)
    if not disk.exists(path):
        return {}
    try:
        document = json.loads(unseal(read_file(disk, path, limits.JOURNAL_BYTES_READ_MAX)))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _journal(disk: Disk, directory: str) -> Folded | None:
    newest: Folded | None = None
    for name in filter(names.is_journal, disk.listdir(directory)):
        data = read_file(disk, os.path.join(directory, name), limits.JOURNAL_BYTES_READ_MAX)
        folded = fold(data)
        if folded is not None and (newest is None or folded.generation > newest.generation):
            newest = folded
    return newest
