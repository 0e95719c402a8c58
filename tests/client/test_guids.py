"""Ids with this host's clocks."""

import itertools
import time
from pathlib import Path

import pytest

from penstock.client import guid_factory, id_pool
from penstock.client.numbering import (
    EPOCH_MAX,
    IDLE_S_MAX,
    SEQUENCE_MAX,
    Destination,
    EpochFile,
    Numbering,
)
from penstock.errors import ConfigError
from penstock.ids.guid import parse


def test_a_pool_of_real_ids() -> None:
    before_ns = time.time_ns() - (1 << 20)
    with id_pool(7, count_max=100) as pool:
        ids = [pool.take() for _ in range(20_000)]
        text = pool.take_hex()
    assert all(low < high for low, high in itertools.pairwise(ids))
    assert int(text, 16) > ids[-1]
    assert len(text) == 16
    parts = parse(ids[-1])
    assert parts.node == 7
    assert before_ns < parts.time_ns < time.time_ns()


def test_a_worker_id_is_checked() -> None:
    assert parse(guid_factory(1023).new_id()).node == 1023
    with pytest.raises(ConfigError, match="worker_id"):
        id_pool(1024)


# --- ids, epochs and numbers: what may be used again, and what not ---


def test_random_ids_have_63_bits_and_epochs_that_go_up() -> None:
    numbering = Numbering(None, 0)
    assert 0 < numbering.producer_id < 1 << 63
    assert numbering.producer_id != Numbering(None, 0).producer_id
    destination = Destination(numbering)
    destination.prepare(3, 1.0)
    destination.stored(3)
    numbers = {"producer_id": str(numbering.producer_id), "producer_epoch": "0", "sequence": "3"}
    assert dict(destination.options) == numbers
    destination.spoil("doubt")
    assert (destination.epoch, destination.sequence, destination.stopped) == (1, 0, "")


def test_after_the_last_epoch_comes_another_id() -> None:
    numbering = Numbering(None, 0)
    before = numbering.producer_id
    numbering.epoch = EPOCH_MAX
    destination = Destination(numbering)
    destination.spoil("doubt")
    assert destination.epoch == 0
    assert destination.producer_id == numbering.producer_id != before


def test_numbers_are_not_used_up_and_not_forgotten() -> None:
    destination = Destination(Numbering(None, 0))
    destination.stored(SEQUENCE_MAX - 1)
    destination.prepare(1, 1.0)
    assert destination.epoch == 0
    destination.prepare(2, 1.0)
    assert (destination.epoch, destination.sequence) == (1, 0)
    destination.prepare(1, 1.0 + IDLE_S_MAX)
    assert destination.epoch == 1
    destination.prepare(1, 2.0 + 2 * IDLE_S_MAX)
    assert destination.epoch == 2


def test_a_given_epoch_is_the_only_one() -> None:
    destination = Destination(Numbering(5, 7))
    destination.prepare(1, 1.0)
    destination.prepare(1, 2.0 + IDLE_S_MAX)
    assert (destination.epoch, destination.stopped) == (7, "")
    destination.spoil("doubt")
    assert destination.stopped == "doubt; go on with a higher producer_epoch"


def test_a_file_gives_each_epoch_once(tmp_path: Path) -> None:
    path = tmp_path / "epoch"
    first, second = EpochFile(path), EpochFile(path)
    assert [first(), first(), second()] == [0, 1, 2]
    assert path.read_text() == "2\n"
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="another producer"):
        first()  # a former life does not fence the newer out
    assert second() == 3


def test_a_file_that_cannot_be_read_stops_the_topic(tmp_path: Path) -> None:
    path = tmp_path / "epoch"
    numbering = Numbering(5, EpochFile(path))
    numbering.begin()
    destination = Destination(numbering)
    path.write_text("rubbish\n")
    destination.spoil("doubt")
    assert destination.stopped is not None
    path.write_text(f"{EPOCH_MAX}\n")
    with pytest.raises(ConfigError):
        EpochFile(path)()
    with pytest.raises(FileNotFoundError):
        EpochFile(tmp_path / "none" / "epoch")()
