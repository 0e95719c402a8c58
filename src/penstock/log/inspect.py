"""What lies under a path: the partitions, segments and other files that `verify` and `dump` look
at.

Looking takes no lock and writes nothing, so it can be done while a daemon owns the directory.
Files may come, grow and go meanwhile.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.log import names
from penstock.log.disk import Disk

TOPICS = "topics"
SETTINGS_FILES = ("node.json", "topic.json")


class Place(NamedTuple):
    """One partition's directory."""

    topic: str
    partition: int
    path: str


class Found(NamedTuple):
    """What there is to look at. A single segment, index, mark or journal stands in `files`,
    and so does the ledger."""

    places: list[Place]
    settings: list[str]  # node.json, topic.json, commits
    files: list[str]
    stages: list[str]


class NothingThere(Exception):
    """Neither a data directory, nor a partition, nor a file of one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no data directory, topic, partition or file of one")
        self.path = path


def find(disk: Disk, path: str, topic: str | None = None, partition: int | None = None) -> Found:
    """Everything under `path`, which may be a data directory, its topics, one topic, one partition
    or one file; only this topic and partition when they are given."""
    path = path.rstrip("/") or "/"
    if not disk.exists(path):
        raise NothingThere(path)
    if not disk.is_directory(path):
        if not is_known(os.path.basename(path)):
            raise NothingThere(path)
        return Found([], [], [path], [])
    found = _under(disk, path)
    places = [
        place
        for place in found.places
        if topic in (None, place.topic) and partition in (None, place.partition)
    ]
    wants_all = topic is None and partition is None
    if not places and not (wants_all and found.settings):
        raise NothingThere(path)
    kept = {os.path.dirname(place.path) for place in places}
    settings = [file for file in found.settings if wants_all or os.path.dirname(file) in kept]
    if not wants_all:
        return Found(places, settings, [], [])
    return Found(places, settings, found.files, found.stages)


def is_known(name: str) -> bool:
    return (
        name
        in (names.MARK, names.PRODUCERS, names.LOST, names.REPLICA, names.LEDGER, *SETTINGS_FILES)
        or names.is_journal(name)
        or names.segment_base(name) is not None
        or names.index_base(name) is not None
        or names.spare_number(name) is not None
        or names.cut_number(name) is not None
        or names.is_stage(name)
    )


def _under(disk: Disk, path: str) -> Found:
    inside = disk.listdir(path)
    if TOPICS in inside and disk.is_directory(os.path.join(path, TOPICS)):
        found = _topics(disk, os.path.join(path, TOPICS))
        commits = _inside(disk, path, names.COMMITS, ".json")
        return found._replace(
            settings=_settings(path, inside) + commits + found.settings,
            files=[os.path.join(path, names.LEDGER)] if names.LEDGER in inside else [],
            stages=_inside(disk, path, names.STAGES, ".stage"),
        )
    if names.segment_bases(inside):
        topic = os.path.basename(os.path.dirname(os.path.abspath(path)))
        number = os.path.basename(path)
        return Found([Place(topic, int(number) if number.isdecimal() else 0, path)], [], [], [])
    if os.path.basename(path) == TOPICS:
        return _topics(disk, path)
    return _topic(disk, path)


def _topics(disk: Disk, path: str) -> Found:
    parts = [_topic(disk, os.path.join(path, name)) for name in sorted(disk.listdir(path))]
    return Found(
        [place for part in parts for place in part.places],
        [file for part in parts for file in part.settings],
        [],
        [],
    )


def _topic(disk: Disk, path: str) -> Found:
    if not disk.is_directory(path):
        return Found([], [], [], [])
    inside = disk.listdir(path)
    topic = os.path.basename(os.path.abspath(path))
    places = [
        Place(topic, int(name), os.path.join(path, name))
        for name in sorted(inside)
        if name.isdecimal() and disk.is_directory(os.path.join(path, name))
    ]
    return Found(places, _settings(path, inside), [], [])


def _inside(disk: Disk, path: str, directory_name: str, suffix: str) -> list[str]:
    directory = os.path.join(path, directory_name)
    if not disk.is_directory(directory):
        return []
    found = sorted(disk.listdir(directory))
    return [os.path.join(directory, name) for name in found if name.endswith(suffix)]


def _settings(path: str, inside: list[str]) -> list[str]:
    return [os.path.join(path, name) for name in SETTINGS_FILES if name in inside]
