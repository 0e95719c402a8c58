"""How a topic or a channel does, in a sentence: what comes, who keeps up, who does not, and what to
do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.nsqadmin import lag
from penstock.nsqadmin.lag import Lag
from penstock.nsqadmin.pages import words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import ChannelState, TopicState

_NAMED_MAX = 4  # of channels in one sentence


def lags(here: Opened, topic: TopicState) -> dict[str, Lag]:
    """By channel."""
    window = here.ground.history.window
    return {
        name: lag.of_channel(channel, window(f"{topic.name}/{name}"))
        for name, channel in topic.channels.items()
    }


def until_empty(found: Lag) -> str:
    """For a column: when none waits any more, if it goes on like this."""
    if found.empty_s is not None:
        return words.span(found.empty_s)
    return "never" if found.pace in lag.LATE or found.pace == lag.HOLDS else ""


def of_topic(topic: TopicState, found: Mapping[str, Lag]) -> str:
    if topic.is_idle:
        return (
            "No nsqd that is known has it: the first message that is published makes it. Lookup"
            " deletes it."
        )
    if not topic.nodes:
        return f"{listed(topic.registered)} does not answer, so nothing is known of it."
    said = [_comes(topic)]
    if topic.refusals:
        said.append("Publishes are refused.")
    if topic.paused:
        said.append("It is paused: its channels get nothing.")
    if not topic.channels:
        held = words.wait(topic.depth) if topic.depth else "It holds none"
        said.append(f"It has no channel. {held} for the first one.")
    holders = {name for name, one in topic.channels.items() if one.is_internal}
    said += [_holds(topic.channels[name]) for name in sorted(holders)]
    found = {name: one for name, one in found.items() if name not in holders}
    fine = [name for name, one in found.items() if one.pace in (lag.KEEPS_UP, lag.IDLE)]
    late = sorted((one for one in found.items() if one[0] not in fine), key=lambda one: -one[1][1])
    if fine:
        all_ = "All channels keep up." if len(fine) == len(found) > 1 else ""
        said.append(all_ or f"{listed(fine)} {'keeps' if len(fine) == 1 else 'keep'} up.")
    said += [f"{name} {_pace(one)}." for name, one in late[:_NAMED_MAX]]
    if len(late) > _NAMED_MAX:
        said.append(f"{len(late) - _NAMED_MAX} more are behind.")
    return " ".join(said)


def _comes(topic: TopicState) -> str:
    if topic.in_rate:
        return f"{_amount(topic.in_rate)} messages a second come in."
    if topic.messages or topic.backlog or topic.stale_s:
        return "Nothing comes in at the moment."
    return "Nothing has been published since its nodes started."


def _holds(channel: ChannelState) -> str:
    count = words.count(channel.depth + channel.in_flight + channel.deferred, "dead letter")
    return f"{channel.name} holds {count} of {listed(channel.holds_of)}."


def of_channel(channel: ChannelState, found: Lag) -> str:
    if channel.is_internal:
        return (
            f"{_holds(channel)} It is Penstock's own: a consumer here would take them. Look at"
            " them, and redrive them, on the page of the channel that they came from."
        )
    if found.pace == lag.IDLE:
        return "Nothing waits, and nothing comes in at the moment."
    if found.pace == lag.KEEPS_UP:
        said = [f"It keeps up: {_amount(channel.in_rate)} messages a second come in."]
    else:
        said = [f"It {_pace(found)}. {_STEPS[found.pace]}".rstrip()]
    if channel.oldest_s >= 1 and found.pace != lag.KEEPS_UP:
        said.append(f"The oldest unfinished message is {words.span(channel.oldest_s)} old.")
    return " ".join(said)


_STEPS = {
    lag.PAUSED: "Unpause it when you are done.",
    lag.UNREAD: "Start its consumers.",
    lag.STUCK: "Look at its consumers: what they hold is listed below.",
    lag.LOSES: "Add consumers, raise their max-in-flight, or find what slows them.",
    lag.GAINS: "",
    lag.HOLDS: "Its consumers do what comes, and no more.",
}


def _pace(found: Lag) -> str:
    waits = words.number(found.waits)
    if found.pace == lag.PAUSED:
        return f"is paused, and {words.wait(found.waits)}"
    if found.pace == lag.UNREAD:
        return f"has no consumer, and {words.wait(found.waits)}"
    if found.pace == lag.STUCK:
        return f"is stuck: {words.wait(found.waits)}, and its consumers finish none"
    if found.pace == lag.LOSES:
        return f"is {waits} behind, and {_amount(found.growth)} more with every second"
    if found.pace == lag.GAINS:
        return f"is {waits} behind and catches up: it will be empty in {until_empty(found)}"
    return f"is {waits} behind, and stays so"


def _amount(rate: float) -> str:
    return f"{rate:.1f}" if 0 < rate < 9.95 else words.number(rate)


def listed(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED_MAX])
    if len(names) > _NAMED_MAX:
        shown.append(f"{len(names) - _NAMED_MAX} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
