"""`penstock topic`: list, make, change and remove topics, on all the nodes that are named.

A change is one POST to each node, and its settings are read and changed alike: of a topic here, of
a channel in `channel.py`.
"""

from __future__ import annotations

import base64
import heapq
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import limits
from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Call
from penstock.times import format_time, read_time
from penstock.tools import reports
from penstock.tools.app import Channel, Partition, Topic, Yes, arg, group, opt, switch, verb
from penstock.tools.connection import Http, confirm_on
from penstock.tools.envelopes import KEY, as_text
from penstock.tools.nodes import NOT_FOUND, Node, NodeFailed, ask_all, ask_each
from penstock.tools.output import FAILED, Output, Row, WrongUse, confirm, when
from penstock.tools.reports import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot

_BEYOND_END = 416

Settings = Annotated[list[str] | None, arg("NAME=VALUE", "an empty value sets the default")]
Target = dict[str, Any]  # topic, channel and what else a request has

app = group("Topics of the nodes.", "topic list", "topic create clicks --partitions 8")


@verb(app, "topic list --json", name="list")
def list_topics(at: Http) -> Output:
    """List the topics."""
    now = reports.need_answer(reports.look(at.members()))
    return reports.names_output(now, reports.document(now), sorted(now.topics))


@verb(app, "topic show orders", "topic show orders --watch --count 2")
def show(topic: Topic, at: Http, pace: Pace, partition: Partition = None) -> int:
    """Show its partitions, and how far each channel is behind."""

    def output(now: Snapshot, before: Snapshot | None) -> Output:
        if topic not in now.topics:
            raise PenstockError(f"no such topic: {topic}")
        return reports.topic_output(now.topics[topic], partition)

    return pace.report(at.members(), output, topic)


_COUNT = opt("N", "how many it shall have", min=1, max=limits.PARTITIONS_MAX)


@verb(app, "topic create clicks --partitions 8")
def create(
    topic: Topic,
    at: Http,
    partitions: Annotated[int | None, _COUNT] = None,
    replicas: Annotated[
        int | None, opt("N", "copies, in a cluster", min=1, max=limits.MEMBERS_MAX)
    ] = None,
    extended: Annotated[bool, switch("messages may have headers")] = False,
) -> Output:
    """Create a topic, unless it exists.

    Without --partitions it has as many as nsqd's --default-partitions says."""
    return act(at, "create", calls.create(topic, partitions, replicas, extended))


@verb(app, "topic expand orders --partitions 16")
def expand(
    topic: Topic,
    at: Http,
    partitions: Annotated[int, _COUNT],
    rehash: Annotated[bool, switch("spread keys over all of them")] = False,
) -> Output:
    """Add partitions, while it is in use.

    Messages with a key stay in the partitions that they are in now, unless --rehash spreads the
    keys over all of them; that is refused as long as a channel has anything unfinished."""
    return act(at, "expand", calls.expand(topic, partitions, rehash))


@verb(app, "topic extend orders")
def extend(topic: Topic, at: Http) -> Output:
    """Let its messages have headers from now on."""
    return act(at, "extend", calls.change("/topic/meta/update", topic=topic, upgradeext=True))


@verb(app, "topic concede orders --yes")
def concede(
    topic: Topic,
    at: Http,
    partition: Annotated[
        int | None, opt("N", "only this one", min=0, max=limits.PARTITIONS_MAX - 1)
    ] = None,
    yes: Yes = False,
) -> Output:
    """Give up corrupt messages that no replica has.

    Readers of a topic with several replicas wait at what is corrupt on the leader's disk until
    another replica has it. Concede it when no replica that will come back has it: these messages
    are lost to every channel that has not finished them."""
    members = at.once(topic, changes=True)
    confirm_on(members, yes, f"concede what is corrupt of topic {topic}", topic)
    query = {"topic": topic, "partition": partition}
    found = ask_each(members, lambda node: node.post("/topic/concede", query, "conceded"))
    return found.output(conceded)


def conceded(address: str, document: Row) -> Iterator[str]:
    """Only the leader of a partition with several replicas waits at a corrupt range."""
    if not document["conceded"]:
        yield f"{address}: nothing is waited for"
    for one in document["conceded"]:
        first, last = one["from"], one["to"] - 1
        offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
        yield f"{address}: partition {one['partition']}: {offsets} given up"


