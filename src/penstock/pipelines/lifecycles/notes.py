"""What is remembered of lifecycles beside their rows: a file for each version of the table.

It is written before the commit, and counts only when its version is in the table.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.fs import FileSelector

from penstock import limits
from penstock.errors import LakeFailed
from penstock.spark.lake import Place

_FOLDER = "_penstock/lives"


@dataclass
class State:
    """`channels`: by topic and channel, the place of its first event. `ranges`: by topic and
    channel, (partition, first, end)."""

    channels: dict[str, dict[str, int]] = field(default_factory=dict)
    ranges: dict[str, dict[str, list[list[int]]]] = field(default_factory=dict)


class Notes:
    def __init__(self, place: Place) -> None:
        self._place = place

    def read(self, version: int) -> State:
        if version == 0:
            return State()
        path = self._path(version)
        try:
            with self._place.files().open_input_stream(path) as file:
                return State(**json.loads(file.read()))
        except (OSError, ValueError, TypeError) as error:
            rule = f"{path} can't be read ({error}): delete the table, it is made again"
            raise LakeFailed(self._place.uri, rule) from error

    def write(self, version: int, state: State) -> None:
        text = json.dumps({"channels": state.channels, "ranges": state.ranges})
        path = self._path(version)
        if self._place.local_path is not None:
            _write_durably(Path(path), text)
            return
        files = self._place.files()  # a store has a file whole, or not at all
        # Without a buffer pyarrow hands over a Buffer, and delta-rs takes bytes only.
        with files.open_output_stream(path, buffer_size=limits.LIVES_NOTE_BUFFER_BYTES) as file:
            file.write(text.encode())

    def forget_all_but(self, version: int) -> None:
        files = self._place.files()
        folder = self._place.full(_FOLDER)
        for found in files.get_file_info(FileSelector(folder, allow_not_found=True)):
            name = str(found.path).rpartition("/")[2]
            if name.endswith(".json") and name != f"{version}.json":
                files.delete_file(f"{folder}/{name}")

    def _path(self, version: int) -> str:
        return self._place.full(f"{_FOLDER}/{version}.json")


def _write_durably(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
