"""A batch goes to the leader of another node, and its answer comes back, or is lost."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import limits
from penstock.broker.partition.appends import Content
from penstock.broker.ports import Led, PeerLane
from penstock.broker.replicas.forwarding import ForwardAnswer, Forwarding
from penstock.errors import LeadershipEnded, PenstockError, PublishUnknown, Refused
from penstock.kernel import Section, decode_header, encode_batch
from penstock.replication.frames import Frames, Target
from penstock.replication.side_frames import BatchAnswered, Ending, SendBatch
from replication.received import received

TARGET = Target(0xA1, 2)
BATCH = encode_batch([b"one", b"two"], 0, 0, 0, 0, 0, sections={Section.KEY: {1: b"k"}})


class Node:
    """One end of a link. What it sends waits in `sent`. A leader has committed up to 100."""

    def __init__(self, number: int, led: Sequence[Led] = (), incarnation: int = 0) -> None:
        self.number = number
        self.sent: list[tuple[PeerLane, bytes]] = []
        self.links = {0, 1, 2} - {number}
        self.published: list[tuple[bytes, Any]] = []
        self.stamps: list[tuple[int, int, int]] = []
        self.refusal: PenstockError | None = None
        self.leads = True
        self.trouble = ""  # of its ledger
        known = {"incarnation": incarnation or 500 + number, "peers": self, "epoch_ledger": self}
        own: Any = SimpleNamespace(node=number, **known)
        host: Any = SimpleNamespace(
            led=lambda *_: led, lack=None, is_linked=self.links.__contains__, leader=self._leader
        )
        self.forwarding = Forwarding(own, host, lambda: None)
        self.received: list[ForwardAnswer] = []

    def send(self, node: int, lane: PeerLane, frames: Sequence[Sequence[Any]]) -> None:
        data = b"".join(bytes(part) for frame in frames for part in frame)
        self.sent.append((lane, data))

    def _leader(self, target: Target) -> Any:
        group = SimpleNamespace(check_waiting=lambda _: None, publish_whole=self._publish)
        bound = SimpleNamespace(renew=lambda: None)
        topic = SimpleNamespace(check=self._check, depth_bound=bound, exiting=False)
        topic.rehashing, topic.hash_partitions = False, 1
        stamped = SimpleNamespace(publish_batch=self._publish_stamped)
        return SimpleNamespace(group=group, topic=topic, stamped=stamped) if self.leads else None

    def _check(self, leader: Any, count: int, moved: bool) -> None:
        if self.refusal is not None:
            raise self.refusal

    def _publish(self, encode: Any, count: int, length: int, done: Any, producer: int) -> None:
        self.published.append((encode(100, 7 << 12, 1_000, 90, 3), done))

    def _publish_stamped(self, stamp: Any, count: int, length: int, encode: Any, done: Any) -> None:
        self.stamps.append(stamp)
        self._publish(encode, count, length, done, stamp.producer_id)

    def forward(self) -> None:
        led = self.forwarding.leader_of("orders", 2)
        assert led is not None
        self.forwarding.send(led, BATCH, self.received.append)

    def pass_to(self, other: Node) -> list[PeerLane]:
        """All that was sent; on which lanes."""
        sent, self.sent = self.sent, []
        for _, data in sent:
            for target, frame in received(Frames(self.number), data):
                assert isinstance(frame, SendBatch | BatchAnswered)
                other.forwarding.receive(self.number, target, frame)
        return [lane for lane, _ in sent]


@pytest.fixture
def here() -> Node:
    return Node(0, [Led(1, TARGET)])


@pytest.fixture
def there() -> Node:
    return Node(1)


@pytest.mark.parametrize(
    ("error", "ending", "text"),
    [
        (Refused("it is full"), Ending.REFUSED, "node 1: it is full"),
        (PublishUnknown("orders/2", "it ended"), Ending.UNKNOWN, "it ended"),
        (LeadershipEnded("orders/2", "it was handed over"), Ending.NOT_LED, "handed over"),
    ],
)
def test_answers_tell_refused_from_unknown(
    here: Node, there: Node, error: PenstockError, ending: Ending, text: str
) -> None:
    here.forward()
    here.pass_to(there)
    there.published[0][1](error)
    there.pass_to(here)
    (received,) = here.received
    assert received.ending is ending
    assert text in received.reason


def test_a_refusing_leader_and_a_follower_store_nothing(here: Node, there: Node) -> None:
    there.refusal = Refused("the disk is full")
    here.forward()
    here.pass_to(there)
    there.leads, there.trouble = False, "it is full"
    here.forward()
    here.pass_to(there)
    there.pass_to(here)
    assert there.published == []
    assert [one.ending for one in here.received] == [Ending.REFUSED, Ending.NOT_LED]
    assert here.received[1].reason == "node 1: it does not lead the partition: it is full"


def test_publishes_to_a_local_leader_use_no_link(here: Node) -> None:
    here.forwarding.send(Led(0, TARGET), BATCH, here.received.append)
    here.published[0][1](None)
    assert (here.sent, here.received) == ([], [ForwardAnswer(Ending.STORED, 100, 7 << 12)])


def test_a_batch_of_an_idempotent_producer_is_published_as_one(here: Node, there: Node) -> None:
    batch = encode_batch([b"one"], 0, 0, 0, 0, 0, 77, 3, 12)
    here.forwarding.send(Led(1, TARGET), batch, here.received.append)
    here.pass_to(there)
    assert there.stamps == [(77, 3, 12)]
    stored, done = there.published[0]
    header = decode_header(stored, 0)
    assert (header.producer_id, header.producer_epoch, header.first_sequence) == (77, 3, 12)
    done(None, None)
    there.pass_to(here)
    assert [one.ending for one in here.received] == [Ending.STORED]


def test_dead_letters_keep_their_trailers(here: Node, there: Node) -> None:
    letter = Content(b"x", {Section.ID: 77, Section.HEADERS: b"{}"})
    received: list[PenstockError | None] = []
    here.forwarding.carry("dead", [letter], received.append)
    here.pass_to(there)
    there.published[0][1](None)
    there.pass_to(here)
    assert received == [None]
    assert b"{}" in there.published[0][0]


def test_a_batch_larger_than_a_payload_is_refused(
    here: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLICA_CHUNK_BYTES", 8)
    monkeypatch.setattr(limits, "REPLICA_PAYLOAD_BYTES_MAX", 16)
    with pytest.raises(Refused, match="at most 16 are sent"):
        here.forward()
    assert here.sent == []
    here.forwarding.unlinked(1)
    assert here.received == []  # nothing is waited for


def test_a_broken_link_makes_the_outcome_unknown(here: Node, there: Node) -> None:
    here.forward()
    here.pass_to(there)
    here.forwarding.unlinked(2)
    assert here.received == []
    here.forwarding.unlinked(1)
    assert [one.ending for one in here.received] == [Ending.UNKNOWN]
    there.published[0][1](None)
    there.pass_to(here)  # too late: it has been said already
    assert len(here.received) == 1


def test_answers_to_an_earlier_incarnation_are_ignored(here: Node, there: Node) -> None:
    here.forward()
    here.pass_to(there)
    again = Node(0, [Led(1, TARGET)], incarnation=900)
    again.forward()
    there.published[0][1](None)
    there.pass_to(again)
    answer = BatchAnswered(900, 1, Ending.STORED)
    again.forwarding.receive(2, TARGET, answer)  # of a node that was not asked
    assert again.received == []
    again.forwarding.receive(1, TARGET, answer)
    assert [one.ending for one in again.received] == [Ending.STORED]
