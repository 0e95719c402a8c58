"""`penstock channel`: list, make, change and remove the channels of a topic."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.times import format_seconds
from penstock.tools import channel_messages, channel_report, nodes
from penstock.tools.peek import given_time
from penstock.tools.stats import as_json, look
from penstock.tools.topic import act, add_verbs, configure
from penstock.tools.verbs import (
    DONE,
    FAILED,
    VerbParser,
    WrongUse,
    add_json,
    add_yes,
    confirm,
    print_json,
    run_verb,
)

Target = dict[str, str]
Moves = dict[str, Any]  # by node: where it goes, how many come again, are skipped, are given up

ACTIONS = {
    "create": "make it; it gets the messages from now on, the first one gets the backlog too",
    "delete": "remove it and what it has yet to deliver; asks for --yes",
    "empty": "drop what it has yet to deliver, in flight and delayed; asks for --yes",
    "emptydelayed": "drop what is delayed; asks for --yes",
    "pause": "stop delivering",
    "unpause": "deliver again",
}
SKIPPING = {
    "skip": "drop what it has and whatever comes, until unskip; asks for --yes",
    "unskip": "deliver what comes from now on",
}
ONE_NODE = frozenset({"offset", "virtual_queue", "msgcount", "id"})  # places in one log


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock channel",
        description="Channels of a topic.",
        examples=["penstock channel list orders", "penstock channel pause orders billing"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser(
        "list", help="the names, sorted", examples=["penstock channel list orders"]
    )
    listing.add_argument("topic", metavar="TOPIC")
    add_json(listing)
    nodes.add_arguments(listing)
    redrive = verbs.add_parser(
        "redrive",
        help="deliver its dead letters again",
        examples=["penstock channel redrive orders billing --count 100"],
    )
    _add_common(redrive)
    redrive.add_argument("--count", type=int, default=0, metavar="N", help="this many (0: all)")
    _add_seek(verbs)
    _add_requeue_delayed(verbs)
    channel_report.add_parser(verbs)
    channel_messages.add_parsers(verbs, _add_common)
    example = "penstock channel {verb} orders billing"
    add_verbs(verbs, ACTIONS, _add_common, example, "max_attempts=10")
    _add_skipping(verbs)
    return parser


def _add_skipping(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    for verb, about in SKIPPING.items():
        yes = " --yes" if verb == "skip" else ""
        line = f"penstock channel {verb} orders billing"
        action = verbs.add_parser(
            verb, help=about, examples=[line + yes, f"{line} --partition 0{yes}"]
        )
        _add_common(action)
        action.add_argument(
            "--partition", type=int, metavar="N", help="only in this one; without, in all"
        )
        if yes:
            add_yes(action)


def _add_seek(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    seek = verbs.add_parser(
        "seek",
        help="move to a position in the log and deliver from there",
        description="It asks first when messages would be skipped or given up.",
        examples=[
            "penstock channel seek orders billing back:1000 --dry-run",
            "penstock channel seek orders billing 2026-11-21T06:00:00Z",
        ],
    )
    _add_common(seek)
    add_yes(seek)
    seek.add_argument(
        "position",
        metavar="POSITION",
        help="earliest, latest, back:N (the newest N), offset:N, id:HEX, or a time: "
        "2026-11-21T06:00:00Z, 24h (ago), seconds since 1970",
    )
    seek.add_argument(
        "--partition", type=int, metavar="N", help="only in this one; offset and back need it"
    )
    seek.add_argument("--dry-run", action="store_true", help="only say what would come again")


def _add_requeue_delayed(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    parser = verbs.add_parser(
        "requeuedelayed",
        help="send what is delayed and due within some hours now",
        examples=["penstock channel requeuedelayed orders billing 24"],
    )
    _add_common(parser)
    parser.add_argument("hours", type=int, metavar="HOURS", help="0: what is due now")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("channel", metavar="CHANNEL")
    add_json(parser)
    nodes.add_arguments(parser)


def channel_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments)
    if arguments.verb == "report":
        return channel_report.run(arguments)
    target = {"topic": arguments.topic, "channel": arguments.channel}
    if arguments.verb == "config":
        return configure(arguments, "/channel/config", target)
    if arguments.verb == "redrive":
        return _redrive(arguments, target)
    if arguments.verb == "seek":
        return _seek(arguments, target)
    if arguments.verb == "requeuedelayed":
        target["offset"] = str(arguments.hours)
    if arguments.verb == "messages":
        return channel_messages.show(arguments, target)
    if arguments.verb in channel_messages.SETTLED:
        return channel_messages.settle(arguments, target)
    name = f"channel {arguments.channel} of topic {arguments.topic}"
    if arguments.verb in SKIPPING and arguments.partition is not None:
        target["partition"] = str(arguments.partition)
        name = f"partition {arguments.partition} of {name}"
    return act(arguments, f"/channel/{arguments.verb}", target, name)


def _list(arguments: argparse.Namespace) -> int:
    state = look(nodes.nodes(arguments), arguments.topic, "")
    if not state.rows:
        reasons = [f"{address}: {why}" for address, why in state.failures.items()]
        raise PenstockError("; ".join(reasons) or f"no such topic: {arguments.topic}")
    if arguments.json:
        found = as_json(state, {})
        channels = found["topics"][arguments.topic]["channels"]
        print_json({"nodes": found["nodes"], "topic": arguments.topic, "channels": channels})
    else:
        for _, channel in sorted(state.rows):
            if channel:
                print(channel)
    return FAILED if state.failures else DONE


def _redrive(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    if arguments.count < 0:
        raise WrongUse(f"--count {arguments.count}: must be 0 (all) or more")
    if arguments.count:
        target["count"] = str(arguments.count)
    members = nodes.nodes(arguments, changes=True)
    answers = nodes.ask_each(members, lambda node: node.post("/channel/redrive", target))
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address, answer in answers.good.items():
        print(f"{address}: {answer['redriven']} redriven")
    answers.tell_errors()
    return answers.code


def _seek(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    members = nodes.nodes(arguments, changes=not arguments.dry_run)
    position: str = arguments.position
    if len(members) > 1 and position.partition(":")[0] in ONE_NODE:
        raise PenstockError(f"{position} is a place in the log of one node: name one")
    kind, _, value = position.partition(":")
    if kind == "timestamp" or position[:1].isdigit() or position == "now":
        time_ns = given_time(value if kind == "timestamp" else position)
        position = f"timestamp:{format_seconds(time_ns)}"
    target |= {"position": position}
    if arguments.partition is not None:
        target["partition"] = str(arguments.partition)
    answers = _moves(members, target, "true")
    if not arguments.dry_run:
        if not _may_lose(arguments, answers.good):
            return FAILED
        answers = _moves(members, target, "false")
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    _tell_moves(arguments, answers.good)
    answers.tell_errors()
    return answers.code


def _moves(members: Sequence[nodes.Node], target: Target, dry_run: str) -> nodes.Answers:
    wanted = target | {"dry_run": dry_run}
    return nodes.ask_each(members, lambda node: node.post("/channel/setoffset", wanted))


def _may_lose(arguments: argparse.Namespace, moves: Moves) -> bool:
    """Nothing asks about a replay that only delivers again."""
    skipped = sum(move["messages_skipped"] for move in moves.values())
    given_up = sum(move.get("messages_given_up", 0) for move in moves.values())
    if not skipped and not given_up:
        return True
    question = f"skip {skipped:,} messages and give up {given_up:,} unfinished ones"
    return confirm(arguments, f"{question} of {arguments.channel}", arguments.channel)


def _tell_moves(arguments: argparse.Namespace, answers: Moves) -> None:
    would = "would come" if arguments.dry_run else "come"
    for address, move in answers.items():
        again, skipped = move["messages_again"], move["messages_skipped"]
        places = move.get("partitions") or [move]
        where = ", ".join(_place(one) for one in places)
        text = f"{address}: {where}, {again:,} {would} again"
        text += f", {skipped:,} skipped" if skipped else ""
        given_up = move.get("messages_given_up", 0)  # older nodes don't tell
        print(f"{text}, {given_up:,} unfinished given up" if given_up else text)


def _place(move: dict[str, Any]) -> str:
    of = f"partition {move['partition']} " if "partition" in move else ""
    return f"{of}offset {move['offset']}"
