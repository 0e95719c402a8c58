"""The file names of a partition's directory (docs/formats.md)."""

import os
import re
from functools import partial

MARK = "mark"
PRODUCERS = "producers"
STAGES = "stages"  # in the data directory
COMMITS = "commits"
LOST = "lost"
REPLICA = "replica.json"
LEDGER = "ledger"  # in the data directory
OF_PARTITION = (MARK, PRODUCERS, LOST, REPLICA)
_KINDS = {
    "segment": re.compile(r"(\d{20})\.log"),  # and its base offset
    "index": re.compile(r"(\d{20})\.index"),  # and that of its segment
    "spare": re.compile(r"spare-(\d+)\.log"),
    "cut": re.compile(r"cut-(\d+)-(\d{20})\.log"),  # its number, and its first message's offset
    "journal": re.compile(r"channels\.[012]"),
    "stage": re.compile(r".+\.stage"),  # of `stages`, or of a replica of a cluster
}


def kind_of(name: str) -> str:
    """`segment`, `index`, `spare`, `cut`, `journal` or `stage`; empty for any other name."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(name)), "")


def _number_in(kind: str, group: int, name: str) -> int | None:
    """None for the name of another kind."""
    match = _KINDS[kind].fullmatch(name)
    return int(match[group]) if match else None


segment_base = partial(_number_in, "segment", 1)
index_base = partial(_number_in, "index", 1)
cut_number = partial(_number_in, "cut", 1)
cut_base = partial(_number_in, "cut", 2)


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.index"


def spare_name(number: int) -> str:
    return f"spare-{number}.log"


def cut_name(number: int, first_offset: int) -> str:
    return f"cut-{number}-{first_offset:020d}.log"


def segment_bases(names: list[str]) -> list[int]:
    """The base offsets of all segments among `names`, rising."""
    return sorted(base for name in names if (base := segment_base(name)) is not None)


def index_path_of(segment_path: str) -> str:
    return os.path.splitext(segment_path)[0] + ".index"
