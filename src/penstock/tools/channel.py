"""`penstock channel`: list, make, change and remove the channels of a topic."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.tools import nodes
from penstock.tools.peek import epoch_ms
from penstock.tools.stats import as_json, look
from penstock.tools.topic import act, add_verbs, configure
from penstock.tools.verbs import DONE, FAILED, print_json, run_verb

ACTIONS = {
    "create": "make it; it gets the messages from now on, the first one gets the backlog too",
    "delete": "remove it and what it has yet to deliver; asks for --yes",
    "empty": "drop what it has yet to deliver, in flight and delayed; asks for --yes",
    "pause": "stop delivering",
    "unpause": "deliver again",
}
ONE_NODE = frozenset({"offset", "virtual_queue", "msgcount", "id"})  # places in one log


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock channel", description="Channels of a topic.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="the names, sorted")
    listing.add_argument("topic", metavar="TOPIC")
    listing.add_argument("--json", action="store_true", help="for programs")
    nodes.add_arguments(listing)
    redrive = verbs.add_parser("redrive", help="deliver its dead letters anew")
    _add_common(redrive)
    redrive.add_argument("--count", type=int, default=0, metavar="N", help="so many (0: all)")
    seek = verbs.add_parser("seek", help="go back, or on, to a place in the log, and deliver anew")
    _add_common(seek)
    seek.add_argument(
        "position",
        metavar="POSITION",
        help="earliest, latest, back:N (the newest N), offset:N, id:HEX, or a time: "
        "timestamp:SECONDS, 2026-11-21T06:00:00Z",
    )
    seek.add_argument("--dry-run", action="store_true", help="only say what would come again")
    add_verbs(verbs, ACTIONS, _add_common)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("channel", metavar="CHANNEL")
    parser.add_argument("--json", action="store_true", help="for programs")
    nodes.add_arguments(parser)


def channel_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments)
    target = {"topic": arguments.topic, "channel": arguments.channel}
    if arguments.verb == "config":
        return configure(arguments, "/channel/config", target)
    if arguments.verb == "redrive":
        return _redrive(arguments, target)
    if arguments.verb == "seek":
        return _seek(arguments, target)
    name = f"channel {arguments.channel} of topic {arguments.topic}"
    return act(arguments, f"/channel/{arguments.verb}", target, name)


def _list(arguments: argparse.Namespace) -> int:
    state = look(nodes.nodes(arguments), arguments.topic, "")
    if not state.rows:
        reasons = [f"{address}: {why}" for address, why in state.failures.items()]
        raise PenstockError("; ".join(reasons) or f"no such topic: {arguments.topic}")
    if arguments.json:
        print_json(as_json(state, {})["topics"][arguments.topic]["channels"])
    else:
        for _, channel in sorted(state.rows):
            if channel:
                print(channel)
    return FAILED if state.failures else DONE


def _redrive(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    if arguments.count < 0:
        raise PenstockError(f"--count {arguments.count}: must be 0 (all) or more")
    if arguments.count:
        target["count"] = str(arguments.count)
    answers = {
        node.address: node.post("/channel/redrive", target) for node in nodes.nodes(arguments)
    }
    if arguments.json:
        print_json(answers)
    else:
        for address, answer in answers.items():
            print(f"{address}: {answer['redriven']} redriven")
    return DONE


def _seek(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    members = nodes.nodes(arguments)
    position: str = arguments.position
    if len(members) > 1 and position.partition(":")[0] in ONE_NODE:
        raise PenstockError(f"{position} is a place in the log of one node: name one")
    if position[:1].isdigit():
        seconds, milliseconds = divmod(epoch_ms(position), 1000)
        position = f"timestamp:{seconds}.{milliseconds:03}"
    target |= {"position": position, "dry_run": str(arguments.dry_run).lower()}
    answers = {node.address: node.post("/channel/setoffset", target) for node in members}
    if arguments.json:
        print_json(answers)
        return DONE
    would = "would come" if arguments.dry_run else "come"
    for address, move in answers.items():
        again, skipped = move["messages_again"], move["messages_skipped"]
        text = f"{address}: offset {move['offset']}, {again:,} {would} again"
        text += f", {skipped:,} skipped" if skipped else ""
        given_up = move.get("messages_given_up", 0)  # older nodes don't tell
        print(f"{text}, {given_up:,} unfinished given up" if given_up else text)
    return DONE
