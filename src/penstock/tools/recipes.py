"""The cheat sheet's recipes: a theme, what it is for, and commands in the order of their use.

Placeholders are names that could be real: `orders` is a topic, `billing` a channel of it. A test
reads each command with the parser of its verb, so none of them is out of date.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    why: str
    command: str


class Recipe(NamedTuple):
    theme: str
    about: str
    steps: tuple[Step, ...]
    words: tuple[str, ...] = ()  # people look for these too


RECIPES = (
    Recipe("publish", "put messages in", (
        Step("one", "penstock pub orders 'hello'"),
        Step("one for later", "penstock pub orders 'hello' --delay 30s"),
        Step("a line of a file each", "penstock pub orders < lines.txt"),
        Step("into another installation", "penstock pub orders 'hello' --context test"),
    ), ("produce", "send", "delay")),
    Recipe("watch", "see what flows, live", (
        Step("topics and channels, the busiest first", "penstock stats --watch --sort rate"),
        Step("which channels fall behind", "penstock channel report --watch --sort oldest"),
        Step("the machines", "penstock node list --watch"),
        Step("the messages themselves, without taking them from anybody", "penstock tail orders"),
        Step("for programs: one JSON document a look", "penstock stats --watch --json --count 5"),
    ), ("top", "lag", "rates", "monitor")),
    Recipe("look", "read stored messages without delivering them", (
        Step("the newest", "penstock topic peek orders --count 5"),
        Step("from a time on", "penstock topic peek orders --time 2026-11-21T06:00:00Z"),
        Step("one, by its id", "penstock topic peek orders --id 0d2c6bf1a4c02000"),
        Step("what an id says", "penstock id 0d2c6bf1a4c02000"),
        Step("by SQL", "penstock sql 'select * from orders limit 10'"),
    ), ("peek", "find", "search", "browse")),
    Recipe("replay", "deliver again what was finished", (
        Step("how many would come again?",
             "penstock channel seek orders billing 2026-11-21T06:00:00Z --dry-run"),
        Step("from that time on", "penstock channel seek orders billing 2026-11-21T06:00:00Z"),
        Step("the newest thousand", "penstock channel seek orders billing back:1000"),
        Step("all that is kept", "penstock channel seek orders billing earliest"),
        Step("what has to be kept for it is a setting",
             "penstock topic config orders retain_age=24h"),
        Step("from the archive, or into another topic",
             "penstock pipeline run replay --table /data/archive --topics orders --to again"),
    ), ("rewind", "seek", "again", "offset", "time")),
    Recipe("dead-letters", "messages that were given up after max_attempts", (
        Step("how many, and where they go", "penstock channel config orders billing"),
        Step("give up after ten attempts, and keep them in a topic",
             "penstock channel config orders billing max_attempts=10 "
             "dead_letter_topic=orders.dead"),
        Step("look at some", "penstock topic peek orders.dead --count 5"),
        Step("repair the consumer, then deliver one", "penstock channel redrive orders billing "
             "--count 1"),
        Step("and the rest", "penstock channel redrive orders billing"),
    ), ("dlq", "poison", "redrive", "attempts")),
    Recipe("trace", "what happened to a message", (
        Step("trace a hundredth of a topic", "penstock topic config orders trace_rate=0.01"),
        Step("one message's life", "penstock trace 0d2c6bf1a4c02000"),
        Step("all messages of a trace id", "penstock trace --trace-id 42"),
        Step("is anything lost, stuck or doubled?",
             "penstock pipeline run audit --topic orders --trace /data/trace"),
        Step("switch it off again", "penstock topic config orders trace_rate="),
    ), ("lost", "follow", "audit")),
    Recipe("drain", "take a node out", (
        Step("what would have to be delivered first?",
             "penstock drain --status --nsqd-http-address node3:4151"),
        Step("refuse publishes, deliver the rest, stop",
             "penstock drain --nsqd-http-address node3:4151 --watch"),
        Step("call it off", "penstock drain --cancel --nsqd-http-address node3:4151"),
    ), ("remove", "decommission", "stop", "node")),
    Recipe("upgrade", "from the official nsqd, or to a newer version", (
        Step("look first: this writes nothing", "penstock migrate /var/lib/nsq --dry-run"),
        Step("into a new directory; the old one stays",
             "penstock migrate /var/lib/nsq --to /var/lib/penstock"),
        Step("or start on the old data path: it is taken over",
             "penstock nsqd -data-path=/var/lib/nsq -tcp-address=0.0.0.0:4150 "
             "-http-address=0.0.0.0:4151"),
        Step("which versions run?", "penstock node list"),
        Step("the way back", "penstock migrate /var/lib/penstock --write-back --to /var/lib/nsq2"),
    ), ("migrate", "nsq", "version")),
    Recipe("disk-full", "publishes are refused, or soon will be", (
        Step("how much is left, and where?", "penstock node list"),
        Step("which topics take the room?", "penstock node show node1:4151"),
        Step("which channels hold it back?", "penstock channel report --sort depth --limit 10"),
        Step("one that nobody reads", "penstock channel delete orders forgotten"),
        Step("keep less of what is finished", "penstock topic config orders retain_bytes=0"),
        Step("refuse early instead of filling up",
             "penstock topic config orders max_depth=1000000"),
    ), ("disk", "space", "full", "refused", "retention")),
    Recipe("stuck-channel", "it holds messages and nothing leaves it", (
        Step("who reads it, and what is in flight where?",
             "penstock channel report orders billing"),
        Step("is it paused?", "penstock stats orders billing"),
        Step("go on", "penstock channel unpause orders billing"),
        Step("the same message again and again: give up some day",
             "penstock channel config orders billing max_attempts=10"),
        Step("nobody needs what waits", "penstock channel empty orders billing"),
    ), ("stuck", "slow", "backlog", "timeout", "paused")),
    Recipe("installations", "switch between them", (
        Step("name one", "penstock context save prod --lookupd-http-address lookup1:4161"),
        Step("use it from now on", "penstock context select prod"),
        Step("does everything answer?", "penstock context validate --all"),
        Step("and back", "penstock context previous"),
        Step("its topics and settings into another", "penstock definitions export "
             "--context prod --file definitions.json"),
        Step("what would change there?",
             "penstock definitions import definitions.json --context test --dry-run"),
    ), ("context", "definitions", "backup", "cluster")),
    Recipe("health", "is all well? for a monitoring system", (
        Step("one line and an exit code", "penstock check"),
        Step("with bounds", "penstock check orders billing --depth-warn 1000 --depth-crit 100000 "
             "--consumers 2"),
        Step("is what is stored sound?", "penstock log verify /var/lib/penstock"),
    ), ("monitoring", "nagios", "alarm", "damaged")),
)  # fmt: skip


def matching(word: str) -> list[Recipe]:
    """By theme, else by what people look for, else by any word in it."""
    wanted = word.lower()
    for fits in (
        lambda one: wanted == one.theme,
        lambda one: wanted in one.theme or wanted in one.words,
        lambda one: wanted in one.about or any(wanted in step.command for step in one.steps),
    ):
        found = [one for one in RECIPES if fits(one)]
        if found:
            return found
    return []
