"""Dead letters for a partition that another node leads.

| the node that sends | the leader's node |
|---|---|
| SendLetters, over the bulk lane | not led here: refused |
| | led here: one publish; answered as it ends |
| the answer: stored, refused or unknown | |
| the link ends: unknown | |

The answer comes for certain while the link lasts, since each publish ends, with its office at the
latest. So there is no clock here. What is unknown may be stored, and is sent again: there are two
letters then. Letters are taken from other nodes only as long as they need not be handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker.letters import Letter, decode_letters, encode_letters
from penstock.broker.ports import Lane, Led, MetadataDone, Peers
from penstock.errors import PenstockError, PublishUnknown, Refused
from penstock.replica.frames import Target, encode
from penstock.replica.letterframes import Ending, LetterFrame, LettersAnswered, SendLetters

Publish = Callable[[Target, Sequence[Letter], MetadataDone], None]


class _Sent(NamedTuple):
    node: int
    topic: str
    done: MetadataDone


class CarriedLetters:
    def __init__(
        self,
        node: int,
        life: int,
        peers: Peers,
        led: Callable[[str], Sequence[Led]],
        is_linked: Callable[[int], bool],
        publish: Publish,
    ) -> None:
        """`led`: the partitions of a topic that have a leader. `publish`: into one that is led
        here; raises Refused where it is not."""
        self._node = node
        self._life = life
        self._peers = peers
        self._led = led
        self._is_linked = is_linked
        self._publish = publish
        self._number = 0
        self._sent: dict[int, _Sent] = {}

    # --- the node that sends ---

    def carry(self, topic: str, letters: Sequence[Letter], done: MetadataDone) -> None:
        """To the leader of some partition. Raises Refused where none can be reached, and when the
        letters are larger than a payload may be."""
        reached = [one for one in self._led(topic) if self._is_linked(one.node)]
        if not reached:
            raise Refused(f"no leader of a partition of topic {topic} can be reached")
        self._number += 1
        node, target = reached[self._number % len(reached)]
        frame = SendLetters(self._life, self._number, encode_letters(letters))
        try:
            frames = encode(target, frame)
        except ValueError as error:
            raise Refused(f"dead letters of topic {topic}: {error}") from error
        self._sent[self._number] = _Sent(node, topic, done)
        self._peers.send(node, Lane.BULK, frames)

    def _answered(self, node: int, answer: LettersAnswered) -> None:
        sent = self._sent.get(answer.number)
        if answer.session != self._life or sent is None or sent.node != node:
            return  # to an earlier life, or of a link that has ended meanwhile
        del self._sent[answer.number]
        match answer.ending:
            case Ending.STORED:
                sent.done(None)
            case Ending.REFUSED:
                sent.done(Refused(f"node {node}: {answer.reason}"))
            case Ending.UNKNOWN:
                sent.done(PublishUnknown(f"topic {sent.topic}", f"node {node}: {answer.reason}"))

    def unlinked(self, node: int) -> None:
        lost = [number for number, sent in self._sent.items() if sent.node == node]
        for sent in [self._sent.pop(number) for number in lost]:
            reason = f"the link to node {node} has ended"
            sent.done(PublishUnknown(f"topic {sent.topic}", reason))

    # --- the node that leads ---

    def receive(self, node: int, target: Target, frame: LetterFrame) -> None:
        if isinstance(frame, LettersAnswered):
            self._answered(node, frame)
            return

        def done(error: PenstockError | None) -> None:
            ending, reason = _ending_of(error)
            answer = LettersAnswered(frame.session, frame.number, ending, reason)
            self._peers.send(node, Lane.LIVE, encode(target, answer))

        try:
            self._publish(target, decode_letters(frame.letters), done)
        except (PenstockError, ValueError) as error:
            done(error if isinstance(error, PenstockError) else Refused(str(error)))


def _ending_of(error: PenstockError | None) -> tuple[Ending, str]:
    if error is None:
        return Ending.STORED, ""
    return (Ending.UNKNOWN if isinstance(error, PublishUnknown) else Ending.REFUSED), str(error)
