"""Dead letters go to the leader of another node, and its answer comes back, or is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import limits
from penstock.broker.carriedletters import CarriedLetters
from penstock.broker.letters import Letter, decode_letters, encode_letters
from penstock.broker.ports import Lane, Led, MetadataDone
from penstock.errors import PenstockError, PublishUnknown, Refused
from penstock.kernel import Section
from penstock.replica.frames import Frames, Target
from penstock.replica.letterframes import (
    Ending,
    LettersAnswered,
    SendLetters,
    letter_body,
    letters_answered,
)

TARGET = Target(0xA1, 2)
LETTERS = [
    Letter(b"one", {Section.ID: (1 << 64) - 1, Section.HEADERS: b"{}"}),
    Letter(b"two" * 200_000, {Section.TIMESTAMP: 5}),
]


class Node:
    """One end of a link. What it sends waits in `sent`."""

    def __init__(self, number: int, led: Sequence[Led] = (), life: int = 0) -> None:
        self.number = number
        self.sent: list[tuple[Lane, bytes]] = []
        self.links = {0, 1, 2} - {number}
        self.published: list[tuple[Target, Sequence[Letter], MetadataDone]] = []
        self.refusal: PenstockError | None = None
        self.carried = CarriedLetters(
            number, life or 500 + number, self, lambda _: led, self.links.__contains__, self._take
        )
        self.heard: list[PenstockError | None] = []

    def send(self, node: int, lane: Lane, frames: Sequence[Sequence[Any]]) -> None:
        data = b"".join(bytes(part) for frame in frames for part in frame)
        self.sent.append((lane, data))

    def _take(self, target: Target, letters: Sequence[Letter], done: MetadataDone) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.published.append((target, letters, done))

    def carry(self, *letters: Letter) -> None:
        self.carried.carry("dead", letters, self.heard.append)

    def pass_to(self, other: Node) -> list[Lane]:
        """All that was sent; on which lanes."""
        sent, self.sent = self.sent, []
        for _, data in sent:
            for target, frame in Frames(self.number).feed(data):
                assert isinstance(frame, SendLetters | LettersAnswered)
                other.carried.receive(self.number, target, frame)
        return [lane for lane, _ in sent]


@pytest.fixture
def here() -> Node:
    return Node(0, [Led(1, TARGET)])


@pytest.fixture
def there() -> Node:
    return Node(1)


def test_they_are_published_there_and_the_answer_comes_back(here: Node, there: Node) -> None:
    here.carry(*LETTERS)
    assert here.pass_to(there) == [Lane.BULK]
    ((target, letters, done),) = there.published
    assert (target, letters) == (TARGET, LETTERS)
    assert here.heard == []
    done(None)
    assert there.pass_to(here) == [Lane.LIVE]
    assert here.heard == [None]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Refused("it is full"), Refused, "node 1: it is full"),
        (PublishUnknown("dead/2", "the office ended"), PublishUnknown, "the office ended"),
    ],
)
def test_it_says_whether_they_may_be_stored(
    here: Node, there: Node, error: PenstockError, kind: type[PenstockError], said: str
) -> None:
    here.carry(LETTERS[0])
    here.pass_to(there)
    there.published[0][2](error)
    there.pass_to(here)
    (heard,) = here.heard
    assert type(heard) is kind
    assert said in str(heard)


def test_a_partition_that_is_not_led_there_refuses_them(here: Node, there: Node) -> None:
    there.refusal = Refused("the partition is not led by this node")
    here.carry(LETTERS[0])
    here.pass_to(there)
    there.pass_to(here)
    assert [str(one) for one in here.heard] == ["node 1: the partition is not led by this node"]


def test_letters_larger_than_a_payload_are_refused(
    here: Node, there: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLICA_PIECE_BYTES", 64)
    monkeypatch.setattr(limits, "REPLICA_PAYLOAD_BYTES_MAX", 1000)
    with pytest.raises(Refused, match=r"dead letters of topic dead: .* at most 1000 are sent"):
        here.carry(LETTERS[1])
    assert here.sent == []
    here.carried.unlinked(1)
    assert here.heard == []  # nothing is waited for


def test_a_long_reason_ends_with_a_whole_character() -> None:
    answer = LettersAnswered(500, 1, Ending.REFUSED, "x" + "ä" * 600)
    _, body = letter_body(answer)
    assert letters_answered(500, body).reason == "x" + "ä" * 511


def test_with_the_link_the_answer_is_lost(here: Node, there: Node) -> None:
    here.carry(LETTERS[0])
    here.pass_to(there)
    here.carried.unlinked(2)
    assert here.heard == []
    here.carried.unlinked(1)
    (heard,) = here.heard
    assert isinstance(heard, PublishUnknown)
    there.published[0][2](None)
    there.pass_to(here)  # too late: it has been said already
    assert len(here.heard) == 1


def test_an_answer_to_an_earlier_life_is_none_to_this_one(here: Node, there: Node) -> None:
    here.carry(LETTERS[0])
    here.pass_to(there)
    again = Node(0, [Led(1, TARGET)], life=900)
    again.carry(LETTERS[0])
    there.published[0][2](None)
    there.pass_to(again)
    assert again.heard == []
    answer = LettersAnswered(900, 1, Ending.STORED, "")
    again.carried.receive(2, TARGET, answer)  # of a node that was not asked
    assert again.heard == []
    again.carried.receive(1, TARGET, answer)
    assert again.heard == [None]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xc1", "letters that cannot be read"),
        (b"\x91\x92\xc4\x01a\x81\x01\xa1b", "letters that cannot be read"),
        (encode_letters([Letter(b"x", {99: b""})]), "section 99 of a letter"),
        (encode_letters([Letter(b"x", {Section.ID: b"7"})]), "section 2 of a letter is b'7'"),
        (encode_letters([Letter(b"x", {Section.KEY: 7})]), "section 64 of a letter is 7"),
        (encode_letters([Letter(b"x", {Section.ID: -1})]), "section 2 of a letter is -1"),
    ],
)
def test_what_are_no_letters_is_refused_with_the_reason(
    here: Node, there: Node, data: bytes, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        decode_letters(data)
    here.carry(LETTERS[0])
    here.sent.clear()
    there.carried.receive(0, TARGET, SendLetters(500, 1, data))
    there.pass_to(here)
    (heard,) = here.heard
    assert isinstance(heard, Refused)
    assert said in str(heard)
