"""A bundle is read back; what is no bundle, damaged, or made to corrupt gets a clear error."""

import json
import os
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import limits
from penstock.errors import BundleBroken
from penstock.nsqadmin.bundle.files import Spool, read

from .made import Made


def test_a_bundle_round_trips(tmp_path: Path) -> None:
    """In the place of an older one, as a whole."""
    made, path = Made(), tmp_path / "b.zip"
    path.write_bytes(b"old")
    path.chmod(0o644)
    made.write(path)
    held = read(str(path))
    assert [one.name for one in held.manifest.files] == list(made.files)
    stats = held.document("nsqd/1/stats-2.json", dict[str, Any])
    assert stats == made.files["nsqd/1/stats-2.json"]
    assert held.manifest.who == "ann"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["b.zip"]


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        Made().write(folder)
    assert os.listdir(tmp_path) == ["taken"]


def test_a_full_bundle_says_what_it_lacks(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "b.zip", bytes_max=100)
    for name, count in (("a", 60), ("b", 60), ("c", 40)):
        spool.put(f"nsqd/1/{name}.txt", b"x" * count, f"/{name}")
    spool.close()
    assert [one.asked for one in spool.manifest.files] == ["/a", "/c"]
    assert [(one.folder, one.asked) for one in spool.manifest.failures] == [("nsqd/1", "/b")]
    assert "full" in spool.manifest.failures[0].reason
    assert os.listdir(tmp_path) == []


# --- what is refused ---


def rebuilt(path: Path, change: Callable[[dict[str, bytes]], object]) -> str:
    """A bundle with other members."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return str(path)


def manifest(**values: object) -> Callable[[dict[str, bytes]], object]:
    def change(files: dict[str, bytes]) -> None:
        held = json.loads(files["manifest.json"]) | values
        files["manifest.json"] = json.dumps(held).encode()

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda files: files.pop("manifest.json"), "no diagnostic bundle"),
        (lambda files: files.update({"manifest.json": b"{"}), "manifest.json is damaged"),
        (lambda files: files.update({"manifest.json": b"[" * 100_000}), "manifest.json is damaged"),
        (lambda files: files.update({"manifest.json": b"[]"}), "manifest.json is damaged"),
        (manifest(form="other"), "another form"),
        (manifest(version=99), "version 99"),
        (manifest(files=7), "manifest.json is damaged"),
        (lambda files: files.pop("nsqd/1/info.json"), "'nsqd/1/info.json' is missing"),
        (lambda files: files.update({"more.txt": b""}), "'more.txt' is not in its manifest"),
        (lambda files: files.update({"nsqd/1/info.json": b"{}"}), "another checksum"),
    ],
)
def test_zips_that_are_no_bundle(
    change: Callable[[dict[str, bytes]], object], reason: str, tmp_path: Path
) -> None:
    path = rebuilt(Made().write(tmp_path / "b.zip"), change)
    with pytest.raises(BundleBroken, match=reason):
        read(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUNDLE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(limits, "BUNDLE_ANSWER_BYTES_MAX", 1 << 20)
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"{}")
        archive.writestr("bomb", bytes(8 << 20))
    with pytest.raises(BundleBroken, match="too large unpacked"):
        read(str(path))
    data = bytearray(path.read_bytes())  # and one that lies about its size
    at = data.rindex(b"bomb") - 46 + 24
    data[at : at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(BundleBroken):
        read(str(path))


def test_damage_anywhere_is_an_error_or_nothing(tmp_path: Path) -> None:
    """A flipped byte or a cut end: never another answer, never another exception."""
    path = Made().write(tmp_path / "b.zip")
    whole = path.read_bytes()
    expected = read(str(path)).manifest
    dice = random.Random(8)
    for number in range(300):
        data = bytearray(whole)
        if number % 3:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        else:
            del data[dice.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            held = read(str(path))
        except BundleBroken:
            continue
        assert held.manifest == expected, number
