"""The file names of a partition's directory (docs/formats.md)."""

import os
import re

MARK = "mark"
PRODUCERS = "producers"
STAGES = "stages"  # in the data directory
COMMITS = "commits"
LOST = "lost"
REPLICA = "replica.json"
LEDGER = "ledger"  # in the data directory
_SEGMENT = re.compile(r"(\d{20})\.log")
_INDEX = re.compile(r"(\d{20})\.index")
_SPARE = re.compile(r"spare-(\d+)\.log")
_CUT = re.compile(r"cut-(\d+)-(\d{20})\.log")
_JOURNAL = re.compile(r"channels\.[012]")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.index"


def spare_name(number: int) -> str:
    return f"spare-{number}.log"


def cut_name(number: int, first_offset: int) -> str:
    return f"cut-{number}-{first_offset:020d}.log"


def segment_base(name: str) -> int | None:
    """The base offset in a segment's name, None for other names."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None


def index_base(name: str) -> int | None:
    match = _INDEX.fullmatch(name)
    return int(match[1]) if match else None


def spare_number(name: str) -> int | None:
    match = _SPARE.fullmatch(name)
    return int(match[1]) if match else None


def cut_number(name: str) -> int | None:
    match = _CUT.fullmatch(name)
    return int(match[1]) if match else None


def cut_base(name: str) -> int | None:
    """The offset of the first message that such a file holds."""
    match = _CUT.fullmatch(name)
    return int(match[2]) if match else None


def is_journal(name: str) -> bool:
    return _JOURNAL.fullmatch(name) is not None


def is_stage(name: str) -> bool:
    """A file of `stages`, or of a replica that a cluster has placed here."""
    return name.endswith(".stage")


def segment_bases(names: list[str]) -> list[int]:
    """The base offsets of all segments among `names`, rising."""
    return sorted(base for name in names if (base := segment_base(name)) is not None)


def index_path_of(segment_path: str) -> str:
    return os.path.splitext(segment_path)[0] + ".index"
