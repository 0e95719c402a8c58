"""The states of topics, channels and nodes: a word with its colour, and a sentence that names the
traffic, the lagging channels, and the remedy.

A channel's pace is what its depth has changed by over the last samples: the rates of one look jump,
and a depth that stays is neither good nor bad.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from penstock import limits
from penstock.nsqadmin import words
from penstock.nsqadmin.attention import Finding, Level, findings
from penstock.nsqadmin.history import Sample
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.watch import Watch

IDLE, KEEPS_UP, PAUSED, UNREAD = "idle", "keeps up", "paused", "unread"
STUCK, GAINS, LOSES, HOLDS = "stuck", "gains", "loses", "holds"
LATE = frozenset((PAUSED, UNREAD, STUCK, LOSES))  # those that somebody should look at

LEVELS = {Level.BAD: "bad", Level.WARN: "warn", Level.NOTE: "soft"}
_NAMED_MAX = 4  # of channels in one sentence

Badge = tuple[str, str]  # a word and its colour; two empty ones when there is nothing to say

# --- in a word ---

_found: WeakKeyDictionary[Watch, tuple[Snapshot, list[Finding]]] = WeakKeyDictionary()


def found(view: PageView, snapshot: Snapshot) -> list[Finding]:
    """Made once for a snapshot, however many pages look at it."""
    known = _found.get(view.deps.watch)
    if known is None or known[0] is not snapshot:
        known = (snapshot, findings(snapshot, view.deps.history.window))
        _found[view.deps.watch] = known
    return known[1]


def by_topic(found: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The worst first."""
    sorted_: dict[str, list[Finding]] = {}
    for one in found:
        if one.path[0] == "topics":
            sorted_.setdefault(one.path[1], []).append(one)
    return sorted_


def paused(of: TopicState | ChannelState | None) -> str:
    """The nodes on which it is paused."""
    if of is None or not of.paused:
        return ""
    return f"{PAUSED} on {len(of.paused_on)} of {len(of.nodes)}" if of.is_paused_partly else PAUSED


def silent(node: NodeState) -> str:
    if not node.stale_s:
        return "" if node.is_up else "node down"
    state = "node down" if node.error else "no answer"
    return f"{state}, {words.aged(node.stale_s)}" if node.document else state


def topic_badge(topic: TopicState, found: Mapping[str, Sequence[Finding]]) -> Badge:
    """The worst of its states."""
    worst = found.get(topic.name, ())
    if worst and worst[0].level > Level.NOTE:
        return worst[0].state, LEVELS[worst[0].level]
    if topic.stale_s:
        return words.aged(topic.stale_s) if topic.nodes else "node down", "soft"
    if topic.paused:
        return paused(topic), "warn"
    if any(one.paused for one in topic.channels.values()):
        return f"channel {PAUSED}", "soft"
    if worst:
        return worst[0].state, "soft"
    return ("on no node", "soft") if topic.is_idle else ("", "")


def channel_badge(found: Sequence[Finding], path: tuple[str, ...]) -> Badge:
    worst = max((one for one in found if one.path == path), default=None, key=lambda one: one.level)
    return (worst.state, LEVELS[worst.level]) if worst else ("", "")


def node_badge(node: NodeState | None) -> Badge:
    if node is None:
        return "unknown", "bad"
    if node.error:
        return "down", "bad"
    if node.stale_s or not node.answered_s:
        return f"no answer for {words.span(node.stale_s)}" if node.stale_s else "asked", "soft"
    return ("not healthy", "bad") if node.is_unhealthy else ("up", "good")


def disk_of(node: NodeState) -> tuple[float | None, str]:
    """The used share, and the free space as text."""
    free, size = node.disk.get("free_bytes"), node.disk.get("size_bytes")
    if free is None or not size:
        return None, ""
    return 100 * (1 - free / size), f"{words.size(free)} left"


# --- lag ---


class Lag(NamedTuple):
    pace: str
    waits: int  # messages that no consumer has yet
    growth: float = 0.0  # of them, a second
    empty_s: float | None = None  # until none waits when it goes on like this; None: never, or now

    @property
    def until_empty(self) -> str:
        if self.empty_s is not None:
            return words.span(self.empty_s)
        return "never" if self.pace in LATE or self.pace == HOLDS else ""


def lags(view: PageView, topic: TopicState) -> dict[str, Lag]:
    window = view.deps.history.window
    return {
        name: lag_of(channel, window(f"{topic.name}/{name}"))
        for name, channel in topic.channels.items()
    }


def lag_of(channel: ChannelState, recent: Sequence[Sample]) -> Lag:
    waits, growth = channel.depth, trend(recent)
    if channel.paused and waits:
        return Lag(PAUSED, waits, growth)
    if waits + channel.in_flight == 0 and not channel.in_rate:
        return Lag(IDLE, 0)
    if not channel.clients and waits:
        return Lag(UNREAD, waits, growth)
    if waits and _finishes_nothing(channel, recent):
        return Lag(STUCK, waits, growth)
    if waits <= limits.ADMIN_KEEPS_UP_S * channel.in_rate:
        return Lag(KEEPS_UP, waits)
    steady = max(limits.ADMIN_STEADY_SHARE * max(channel.in_rate, channel.finish_rate), 0.05)
    if growth > steady:
        return Lag(LOSES, waits, growth)
    if growth < -steady:
        return Lag(GAINS, waits, growth, waits / -growth)
    return Lag(HOLDS, waits, growth)


