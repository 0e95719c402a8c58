"""`penstock topic`: list, make, change and remove topics, on all the nodes that are named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.tools import nodes, peek
from penstock.tools.stats import as_json, look
from penstock.tools.verbs import DONE, FAILED, print_json, run_verb

ACTIONS = {
    "create": "make it (nothing happens when it is there)",
    "delete": "remove it, its channels and its messages; asks for --yes",
    "empty": "drop what no channel has been given yet; asks for --yes",
    "pause": "stop handing messages to channels",
    "unpause": "hand them over again",
}
DESTRUCTIVE = frozenset({"delete", "empty"})


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock topic", description="Topics of the nodes.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="the names, sorted")
    nodes.add_arguments(listing)
    listing.add_argument("--json", action="store_true", help="for programs")
    look_in = verbs.add_parser("peek", help="show stored messages; nothing is delivered")
    _add_common(look_in)
    peek.add_arguments(look_in)
    add_verbs(verbs, ACTIONS, _add_common)
    return parser


def add_verbs(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    actions: Mapping[str, str],
    add_common: Callable[[argparse.ArgumentParser], None],
) -> None:
    """`config` and the actions; what cannot be taken back has `--yes`."""
    show = verbs.add_parser("config", help="show its settings, or change them: NAME=VALUE ...")
    add_common(show)
    show.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="empty value: the default")
    for verb, about in actions.items():
        action = verbs.add_parser(verb, help=about)
        add_common(action)
        if verb in DESTRUCTIVE:
            action.add_argument("--yes", action="store_true", help="do it without asking")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--json", action="store_true", help="for programs")
    nodes.add_arguments(parser)


def topic_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments)
    if arguments.verb == "peek":
        return peek.run(arguments)
    target = {"topic": arguments.topic}
    if arguments.verb == "config":
        return configure(arguments, "/topic/config", target)
    return act(arguments, f"/topic/{arguments.verb}", target, f"topic {arguments.topic}")


def _list(arguments: argparse.Namespace) -> int:
    state = look(nodes.nodes(arguments), "", "")
    if not state.documents:
        raise PenstockError("; ".join(f"{a}: {why}" for a, why in state.failures.items()))
    if arguments.json:
        print_json(as_json(state, {})["topics"])
    else:
        for topic, channel in sorted(state.rows):
            if not channel:
                print(topic)
    for address, reason in state.failures.items():
        print(f"{address}: {reason}", file=sys.stderr)
    return FAILED if state.failures else DONE


def confirm(arguments: argparse.Namespace, question: str) -> bool:
    """Deleting and emptying cannot be taken back: a person answers, a program says --yes."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise PenstockError(f"{question}: give --yes, nobody is here to ask")
    print(f"{question}? Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == "yes"


def act(arguments: argparse.Namespace, path: str, target: dict[str, str], name: str) -> int:
    """One POST to each node. A node that has not got the thing is told apart from one that
    failed."""
    members = nodes.nodes(arguments)
    if getattr(arguments, "yes", None) is not None:
        where = ", ".join(node.address for node in members)
        if not confirm(arguments, f"{arguments.verb} {name} on {where}"):
            return FAILED
    results: dict[str, str] = {}
    failed = absent = 0
    for node in members:
        try:
            node.post(path, target)
            results[node.address] = "done"
        except nodes.NodeFailed as error:
            results[node.address] = error.reason
            absent += error.status == 404
            failed += error.status != 404
    if arguments.json:
        print_json(results)
    else:
        for address, result in results.items():
            print(f"{address}: {arguments.verb} {name}: {result}")
    return FAILED if failed or absent == len(members) else DONE


def configure(arguments: argparse.Namespace, path: str, target: dict[str, str]) -> int:
    """Show the settings of each node, after changing those that are given."""
    changes = {}
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise PenstockError(f"{setting!r} is not NAME=VALUE")
        changes[name.replace("-", "_")] = value
    answers: dict[str, Any] = {}
    for node in nodes.nodes(arguments):
        call = node.post if changes else node.get
        answers[node.address] = call(path, target | changes)
    if arguments.json:
        print_json(answers)
        return DONE
    for address, settings in answers.items():
        print(address)
        for name, value in settings.items():
            print(f"  {name} = {_shown(value)}")
    return DONE


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
