"""Which node holds up the others: a member that is merely slow is never late.

A disk that takes half a second for each sync, or a link that brings less than is published, stays
below `--replica-timeout` for ever, and each commit waits for it. So it is looked ten times a second
for which nodes commits wait: a row that has waited from one look to the next, and that all
members but one have, waits for that one. A node for which some row waited so in half of the last
SLOW_LOOKS looks is slow. Where two are, nobody is: then it is the network, or the load.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Set

from penstock.limits import SLOW_LOOKS, SLOW_LOOKS_MIN


class Slowness:
    def __init__(self) -> None:
        self._looks: deque[Set[int]] = deque(maxlen=SLOW_LOOKS)

    def looked(self, waited_for: Set[int]) -> None:
        self._looks.append(waited_for)

    def forget(self, node: int) -> None:
        for look in range(len(self._looks)):
            self._looks[look] = self._looks[look] - {node}

    def slow_nodes(self) -> list[int]:
        counts = Counter(node for look in self._looks for node in look)
        slow = [node for node, count in counts.items() if count >= SLOW_LOOKS_MIN]
        return slow if len(slow) == 1 else []
