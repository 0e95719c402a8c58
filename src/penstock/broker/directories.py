"""Names and places in the data directory (docs/formats.md), and how a tree is removed."""

from __future__ import annotations

import os

from penstock.log.disk import Disk

TOPICS = "topics"
_DOTS = {".": "%2E", "..": "%2E%2E"}  # the two names that a file system keeps for itself
_NAMES = {directory: name for name, directory in _DOTS.items()}


def topic_directory(topics_path: str, name: str) -> str:
    return os.path.join(topics_path, _DOTS.get(name, name))


def topic_name(directory_name: str) -> str:
    return _NAMES.get(directory_name, directory_name)


def partition_directory(directory: str, number: int = 0) -> str:
    return os.path.join(directory, str(number))


def partition_numbers(disk: Disk, directory: str) -> list[int]:
    """Of the partitions whose directories are there."""
    found = (name for name in disk.listdir(directory) if name.isascii() and name.isdigit())
    return sorted(int(name) for name in found if disk.is_directory(os.path.join(directory, name)))


def remove_tree(disk: Disk, path: str, last: str = "") -> None:
    """`path` and all in it, deepest first. The file `last` goes when all others are gone: it is
    what tells a later start to go on with an interrupted removal."""
    for name in sorted(disk.listdir(path), key=lambda name: name == last):
        inner = os.path.join(path, name)
        if disk.is_directory(inner):
            remove_tree(disk, inner)
        else:
            disk.unlink(inner)
    disk.rmdir(path)
