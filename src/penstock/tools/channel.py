"""`penstock channel`: list, create, change and remove the channels of a topic, and their
messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from penstock import limits
from penstock.durations import format_duration
from penstock.errors import PenstockError
from penstock.nsqdapi import calls
from penstock.times import format_seconds
from penstock.tools import reports
from penstock.tools.app import (
    Channel,
    Limit,
    OnlyChannel,
    OnlyTopic,
    Partition,
    Topic,
    Yes,
    arg,
    group,
    opt,
    switch,
    verb,
)
from penstock.tools.connection import Http
from penstock.tools.nodes import Answers, Node, ask_each
from penstock.tools.output import Output, Row, confirm
from penstock.tools.reports import Pace
from penstock.tools.topic import Settings, Target, act, add_change, configure, given_time

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import ChannelState, Snapshot

_ONE_NODE = frozenset({"offset", "virtual_queue", "msgcount", "id"})  # positions in one log
_SORTS: Mapping[str, str] = {"oldest": "oldest_s", "in": "in_rate", "out": "finish_rate",
                             "in-flight": "in_flight", "delayed": "deferred"}  # fmt: skip

_POSITION = (
    "earliest, latest, back:N (the newest N), offset:N, id:HEX, or a time: "
    "2026-11-21T06:00:00Z, 24h (ago), seconds since 1970"
)

MessageId = Annotated[str, arg("ID", "of the message: 16 hex digits")]

app = group("Channels of a topic.", "channel list orders", "channel pause orders billing")


@verb(app, "channel list orders", name="list")
def list_channels(topic: Topic, at: Http) -> Output:
    """List the channels of a topic."""
    now = reports.need_answer(reports.look(at.members(), topic))
    found = reports.document(now)
    if topic not in found["topics"]:
        raise PenstockError(f"no such topic: {topic}")
    channels = found["topics"][topic]["channels"]
    document = {"nodes": found["nodes"], "topic": topic, "channels": channels}
    return reports.names_output(now, document, channels)


@verb(
    app,
    "channel report --sort oldest --limit 10",
    "channel report orders billing --watch --count 2",
)
def report(
    at: Http,
    pace: Pace,
    topic: OnlyTopic = "",
    channel: OnlyChannel = "",
    sort: Annotated[
        Literal["name", "depth", "oldest", "in", "out", "in-flight", "delayed"],
        opt("", "most first"),
    ] = "depth",
    limit: Limit = 0,
) -> int:
    """Report depth, age of the oldest, rates, time until empty.

    For one channel it lists partitions and consumers, too."""

    def show(now: Snapshot, before: Snapshot | None) -> Output:
        found = chosen(now, sort, limit)
        if topic and not found and not pace.goes_on:
            raise PenstockError(f"no such channel: {' '.join(filter(None, (topic, channel)))}")
        return reports.channels_output(now, before, found, bool(channel))

    return pace.report(at.members(), show, topic, channel, bool(channel))


def chosen(now: Snapshot, sort: str, limit: int) -> list[ChannelState]:
    found = sorted(now.channels(), key=lambda one: (one.topic, one.name))
    if sort == "depth":
        found.sort(key=lambda one: one.depth + one.in_flight, reverse=True)
    elif sort != "name":
        found.sort(key=lambda one: float(getattr(one, _SORTS[sort])), reverse=True)
    return found[: limit or None]


# --- one request to each node ---


def _of(topic: str, channel: str, partition: int | None = None) -> Target:
    return {"topic": topic, "channel": channel, "partition": partition}


_create = "Create it for new messages; a topic's first gets all"
add_change(app, "channel", "create", _create, "partition", "yes")
add_change(app, "channel", "delete", "Delete it with its undelivered messages", "partition")
add_change(app, "channel", "empty", "Drop all its undelivered messages", "partition")
add_change(app, "channel", "emptydelayed", "Drop its delayed messages", "partition")
add_change(app, "channel", "pause", "Stop delivering", "partition", "yes")
add_change(app, "channel", "unpause", "Deliver again", "partition", "yes")


@verb(app, "channel requeuedelayed orders billing 24")
def requeuedelayed(
    topic: Topic,
    channel: Channel,
    hours: Annotated[int, arg("HOURS", "0: those that are due now")],
    at: Http,
) -> Output:
    """Deliver delayed messages now that are due within HOURS."""
    target = _of(topic, channel) | {"offset": hours}
    return act(at, "requeuedelayed", calls.change("/channel/requeuedelayed", **target))


_ends = "\n\n`unskip` ends it."
add_change(app, "channel", "skip", "Drop its messages, and those that come", more=_ends)
add_change(app, "channel", "unskip", "Stop skipping: deliver new messages", "yes")


@verb(app, "channel config orders billing", "channel config orders billing max_attempts=10")
def config(
    topic: Topic, channel: Channel, at: Http, settings: Settings = None, yes: Yes = False
) -> Output:
    """Show its settings, or change them: NAME=VALUE ...

    A setting that lets stored messages go asks first."""
    return configure(at, "/channel/config", _of(topic, channel), settings or (), yes)


@verb(app, "channel redrive orders billing --count 100")
def redrive(
    topic: Topic,
    channel: Channel,
    at: Http,
    count: Annotated[int, opt("N", "this many; 0: all", min=0)] = 0,
) -> Output:
    """Deliver its dead letters again."""
    members = at.once(topic, channel, changes=True)
    target = _of(topic, channel) | {"count": count or None}
    found = ask_each(members, lambda node: node.post("/channel/redrive", target, "redriven"))
    return found.output(lambda address, one: [f"{address}: {one['redriven']} redriven"])


# --- seek ---


@verb(
    app,
    "channel seek orders billing back:1000 --dry-run",
    "channel seek orders billing 2026-11-21T06:00:00Z",
)
def seek(
    topic: Topic,
    channel: Channel,
    position: Annotated[str, arg("POSITION", _POSITION)],
    at: Http,
    partition: Partition = None,
    dry_run: Annotated[bool, switch("only show what would happen")] = False,
    yes: Yes = False,
) -> Output:
    """Move to a position in the log and deliver from there.

    It asks first when messages would be skipped or given up. offset:N needs --partition."""
    members = at.once(topic, channel, changes=not dry_run)
    kind, _, value = position.partition(":")
    if len(members) > 1 and kind in _ONE_NODE:
        raise PenstockError(f"{position} is a position in the log of one node: name one")
    if kind == "timestamp" or position[:1].isdigit() or position == "now":
        time_ns = given_time(value if kind == "timestamp" else position)
        position = f"timestamp:{format_seconds(time_ns)}"
    target = _of(topic, channel, partition) | {"position": position}
    found = _moves(members, target, dry_run=True)
    if not dry_run:
        _confirm_loss(yes, channel, found.good)
        found = _moves(members, target, dry_run=False)
    return found.output(lambda address, move: [f"{address}: {_moved(move, dry_run)}"])


def _moves(members: Sequence[Node], target: Target, dry_run: bool) -> Answers:
    wanted = target | {"dry_run": dry_run}
    keys = "messages_again", "messages_skipped"
    return ask_each(members, lambda node: node.post("/channel/setoffset", wanted, *keys))


def _confirm_loss(yes: bool, channel: str, moves: Mapping[str, Row]) -> None:
    """A replay that only delivers again needs no confirmation."""
    skipped = sum(move["messages_skipped"] for move in moves.values())
    given_up = sum(move.get("messages_given_up", 0) for move in moves.values())
    if skipped or given_up:
        question = f"skip {skipped:,} messages and give up {given_up:,} unfinished ones"
        confirm(yes, f"{question} of {channel}", channel)


def _moved(move: Row, dry_run: bool) -> str:
    """The effect of `move`: the position, and how many messages come again, are skipped, are given
    up."""
    positions = [
        (f"partition {one['partition']} " if "partition" in one else "") + f"offset {one['offset']}"
        for one in move.get("partitions") or [move]
    ]
    would = "would come" if dry_run else "come"
    text = f"{', '.join(positions)}, {move['messages_again']:,} {would} again"
    if move["messages_skipped"]:
        text += f", {move['messages_skipped']:,} skipped"
    given_up = move.get("messages_given_up", 0)  # older nodes don't tell
    return f"{text}, {given_up:,} unfinished given up" if given_up else text


# --- one message of it ---


@verb(app, "channel messages orders billing --state deferred")
def messages(
    topic: Topic,
    channel: Channel,
    at: Http,
    state: Annotated[
        Literal["in_flight", "deferred", "requeued", "behind", "held", "dead"], opt()
    ] = "deferred",
    limit: Annotated[int, opt("N", "of each node")] = 100,
) -> Output:
    """List its messages: deferred, in flight and others.

    `penstock topic peek` shows the body of one, by its offset or its id."""
    wanted = _of(topic, channel) | {"state": state, "limit": limit}
    found = ask_each(at.members(), lambda node: node.get("/channel/messages", wanted, "messages"))
    return found.output(_message_lines)


def _message_lines(address: str, answer: Row) -> Iterator[str]:
    for one in answer["messages"]:
        partition = f"partition {one['partition']}  " if one.get("partition") else ""
        where = f"{partition}offset {one['offset']}"
        text = f"{address}  {one['id']}  {where}  attempts {one['attempts']}"
        if "due_in_ms" in one:
            text += f"  due in {format_duration(one['due_in_ms'] * limits.MS)}"
        if "deadline_ms" in one:
            text += f"  times out in {format_duration(one['deadline_ms'] * limits.MS)}"
        cause = one.get("cause") or ""
        yield f"{text}  {cause.replace('_', ' ')}".rstrip()


@verb(app, "channel finish orders billing 18a2000000001000")
def finish(topic: Topic, channel: Channel, message_id: MessageId, at: Http) -> Output:
    """Finish one message; this cancels a delay, too.

    It is in flight, deferred or requeued."""
    return _settle(at, "finish", "finished", _of(topic, channel) | {"id": message_id})


@verb(app, "channel requeue orders billing 18a2000000001000 --delay-ms 60000")
def requeue(
    topic: Topic,
    channel: Channel,
    message_id: MessageId,
    at: Http,
    delay_ms: Annotated[int, opt("N", "0: at once")] = 0,
) -> Output:
    """Requeue one message, now or after a delay."""
    wanted = _of(topic, channel) | {"id": message_id, "delay_ms": delay_ms}
    return _settle(at, "requeue", "requeued", wanted)


def _settle(at: Http, word: str, done: str, wanted: Target) -> Output:
    """On the node that has the message: ids of different nodes differ."""

    def ask(node: Node) -> Any:
        node.post(f"/channel/message/{word}", wanted)
        return "done"

    members = at.once(wanted["topic"], wanted["channel"], changes=True)
    found = ask_each(members, ask)
    return found.output(lambda address, _: [f"{address}: {wanted['id']} {done}"])