@verb(app, "topic config orders", "topic config orders max_depth=100000")
def config(topic: Topic, at: Http, settings: Settings = None, yes: Yes = False) -> Output:
    """Show its settings, or change them: NAME=VALUE ...

    A setting that lets stored messages go (max_age, retain_age, retain_bytes) asks first."""
    return configure(at, "/topic/config", {"topic": topic}, settings or (), yes)


# --- stored messages, read over HTTP and left as they are ---

# Each is asked for by itself: it is for a look at some, not for an export. Of a topic with several
# partitions the messages of all come in the order of their times; an offset is a position in one of
# them.


@verb(app, "topic peek orders --count 3", "topic peek orders --time 2026-11-21T06:00:00Z --json")
def peek(
    topic: Topic,
    at: Http,
    offset: Annotated[int | None, opt("N", "from this offset on")] = None,
    message_id: Annotated[str, opt("HEX", "from this message on (alone: only it)", "--id")] = "",
    since: Annotated[str, opt("TIME", "from then on: 2026-11-21, 24h (ago), ...", "--time")] = "",
    count: Annotated[
        int | None, opt("N", "10; without a position the newest ones", min=1, max=1000)
    ] = None,
    partition: Partition = None,
) -> Output:
    """Show stored messages; nothing is delivered."""
    if (offset is not None) + bool(message_id) + bool(since) > 1:
        raise WrongUse("--offset, --id and --time are three positions: give one of them")
    count = count or (1 if message_id else 10)
    members = at.members()

    def ask(node: Node) -> list[Row]:
        if message_id:
            return _from(node, topic, "id", message_id, partition, count)
        spans = _spans(node, topic, partition, alone=len(members) == 1)
        if not spans:
            return []  # other nodes lead it
        if offset is not None and len(spans) > 1:
            raise WrongUse(f"--offset {offset} is a position in one partition: --partition")
        if offset is not None:
            return _from(node, topic, "offset", offset, next(iter(spans)), count)
        if since:
            return _from_time(node, topic, since, spans, count)
        newest = []
        for number, span in spans.items():
            last = range(max(span.earliest, span.committed - count), span.committed)
            newest.append(_at(node, topic, number, reversed(last)))
        merged = heapq.merge(*newest, key=_time_ns, reverse=True)
        return list(islice(merged, count))[::-1]

    answers = ask_each(members, ask)
    is_split = any(one["partition"] for found in answers.good.values() for one in found)

    def lines(address: str, messages: list[Row]) -> Iterator[str]:
        if len(members) > 1 and messages:
            yield f"{address}:"
        yield from (_line(one, is_split) for one in messages)

    return answers.output(lines)


def given_time(text: str) -> int:
    """Nanoseconds since 1970. Prints on stderr how it was understood."""
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise WrongUse(str(error)) from None
    print(f"from {format_time(found)} on", file=sys.stderr)
    return found


def _from(
    node: Node, topic: str, key: str, value: int | str, partition: int | None, count: int
) -> list[Row]:
    first = node.ask(calls.message(topic, key, value, partition))
    start = first["offset"] + 1
    return [first, *_at(node, topic, first["partition"], range(start, start + count - 1))]


def _spans(node: Node, topic: str, wanted: int | None, alone: bool) -> dict[int, calls.LogSpan]:
    """The chosen partitions, of those that the node leads."""
    answer = node.ask(calls.positions([topic]))
    here, there = answer.topics.get(topic), answer.elsewhere.get(topic)
    if here is None and there is None:
        raise NodeFailed(node.address, f"no such topic: {topic}", NOT_FOUND)
    spans, leaders = here.partitions if here else {}, there.partitions if there else {}
    numbers = [*spans, *leaders] if wanted is None else [wanted]
    if not {*numbers} <= {*spans, *leaders}:
        raise NodeFailed(node.address, f"topic {topic} has no partition {wanted}", NOT_FOUND)
    found = {number: spans[number] for number in numbers if number in spans}
    if alone and not found:
        led = ", ".join(f"partition {one} by {leaders[one] or 'nobody'}" for one in numbers)
        raise NodeFailed(node.address, f"topic {topic} is led elsewhere: {led}", NOT_FOUND)
    return found


def _from_time(
    node: Node, topic: str, since: str, spans: dict[int, calls.LogSpan], count: int
) -> list[Row]:
    at_ms = given_time(since) // limits.MS
    found = []
    for partition in spans:
        start = node.ask(calls.offset_at(topic, at_ms, partition, committed=True))
        found.append(_at(node, topic, partition, range(start, start + count)))
    return list(islice(heapq.merge(*found, key=_time_ns), count))


