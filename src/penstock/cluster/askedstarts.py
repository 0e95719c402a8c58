"""Who has asked a leader where a channel starts: the leader's side of `channelmakings`.

| a node asks, and | then |
|---|---|
| the set of this office has the start | it is answered at once |
| it does not, or the channel is not known here yet | the node is noted, and answered then |
| the partition is not led here | nothing: the node asks the next leader |

A note lasts as long as the one who asked waits.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import StartAsked, StartHeld
from penstock.limits import CHANNEL_CONFIRM_NS

Answer = Callable[[int, StartHeld], None]


class AskedStarts:
    def __init__(
        self, is_held: Callable[[PartitionName, int, int], bool | None], answer: Answer
    ) -> None:
        """`is_held`: by partition, identity of the topic and number of the channel; None: it is not
        led here."""
        self._is_held = is_held
        self._answer = answer
        self._asked: dict[StartAsked, dict[int, int]] = {}  # nodes, and until when they wait

    def ask(self, node: int, asked: StartAsked, now_ns: int) -> None:
        held = self._is_held(*asked)
        if held:
            self._answer(node, StartHeld(*asked))
        elif held is not None:
            self._asked.setdefault(asked, {})[node] = now_ns + CHANNEL_CONFIRM_NS

    def held(self, name: PartitionName, identity: int, channel: int) -> None:
        for node in self._asked.pop(StartAsked(name, identity, channel), ()):
            self._answer(node, StartHeld(name, identity, channel))

    @property
    def is_waiting(self) -> bool:
        return bool(self._asked)

    def tick(self, now_ns: int) -> None:
        for asked, nodes in tuple(self._asked.items()):
            for node in [node for node, until_ns in nodes.items() if until_ns <= now_ns]:
                del nodes[node]
            if not nodes:
                del self._asked[asked]
