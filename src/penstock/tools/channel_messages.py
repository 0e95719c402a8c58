"""`penstock channel messages`, `finish` and `requeue`: what is inside a channel, one by one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from penstock.tools import nodes
from penstock.tools.verbs import VerbParser, print_json

STATES = ("in_flight", "deferred", "requeued", "behind", "held", "dead")
SETTLED = {"finish": "finished", "requeue": "requeued"}
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))

AddCommon = Callable[[argparse.ArgumentParser], None]


def add_parsers(verbs: argparse._SubParsersAction[VerbParser], add_common: AddCommon) -> None:
    listing = verbs.add_parser(
        "messages",
        help="the messages inside it: deferred, in flight, requeued, behind others, held or dead",
        description="`penstock topic peek` shows the body of one, by its offset or its id.",
        examples=["penstock channel messages orders billing --state deferred"],
    )
    add_common(listing)
    listing.add_argument("--state", choices=STATES, default="deferred", help="default: deferred")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="of each node (100)")
    finish = verbs.add_parser(
        "finish",
        help="finish one message that is in flight, deferred or requeued; this cancels a delay",
        examples=["penstock channel finish orders billing 18a2000000001000"],
    )
    requeue = verbs.add_parser(
        "requeue",
        help="send one message again now, or after a delay",
        examples=["penstock channel requeue orders billing 18a2000000001000 --delay-ms 60000"],
    )
    for one in (finish, requeue):
        add_common(one)
        one.add_argument("id", metavar="ID", help="of the message: 16 hex digits")
    requeue.add_argument("--delay-ms", type=int, default=0, metavar="N", help="default: at once")


def show(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    wanted = target | {"state": arguments.state, "limit": str(arguments.limit)}
    members = nodes.nodes(arguments)
    answers = nodes.ask_each(members, lambda node: node.get("/channel/messages", wanted))
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address, answer in answers.good.items():
        for message in answer["messages"]:
            print(f"{address}  {_line(message)}")
    answers.tell_errors()
    return answers.code


def _line(message: dict[str, Any]) -> str:
    partition = f"partition {message['partition']}  " if message.get("partition") else ""
    place = f"{partition}offset {message['offset']}"
    text = f"{message['id']}  {place}  attempts {message['attempts']}"
    if "due_in_ms" in message:
        text += f"  due in {_span(message['due_in_ms'])}"
    if "deadline_ms" in message:
        text += f"  times out in {_span(message['deadline_ms'])}"
    if message.get("cause"):
        text += f"  {message['cause'].replace('_', ' ')}"
    return text


def _span(duration_ms: int) -> str:
    for unit_ms, unit in _UNITS:
        if duration_ms >= unit_ms:
            return f"{duration_ms / unit_ms:.1f}{unit}"
    return f"{duration_ms}ms"


def settle(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    """On the node that has the message: ids of different nodes differ."""
    wanted = target | {"id": arguments.id}
    if arguments.verb == "requeue":
        wanted |= {"delay_ms": str(arguments.delay_ms)}
    members = nodes.nodes(arguments, changes=True)
    path = f"/channel/message/{arguments.verb}"

    def ask(node: nodes.Node) -> str:
        node.post(path, wanted)
        return "done"

    answers = nodes.ask_each(members, ask)
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address in answers.good:
        print(f"{address}: {arguments.id} {SETTLED[arguments.verb]}")
    answers.tell_errors()
    return answers.code
