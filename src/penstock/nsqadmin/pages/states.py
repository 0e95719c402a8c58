"""The state of a topic in a word, with its colour: the worst that is true of it.

Findings are made once for a snapshot, however many pages look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from penstock.nsqadmin.attention import Finding, Level, findings
from penstock.nsqadmin.pages import words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.watch import Watch

PAUSED = "paused"
LEVELS = {Level.BAD: "bad", Level.WARN: "warn", Level.NOTE: "soft"}

_found: WeakKeyDictionary[Watch, tuple[Snapshot, list[Finding]]] = WeakKeyDictionary()


def found(here: Opened, snapshot: Snapshot) -> list[Finding]:
    known = _found.get(here.ground.watch)
    if known is None or known[0] is not snapshot:
        known = (snapshot, findings(snapshot, here.ground.history.window))
        _found[here.ground.watch] = known
    return known[1]


def by_topic(found: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The worst first."""
    sorted_: dict[str, list[Finding]] = {}
    for one in found:
        if one.path[0] == "topics":
            sorted_.setdefault(one.path[1], []).append(one)
    return sorted_


def paused(of: TopicState | ChannelState | None) -> str:
    """Where it is."""
    if of is None or not of.paused:
        return ""
    return f"{PAUSED} on {len(of.paused_on)} of {len(of.nodes)}" if of.is_paused_partly else PAUSED


def silent(node: NodeState) -> str:
    """Of a node's figures, while it does not answer."""
    if not node.stale_s:
        return "" if node.is_up else "node down"
    state = "node down" if node.error else "no answer"
    return f"{state}, {words.aged(node.stale_s)}" if node.document else state


def of_topic(topic: TopicState, found: Mapping[str, Sequence[Finding]]) -> tuple[str, str]:
    """The word and its colour; two empty ones when there is nothing to say."""
    told = found.get(topic.name, ())
    if told and told[0].level > Level.NOTE:
        return told[0].state, LEVELS[told[0].level]
    if topic.stale_s:
        return words.aged(topic.stale_s) if topic.nodes else "node down", "soft"
    if topic.paused:
        return paused(topic), "warn"
    if any(one.paused for one in topic.channels.values()):
        return f"channel {PAUSED}", "soft"
    if told:
        return told[0].state, "soft"
    return ("on no node", "soft") if topic.is_idle else ("", "")


def of_channel(found: Sequence[Finding], path: tuple[str, ...]) -> tuple[str, str]:
    told = max((one for one in found if one.path == path), default=None, key=lambda one: one.level)
    return (told.state, LEVELS[told.level]) if told else ("", "")
