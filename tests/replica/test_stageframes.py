"""Frames of stages, to bytes and back."""

from __future__ import annotations

import pytest

from cases import each
from penstock.replica.frames import Frame, FrameBroken, Frames, Target, encode
from penstock.replica.stageframes import (
    AskStage,
    SendStage,
    StageStored,
    asked_stage,
    cut_text,
    stage_stored,
)

TARGET = Target(0xA1, 3)
NUMBER = 5 << 32 | 1


@each(
    "frame",
    [
        SendStage(9, NUMBER, b"line\nbatches"),
        SendStage(9, NUMBER, bytes(range(256)) * 3_000),  # in pieces
        StageStored(9, 101, NUMBER),
        StageStored(9, 101, NUMBER, "the disk is full"),
        AskStage(9, 101, NUMBER),
    ],
)
def test_they_come_as_they_were_sent(frame: Frame) -> None:
    data = b"".join(bytes(part) for parts in encode(TARGET, frame) for part in parts)
    assert list(Frames(1).feed(data)) == [(TARGET, frame)]


def test_answers_of_a_wrong_length_or_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="an answer to a stage of 3 bytes"):
        stage_stored(9, b"abc")
    with pytest.raises(ValueError, match="an answer to a stage that is stored: 0"):
        stage_stored(9, bytes(17))
    with pytest.raises(ValueError, match="a question for a stage of 18 bytes"):
        asked_stage(9, bytes(18))


def test_a_broken_answer_ends_the_link() -> None:
    good = b"".join(map(bytes, encode(TARGET, StageStored(9, 101, NUMBER, "why"))[0]))
    with pytest.raises(FrameBroken):
        list(Frames(1).feed(good[:-1] + b"?"))


def test_a_reason_is_cut_between_characters() -> None:
    assert cut_text("aä", 2) == b"a"
    assert cut_text("aä", 3) == "aä".encode()
