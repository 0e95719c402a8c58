"""The form of a bundle: names of its files, and the manifest that tells about them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

FORM = "penstock-bundle"
VERSION = 1
MANIFEST = "manifest.json"
NSQD, LOOKUPD = "nsqd", "nsqlookupd"


class Kind(Enum):
    """How a file is read when secrets and names are looked for in it."""

    JSON = "json"
    METRICS = "metrics"  # Prometheus' text: names stand in labels
    TEXT = "text"
    WORDS = "words"  # a command line, its words separated by NUL
    BINARY = "binary"


class Member(NamedTuple):
    """One daemon that was asked; its files are below `place`."""

    place: str  # "nsqd/1"
    kind: str
    address: str


class Failure(NamedTuple):
    place: str
    asked: str  # "/stats"
    reason: str


class File(NamedTuple):
    name: str
    bytes: int
    sha256: str
    asked: str  # what it is the answer to
    took_ms: int


def manifest(
    about: dict[str, Any],
    members: Iterable[Member],
    files: Iterable[File],
    failures: Iterable[Failure],
) -> dict[str, Any]:
    return {
        "form": FORM,
        "version": VERSION,
        **about,
        "daemons": [one._asdict() for one in members],
        "failures": [one._asdict() for one in failures],
        "files": [one._asdict() for one in files],
    }
