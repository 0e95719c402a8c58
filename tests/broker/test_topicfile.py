"""The small JSON files, and what is refused of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from penstock.broker import topicfile
from penstock.broker.topicfile import (
    ChannelEntry,
    NodeFile,
    TopicFile,
    TopicSettings,
    read_node_file,
    read_topic_file,
    write_node_file,
    write_topic_file,
)
from penstock.errors import StorageError
from penstock.log.disk import OsDisk
from penstock.log.sealed import seal, unseal

from .faults import FaultyDisk

FILE = TopicFile(
    name="news",
    identity="000-17",
    created_ns=17,
    paused=True,
    channel_number_next=4,
    settings=TopicSettings(durability="os"),
    channels=[ChannelEntry("a", 3, 18, True)],
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    assert read_topic_file(OsDisk(), str(tmp_path)) == FILE
    write_node_file(OsDisk(), str(tmp_path), NodeFile(7, 1))
    assert read_node_file(OsDisk(), str(tmp_path)) == NodeFile(7, 1)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["node.json", "topic.json"]


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    disk = FaultyDisk()
    write_topic_file(disk, str(tmp_path), FILE)
    disk.fail.add((call, "topic.json"))
    with pytest.raises(StorageError):
        write_topic_file(disk, str(tmp_path), TopicFile("other", "1", 1))
    assert read_topic_file(OsDisk(), str(tmp_path)) == FILE


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"later": 1},
        {"name": 5},
        {"settings": {"durability": "maybe"}},
        {"channels": [{"name": "a"}]},
        {"partitions": 0},
        {"partitions": 256},
        {"partitions": 2, "hash_partitions": 3},
        {"partitions": 2, "hash_partitions": 0},
    ],
)
def test_what_this_version_does_not_write_is_not_guessed_at(
    tmp_path: Path, change: dict[str, object]
) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    path = tmp_path / "topic.json"
    content = {**json.loads(unseal(path.read_bytes())), **change}
    path.write_bytes(seal(json.dumps(content).encode()))
    with pytest.raises(StorageError):
        read_topic_file(OsDisk(), str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (TopicSettings(max_depth=1 << 63), "would not be valid"),
        (TopicSettings(trace_rate=2.0), "would not be valid"),
        (TopicSettings(durability="ram"), "would not be valid"),  # type: ignore[arg-type]
    ],
)
def test_what_a_start_could_not_read_is_not_written(
    tmp_path: Path, settings: TopicSettings, reason: str
) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    with pytest.raises(StorageError, match=reason):
        write_topic_file(OsDisk(), str(tmp_path), msgspec.structs.replace(FILE, settings=settings))
    assert read_topic_file(OsDisk(), str(tmp_path)) == FILE


def test_a_file_that_would_be_too_large_to_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topicfile, "_DOCUMENT_BYTES_MAX", 100)
    with pytest.raises(StorageError, match="larger than 100 bytes"):
        write_topic_file(OsDisk(), str(tmp_path), FILE)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_changed_by_other_hands_is_refused(tmp_path: Path) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    path = tmp_path / "topic.json"
    path.write_bytes(path.read_bytes().replace(b"news", b"mews"))
    with pytest.raises(StorageError, match="checksum does not match"):
        read_topic_file(OsDisk(), str(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", "\0" * 20])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "topic.json").write_text(text)
    with pytest.raises(StorageError) as caught:
        read_topic_file(OsDisk(), str(tmp_path))
    assert caught.value.where == str(tmp_path / "topic.json")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        read_node_file(OsDisk(), str(tmp_path))