def _at(node: Node, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[Row]:
    """As many as there are."""
    for offset in offsets:
        try:
            yield node.ask(calls.message(topic, "offset", offset, partition))
        except NodeFailed as error:
            if error.status == _BEYOND_END:
                return
            raise


def _time_ns(message: Row) -> int:
    return int(message["timestamp_ns"])


def _line(message: Row, is_split: bool) -> str:
    body = message["body"]
    shown = f"base64 {message['body_base64']}" if body is None else terminal.printable(body)
    position = f"{message['partition']}:{message['offset']}" if is_split else message["offset"]
    return f"{position} {when(message['timestamp_ns'])} {message['id']}{_headers(message)} {shown}"


def _headers(message: Row) -> str:
    """The key among them; a blank in front."""
    headers, key = message["headers"] or {}, message["key_base64"]
    if key is not None and isinstance(headers, dict):
        text = base64.b64decode(key).decode("utf-8", "backslashreplace")
        headers = {KEY: text, **headers}
    return f" {terminal.printable(as_text(headers))}" if headers else ""


# --- of a topic or a channel ---


def add_change(
    app: typer.Typer, of: str, word: str, about: str, *without: str, more: str = ""
) -> None:
    """`penstock topic pause orders` and the like: one POST to each node. It needs --yes unless it
    is among `without`."""
    without = (*without, "partition", "channel") if of == "topic" else without
    example = f"{of} {word} orders" + " billing" * (of == "channel")
    ends = ["" if "yes" in without else " --yes"]
    ends += [] if "partition" in without else [f" --partition 0{ends[0]}"]
    about += "." if "yes" in without else "; asks for --yes."

    @verb(app, *(f"{example}{end}" for end in ends), name=word, about=about + more, without=without)
    def change(
        topic: Topic, channel: Channel, at: Http, partition: Partition = None, yes: Yes = False
    ) -> Output:
        target = {"topic": topic, "channel": channel, "partition": partition}
        return act(at, word, calls.change(f"/{of}/{word}", **target), yes)


add_change(app, "topic", "delete", "Delete it with its channels and messages")
add_change(app, "topic", "empty", "Drop messages that no channel has got yet")
add_change(app, "topic", "pause", "Stop giving messages to channels", "yes")
add_change(app, "topic", "unpause", "Give messages to channels again", "yes")


def act(at: Http, word: str, call: Call[None], yes: bool | None = None) -> Output:
    """`yes` None: no confirmation. A node without the topic is distinguished from one that
    failed."""
    target = dict(call.query)
    name, typed = f"topic {target['topic']}", target.get("channel") or target["topic"]
    if target.get("channel"):
        name = f"channel {typed} of {name}"
    if "partition" in target:
        name = f"partition {target['partition']} of {name}"
    members = at.once(target["topic"], typed, changes=True)
    confirm_on(members, yes is None or yes, f"{word} {name}", typed)
    answers = ask_all(members, lambda node: node.ask(call))
    reasons = {address: error.reason for address, error in answers.bad.items()}
    results = {node.address: reasons.get(node.address, "done") for node in members}
    lines = [f"{address}: {word} {name}: {result}" for address, result in results.items()]
    return Output({"nodes": results}, lines, answers.code if answers.good else FAILED)


def configure(at: Http, path: str, target: Target, settings: Sequence[str], yes: bool) -> Output:
    """The settings of each node, after changing those that are given."""
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise WrongUse(f"{setting!r} is not NAME=VALUE")
        changes[name.replace("-", "_")] = value
    typed = target.get("channel") or target["topic"]
    members = at.once(target["topic"], typed, changes=bool(changes))
    if losing := [name for name in changes if _lets_go(target, name)]:
        confirm(yes, f"change {', '.join(losing)} of {typed}, which may let messages go", typed)
    method = Node.post if changes else Node.get
    wanted = target | changes
    found = ask_each(members, lambda node: method(node, path, wanted, "topic_name"))
    return found.output(_settings)


def _lets_go(target: Target, name: str) -> bool:
    from penstock.nsqadmin.access import Role
    from penstock.nsqadmin.settings import settings_of

    return (name, Role.DESTROY) in [(one.name, one.role) for one in settings_of(target)]


def _settings(address: str, settings: Row) -> Iterator[str]:
    yield address
    for name, value in settings.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        yield f"  {name} = {'' if shown is None else shown}"