def trend(recent: Sequence[Sample]) -> float:
    """Messages a second by which more wait; 0 when too little is known."""
    known = [(one.time_s, one.values.depth) for one in recent if one.values is not None]
    span_s = known[-1][0] - known[0][0] if known else 0.0
    return (known[-1][1] - known[0][1]) / span_s if span_s >= limits.ADMIN_TREND_S else 0.0


def _finishes_nothing(channel: ChannelState, recent: Sequence[Sample]) -> bool:
    known = [one.values for one in recent if one.values is not None]
    long_enough = len(known) > 1 and recent[-1].time_s - recent[0].time_s >= limits.ADMIN_TREND_S
    return long_enough and not channel.finish_rate and not any(one.out_rate for one in known)


# --- in a sentence ---


def topic_saying(topic: TopicState, found: Mapping[str, Lag]) -> str:
    if topic.is_idle:
        return (
            "No nsqd that is known has it: the first message that is published makes it. Lookup"
            " deletes it."
        )
    if not topic.nodes:
        return f"{listed(topic.registered)} does not answer, so nothing is known of it."
    sentences = [_comes(topic)]
    if topic.refusals:
        sentences.append("Publishes are refused.")
    if topic.paused:
        sentences.append("It is paused: its channels get nothing.")
    if not topic.channels:
        held = words.wait(topic.depth) if topic.depth else "It holds none"
        sentences.append(f"It has no channel. {held} for the first one.")
    holders = {name for name, one in topic.channels.items() if one.is_internal}
    sentences += [_holds(topic.channels[name]) for name in sorted(holders)]
    found = {name: one for name, one in found.items() if name not in holders}
    fine = [name for name, one in found.items() if one.pace in (KEEPS_UP, IDLE)]
    late = sorted((one for one in found.items() if one[0] not in fine), key=lambda one: -one[1][1])
    if fine:
        all_ = "All channels keep up." if len(fine) == len(found) > 1 else ""
        sentences.append(all_ or f"{listed(fine)} {'keeps' if len(fine) == 1 else 'keep'} up.")
    sentences += [f"{name} {_pace(one)}." for name, one in late[:_NAMED_MAX]]
    if len(late) > _NAMED_MAX:
        sentences.append(f"{len(late) - _NAMED_MAX} more are behind.")
    return " ".join(sentences)


def _comes(topic: TopicState) -> str:
    if topic.in_rate:
        return f"{words.few(topic.in_rate)} messages a second come in."
    if topic.messages or topic.backlog or topic.stale_s:
        return "Nothing comes in at the moment."
    return "Nothing has been published since its nodes started."


def _holds(channel: ChannelState) -> str:
    count = words.count(channel.depth + channel.in_flight + channel.deferred, "dead letter")
    return f"{channel.name} holds {count} of {listed(channel.holds_of)}."


def channel_saying(channel: ChannelState, found: Lag) -> str:
    if channel.is_internal:
        return (
            f"{_holds(channel)} It is Penstock's own: a consumer here would take them. Look at"
            " them, and redrive them, on the page of the channel that they came from."
        )
    if found.pace == IDLE:
        return "Nothing waits, and nothing comes in at the moment."
    if found.pace == KEEPS_UP:
        return f"It keeps up: {words.few(channel.in_rate)} messages a second come in."
    sentences = [f"It {_pace(found)}. {_STEPS[found.pace]}".rstrip()]
    if channel.oldest_s >= 1:
        sentences.append(f"The oldest unfinished message is {words.span(channel.oldest_s)} old.")
    return " ".join(sentences)


_STEPS = {
    PAUSED: "Unpause it when you are done.",
    UNREAD: "Start its consumers.",
    STUCK: "What its consumers have in flight, and what failed too often and is held, is below.",
    LOSES: "Add consumers, raise their max-in-flight, or find what slows them.",
    GAINS: "",
    HOLDS: "Its consumers do what comes, and no more.",
}


def _pace(found: Lag) -> str:
    waits = words.number(found.waits)
    return {
        PAUSED: f"is paused, and {words.wait(found.waits)}",
        UNREAD: f"has no consumer, and {words.wait(found.waits)}",
        STUCK: f"is stuck: {words.wait(found.waits)}, and its consumers finish none",
        LOSES: f"is {waits} behind, and {words.few(found.growth)} more with every second",
        GAINS: f"is {waits} behind and catches up: it will be empty in {found.until_empty}",
        HOLDS: f"is {waits} behind, and stays so",
    }[found.pace]


def listed(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED_MAX])
    if len(names) > _NAMED_MAX:
        shown.append(f"{len(names) - _NAMED_MAX} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
