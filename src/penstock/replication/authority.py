"""What a leader may do alone, depending on its latest evidence.

Commits need no clock: a replaced leader cannot commit. But it can still deliver committed messages,
remove consumed ones, and send dead letters, while another leader does the same. Anything a leader
does alone therefore needs **authority**: evidence, at most two seconds old, that its leadership was
in force. There are two sources:

| source | shows |
|---|---|
| each needed member answered a heartbeat, in this epoch | they have promised no higher one |
| the coordinator confirmed the record | no other leader was elected |

Its age counts from when the heartbeat, or the question, was *sent*. An answer that waited in a
buffer while the process slept shows nothing about the present: a process that wakes up has no
authority until it has asked again.

A leader that is the only member needs nobody's acknowledgement, and would continue for ever while
an operator recovers the partition elsewhere: only the coordinator gives it authority. If no other
replica is wanted, nobody can recover the partition, and the leader always has authority.

| permit | while the evidence is not older than |
|---|---|
| `acts`: retention, ages, dead letters | AUTHORITY_NS |
| `delivers` | AUTHORITY_NS, then ISOLATED_DELIVERY_NS more |
| `publishes` | any age; a leader that is the only member: ISOLATED_PUBLISH_NS |

A lone leader delivers as long as it accepts publishes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.limits import AUTHORITY_NS, ISOLATED_DELIVERY_NS, ISOLATED_PUBLISH_NS

NEVER_NS = -(1 << 62)


class Evidence:
    """The evidence of one node, shared by all partitions that it leads."""

    __slots__ = ("confirmed_ns", "links")

    def __init__(self) -> None:
        self.confirmed_ns = NEVER_NS  # when the coordinator was asked, and had what the view has
        self.links: dict[int, int] = {}  # when the last heartbeat was sent that a node answered

    def confirmed(self, sent_ns: int) -> None:
        self.confirmed_ns = max(self.confirmed_ns, sent_ns)

    def answered(self, node: int, sent_ns: int) -> None:
        self.links[node] = max(self.links.get(node, NEVER_NS), sent_ns)

    def lost(self, node: int) -> None:
        self.links.pop(node, None)

    def from_all(self, nodes: Iterable[int]) -> int:
        """The latest time by which all of these are known to have answered."""
        return min((self.links.get(node, NEVER_NS) for node in nodes), default=NEVER_NS)


class Isolation(NamedTuple):
    """How long a leader may continue while it reaches neither the coordinator nor its whole set."""

    delivery_ns: int = ISOLATED_DELIVERY_NS
    publish_ns: int = ISOLATED_PUBLISH_NS  # where it is the only member


class Permits(NamedTuple):
    acts: bool
    delivers: bool
    publishes: bool


ALL_PERMITS = Permits(True, True, True)
NO_PERMITS = Permits(False, False, False)


def permits(age_ns: int, is_alone: bool, isolation: Isolation) -> Permits:
    """`age_ns`: the age of the evidence. `is_alone`: the only member, where others are wanted."""
    acts = age_ns <= AUTHORITY_NS
    if is_alone:
        goes_on = acts or age_ns <= isolation.publish_ns
        return Permits(acts, goes_on, goes_on)
    return Permits(acts, acts or age_ns <= AUTHORITY_NS + isolation.delivery_ns, True)
