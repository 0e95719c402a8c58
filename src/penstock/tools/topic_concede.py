"""`penstock topic concede`: readers do not wait any more for what no replica has.

    127.0.0.1:4151: partition 2: offsets 100 to 163 are given up
    127.0.0.1:4153: nothing is waited for

Only the leader of a partition of several replicas waits at what is corrupt; other nodes answer that
there is nothing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.net.query import whole_number
from penstock.tools import nodes
from penstock.tools.verbs import FAILED, VerbParser, add_json, add_yes, confirm, print_json

if TYPE_CHECKING:
    from penstock.tools.nodes import Answers


def add_parser(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    concede = verbs.add_parser(
        "concede",
        help="do not wait any more for corrupt messages that no replica has; asks for --yes",
        description="Readers of a topic with several replicas wait at what is corrupt on the "
        "leader's disk until another replica has it. Concede it when no replica that will come "
        "back has it: these messages are lost to every channel that has not finished them.",
        examples=["penstock topic concede orders --yes"],
    )
    concede.add_argument("topic", metavar="TOPIC")
    concede.add_argument("--partition", type=_number, metavar="N", help="only this one")
    add_json(concede)
    add_yes(concede)
    nodes.add_arguments(concede)


def _number(text: str) -> int:
    number = whole_number(text, limits.PARTITIONS_MAX - 1)
    if number is None:
        rule = f"a whole number, 0 to {limits.PARTITIONS_MAX - 1}"
        raise argparse.ArgumentTypeError(f"{text!r}: {rule}")
    return number


def run(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments, changes=True)
    where = ", ".join(node.address for node in members)
    question = f"concede what is corrupt of topic {arguments.topic} on {where}"
    if not confirm(arguments, question, arguments.topic):
        return FAILED
    query = {"topic": arguments.topic}
    if arguments.partition is not None:
        query["partition"] = str(arguments.partition)
    answers = nodes.ask_each(members, lambda node: node.post("/topic/concede", query))
    if arguments.json:
        print_json(answers.as_json())
    else:
        print("\n".join(lines(answers)))
        answers.tell_errors()
    return answers.code


def lines(answers: Answers) -> list[str]:
    found: list[str] = []
    for address, document in answers.good.items():
        ranges: list[dict[str, Any]] = document["conceded"]
        if not ranges:
            found.append(f"{address}: nothing is waited for")
        for one in ranges:
            first, last = one["from"], one["to"] - 1
            offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
            found.append(f"{address}: partition {one['partition']}: {offsets} given up")
    return found
