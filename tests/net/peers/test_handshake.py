"""Two nodes make sure of each other, or find out why they should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.broker.ports import PeerLane
from penstock.errors import PeerFault
from penstock.net.peers.handshake import (
    GREETING_BYTES,
    Dialling,
    Greeting,
    HandshakeKind,
    HandshakeState,
    Listening,
    Own,
    PeerRefused,
    Reason,
    decode,
    refusal,
)
from penstock.net.peers.links import PeerLink, PeerSession

ONE = Own(1, 0x11, 0xC1, (b"a secret of ours",))
TWO = Own(2, 0x22, 0xC1, (b"a secret of ours",))
NONCES = b"d" * 32, b"l" * 32


def meet(one: Own = ONE, two: Own = TWO, target: int = 2, may: Reason | None = None) -> Dialling:
    """Both handshakes to their end. Raises what the dialling node finds out."""
    dialling = Dialling(one, target, PeerLane.LIVE, 7, NONCES[0])
    listening = Listening(two, NONCES[1], lambda node, incarnation, session: may)
    try:
        welcome = listening.feed(dialling.begin())
    except PeerRefused as refused:
        welcome = refused.answer
    proof = dialling.feed(welcome)
    try:
        assert listening.feed(proof) == b""
    except PeerRefused as refused:
        dialling.feed(refused.answer)
        raise
    assert (listening.state, listening.lane) == (HandshakeState.OPEN, PeerLane.LIVE)
    assert (listening.greeting.source, listening.greeting.incarnation) == (
        one.node,
        one.incarnation,
    )
    return dialling


def test_without_a_secret_nothing_is_proven() -> None:
    found = meet(ONE._replace(secrets=()), TWO._replace(secrets=()))
    assert (found.state, found.incarnation) == (HandshakeState.OPEN, TWO.incarnation)


def test_secrets_are_changed_one_node_after_the_other() -> None:
    both = (b"a newer secret..", *ONE.secrets)
    assert meet(ONE, TWO._replace(secrets=(*ONE.secrets, both[0]))).state is HandshakeState.OPEN
    assert (
        meet(ONE._replace(secrets=both), TWO._replace(secrets=both[::-1])).state
        is HandshakeState.OPEN
    )


@each(
    ("one", "two", "target", "may", "reason"),
    [
        (ONE, TWO._replace(cluster=0xC2), 2, None, Reason.CLUSTER),
        (ONE, TWO, 3, None, Reason.NODE),
        (ONE, TWO, 2, Reason.STRANGER, Reason.STRANGER),
        (ONE, TWO, 2, Reason.SESSION, Reason.SESSION),
        (ONE, TWO._replace(secrets=(b"another secret..",)), 2, None, Reason.PROOF),
        (ONE, TWO._replace(secrets=()), 2, None, Reason.PROOF),
        (ONE._replace(secrets=()), TWO, 2, None, Reason.PROOF),
    ],
)
def test_peers_that_refuse_each_other(
    one: Own, two: Own, target: int, may: Reason | None, reason: Reason
) -> None:
    with pytest.raises(PeerRefused, match=str(PeerRefused(reason))) as caught:
        meet(one, two, target, may)
    assert caught.value.reason is reason


def test_the_listening_node_believes_no_proof_but_of_its_nonce() -> None:
    """What was heard on one connection opens no other."""
    dialling = Dialling(ONE, 2, PeerLane.LIVE, 7, NONCES[0])
    listening = Listening(TWO, NONCES[1], lambda *_: None)
    proof = dialling.feed(listening.feed(dialling.begin()))
    another = Listening(TWO, b"x" * 32, lambda *_: None)
    another.feed(dialling.begin())
    with pytest.raises(PeerRefused, match="the secrets differ"):
        another.feed(proof)


def test_a_proof_cannot_be_sent_back() -> None:
    """Of a node that has no secret, and lets the other one prove it."""
    listening = Listening(TWO, NONCES[1], lambda *_: None)
    greeting = Dialling(ONE._replace(secrets=()), 2, PeerLane.LIVE, 7, NONCES[0]).begin()
    welcome = decode(listening.feed(greeting))
    with pytest.raises(PeerRefused, match="the secrets differ"):
        listening.feed(welcome.proof)


def test_frames_may_come_right_behind() -> None:
    dialling = Dialling(ONE, 2, PeerLane.BULK, 7, NONCES[0])
    listening = Listening(TWO, NONCES[1], lambda *_: None)
    welcome = listening.feed(dialling.begin())
    for at in range(len(welcome) - 1):  # a byte at a time
        assert dialling.feed(welcome[at : at + 1]) == b""
    proof = dialling.feed(welcome[-1:] + b"frames")
    assert dialling.rest == b"frames"
    listening.feed(proof + b"more")
    assert listening.rest == b"more"


def test_another_version_is_refused_by_its_number() -> None:
    listening = Listening(TWO, NONCES[1], lambda *_: None)
    greeting = Greeting(HandshakeKind.GREETING, 1, 0xC1, 1, 2, 0x11, 7, version=9)
    with pytest.raises(PeerRefused, match="another version") as caught:
        listening.feed(greeting.encode())
    assert decode(caught.value.answer).kind is HandshakeKind.REFUSAL
    dialling = Dialling(ONE, 2, PeerLane.LIVE, 7, NONCES[0])
    with pytest.raises(PeerRefused, match="another version"):
        dialling.feed(refusal(Reason.VERSION, 7))


@each(
    ("answer", "fault"),
    [
        (Greeting(HandshakeKind.WELCOME, 1, 0xC1, 2, 1, 0x22, 8), "a welcome to another greeting"),
        (Greeting(HandshakeKind.WELCOME, 2, 0xC1, 2, 1, 0x22, 7), "a welcome to another greeting"),
        (Greeting(HandshakeKind.WELCOME, 1, 0xC1, 3, 1, 0x22, 7), "another node"),
        (Greeting(HandshakeKind.GREETING, 1, 0xC1, 2, 1, 0x22, 7), "another version"),
        (Greeting(HandshakeKind.REFUSAL, 99, 0, 0, 0, 0, 7), "for reason 99"),
    ],
)
def test_an_answer_that_makes_no_sense(answer: Greeting, fault: str) -> None:
    dialling = Dialling(ONE._replace(secrets=()), 2, PeerLane.LIVE, 7, NONCES[0])
    with pytest.raises(PeerFault, match=fault):
        dialling.feed(answer.encode())


@given(st.binary(min_size=GREETING_BYTES, max_size=2 * GREETING_BYTES))
def test_invalid_greetings(data: bytes) -> None:
    with pytest.raises(PeerFault):
        Listening(TWO, NONCES[1], lambda *_: None).feed(data)
    with pytest.raises(PeerFault):
        Dialling(ONE, 2, PeerLane.LIVE, 7, NONCES[0]).feed(data)


@given(st.integers(0, GREETING_BYTES - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    data = bytearray(Dialling(ONE, 2, PeerLane.LIVE, 7, NONCES[0]).begin())
    data[at] ^= flip
    with pytest.raises(PeerFault):
        decode(bytes(data))


def test_a_lane_that_is_not_known() -> None:
    greeting = Greeting(HandshakeKind.GREETING, 9, 0xC1, 1, 2, 0x11, 7)
    with pytest.raises(PeerFault, match="lane 9"):
        Listening(TWO, NONCES[1], lambda *_: None).feed(greeting.encode())
    with pytest.raises(PeerFault, match="a greeting of 3 bytes"):
        decode(b"abc")


# --- two connections make a link, and a newer session ends an older one first ---


FIRST, SECOND, RESTARTED = PeerSession(1, 5), PeerSession(1, 6), PeerSession(2, 1)


class Wire:
    def __init__(self, story: list[str], name: str) -> None:
        self.story, self.name = story, name

    def close(self) -> None:
        self.story.append(f"close {self.name}")

    def go_on(self) -> None:
        self.story.append(f"go on {self.name}")


class Desk:
    def __init__(self) -> None:
        self.story: list[str] = []
        self.link = PeerLink(
            3, lambda node, incarnation: self.story.append(f"linked {incarnation}"),
            lambda node: self.story.append("unlinked"),
        )  # fmt: skip

    def open(self, session: PeerSession, lane: PeerLane, name: str, incarnation: int = 9) -> None:
        wire = Wire(self.story, name)
        self.link.opened(session, lane, incarnation, wire)  # type: ignore[arg-type]

    def events(self) -> list[str]:
        story = self.story[:]
        self.story.clear()
        return story


def whole() -> Desk:
    desk = Desk()
    desk.open(FIRST, PeerLane.BULK, "bulk")
    assert desk.events() == []
    desk.open(FIRST, PeerLane.LIVE, "live")
    assert desk.events() == ["linked 9", "go on bulk", "go on live"]
    return desk


def test_a_link_needs_both_lanes() -> None:
    desk = whole()
    desk.link.end()
    assert desk.events() == ["close bulk", "close live", "unlinked"]


def test_a_newer_session_ends_the_older_before_it_begins() -> None:
    desk = whole()
    desk.open(SECOND, PeerLane.LIVE, "new live")
    assert desk.events() == ["close bulk", "close live", "unlinked"]
    desk.open(SECOND, PeerLane.BULK, "new bulk")
    assert desk.events() == ["linked 9", "go on new live", "go on new bulk"]


@pytest.mark.parametrize("late", [FIRST, PeerSession(1, 4)])
def test_an_older_session_comes_too_late(late: PeerSession) -> None:
    desk = whole()
    desk.open(late, PeerLane.LIVE, "late")
    assert desk.events() == ["close late"]
    desk.link.end()
    desk.events()
    desk.open(PeerSession(1, 4), PeerLane.LIVE, "late")
    assert desk.events() == ["close late"]


def test_a_process_that_was_started_again_begins_at_one() -> None:
    desk = whole()
    desk.open(RESTARTED, PeerLane.BULK, "new", incarnation=10)
    assert desk.events() == ["close bulk", "close live", "unlinked"]


def test_half_a_link_that_ends_is_not_reported() -> None:
    desk = Desk()
    desk.open(FIRST, PeerLane.BULK, "bulk")
    desk.link.end()
    assert desk.events() == ["close bulk"]


def test_the_other_process_ended_between_two_lanes() -> None:
    desk = Desk()
    desk.open(FIRST, PeerLane.BULK, "bulk", incarnation=9)
    desk.open(FIRST, PeerLane.LIVE, "live", incarnation=10)
    assert desk.events() == ["close live", "close bulk"]
    assert not desk.link.is_whole
