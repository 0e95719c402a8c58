from __future__ import annotations

from pathlib import Path

import pytest

from cases import each
from penstock.broker.directories import remove_tree, topic_directory, topic_name

from .faults import FaultyDisk


@each("name", ["news", ".", "..", "a.b", "x#ephemeral"])
def test_a_name_is_found_again_in_its_directory(name: str) -> None:
    directory = topic_directory("/data/topics", name)
    assert directory.startswith("/data/topics/")
    inner = directory.removeprefix("/data/topics/")
    assert inner not in (".", "..")
    assert topic_name(inner) == name


def test_the_last_file_outlives_an_interrupted_removal(tmp_path: Path) -> None:
    top = tmp_path / "t"
    (top / "z" / "deep").mkdir(parents=True)
    for name in ("a", "b", "last", "z/c", "z/deep/d"):
        (top / name).touch()
    disk = FaultyDisk()
    disk.fail.add(("unlink", "deep"))
    with pytest.raises(OSError, match="Input/output"):
        remove_tree(disk, str(top), last="last")
    assert (top / "last").exists()
    disk.fail.clear()
    remove_tree(disk, str(top), last="last")
    assert list(tmp_path.iterdir()) == []
