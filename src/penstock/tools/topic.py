"""`penstock topic`: list, make, change and remove topics, on all the nodes that are named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from penstock import limits
from penstock.errors import PenstockError
from penstock.net.query import whole_number
from penstock.tools import nodes, peek, topic_concede, topic_show
from penstock.tools.stats import as_json, look
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

ACTIONS = {
    "delete": "remove it, its channels and its messages; asks for --yes",
    "empty": "drop what no channel has been given yet; asks for --yes",
    "pause": "stop handing messages to channels",
    "unpause": "hand them over again",
}
SHAPING = frozenset({"create", "expand", "extend"})
DESTRUCTIVE = frozenset({"delete", "empty", "emptydelayed"})
LETTING_GO = frozenset({"max_age", "retain_age", "retain_bytes"})  # settings


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock topic",
        description="Topics of the nodes.",
        examples=["penstock topic list", "penstock topic create clicks --partitions 8"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser(
        "list", help="the names, sorted", examples=["penstock topic list --json"]
    )
    add_json(listing)
    nodes.add_arguments(listing)
    topic_show.add_parser(verbs)
    look_in = verbs.add_parser(
        "peek",
        help="show stored messages; nothing is delivered",
        examples=[
            "penstock topic peek orders --count 3",
            "penstock topic peek orders --time 2026-11-21T06:00:00Z --json",
        ],
    )
    _add_common(look_in)
    peek.add_arguments(look_in)
    _add_shaping(verbs)
    topic_concede.add_parser(verbs)
    add_verbs(verbs, ACTIONS, _add_common, "penstock topic {verb} orders", "max_depth=100000")
    return parser


def _add_shaping(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    """What a topic is made of: how many partitions, and whether its messages have headers."""
    create = verbs.add_parser(
        "create",
        help="make it (nothing happens when it is there)",
        examples=["penstock topic create clicks --partitions 8"],
    )
    _add_common(create)
    create.add_argument("--partitions", type=_up_to(limits.PARTITIONS_MAX), metavar="N",
                        help="1 to 255; as nsqd's --default-partitions says")  # fmt: skip
    create.add_argument("--replicas", type=_up_to(limits.MEMBERS_MAX), metavar="N",
                        help="copies of each partition, in a cluster: 1 to 16")  # fmt: skip
    create.add_argument("--extended", action="store_true", help="its messages may have headers")
    expand = verbs.add_parser(
        "expand",
        help="add partitions, while it is in use",
        description="Add partitions, while it is in use. Messages with a key stay in the "
        "partitions that they are in now, unless --rehash spreads the keys over all of them; "
        "that is refused as long as a channel has anything unfinished.",
        examples=["penstock topic expand orders --partitions 16"],
    )
    _add_common(expand)
    expand.add_argument("--partitions", type=_up_to(limits.PARTITIONS_MAX), metavar="N",
                        required=True, help="how many it is to have then, up to 255")  # fmt: skip
    expand.add_argument("--rehash", action="store_true", help="spread keys over all of them")
    extend = verbs.add_parser(
        "extend",
        help="let its messages have headers, from now on",
        examples=["penstock topic extend orders"],
    )
    _add_common(extend)


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = whole_number(text, most)
        if not number:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number, 1 to {most}")
        return number

    return read


def _shaped(arguments: argparse.Namespace, target: dict[str, str]) -> int:
    """`create`, `expand` or `extend`."""
    query = dict(target)
    if arguments.verb == "extend":
        path, query["upgradeext"] = "/topic/meta/update", "true"
    else:
        path = "/topic/create" if arguments.verb == "create" else "/topic/partition/expand"
        if arguments.partitions is not None:
            query["partition_num"] = str(arguments.partitions)
        if arguments.verb == "create" and arguments.replicas is not None:
            query["replicator"] = str(arguments.replicas)
        if arguments.verb == "create" and arguments.extended:
            query["extend"] = "true"
        if arguments.verb == "expand" and arguments.rehash:
            query["rehash"] = "true"
    return act(arguments, path, query, f"topic {arguments.topic}")


def add_verbs(
    verbs: argparse._SubParsersAction[VerbParser],
    actions: Mapping[str, str],
    add_common: Callable[[argparse.ArgumentParser], None],
    example: str,
    setting: str,
) -> None:
    """`config` and the actions; what cannot be taken back has `--yes`."""
    line = example.format(verb="config")
    show = verbs.add_parser(
        "config",
        help="show its settings, or change them: NAME=VALUE ...",
        description="What lets messages go that are there now (max_age, retain_age, retain_bytes) "
        "asks first.",
        examples=[line, f"{line} {setting}"],
    )
    add_common(show)
    show.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="empty value: the default")
    add_yes(show)
    for verb, about in actions.items():
        yes = " --yes" if verb in DESTRUCTIVE else ""
        action = verbs.add_parser(verb, help=about, examples=[example.format(verb=verb) + yes])
        add_common(action)
        if yes:
            add_yes(action)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_json(parser)
    nodes.add_arguments(parser)


def topic_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments)
    if arguments.verb == "show":
        return topic_show.run(arguments)
    if arguments.verb == "peek":
        return peek.run(arguments)
    if arguments.verb == "concede":
        return topic_concede.run(arguments)
    target = {"topic": arguments.topic}
    if arguments.verb == "config":
        return configure(arguments, "/topic/config", target)
    if arguments.verb in SHAPING:
        return _shaped(arguments, target)
    return act(arguments, f"/topic/{arguments.verb}", target, f"topic {arguments.topic}")


def _list(arguments: argparse.Namespace) -> int:
    state = look(nodes.nodes(arguments), "", "")
    if not state.documents:
        raise PenstockError("; ".join(f"{a}: {why}" for a, why in state.failures.items()))
    if arguments.json:
        print_json(as_json(state, {}))
    else:
        for topic, channel in sorted(state.rows):
            if not channel:
                print(topic)
    for address, reason in state.failures.items():
        print(f"{address}: {reason}", file=sys.stderr)
    return FAILED if state.failures else DONE


def act(arguments: argparse.Namespace, path: str, target: dict[str, str], name: str) -> int:
    """One POST to each node. A node that has not got the thing is told apart from one that
    failed."""
    members = nodes.nodes(arguments, changes=True)
    if getattr(arguments, "yes", None) is not None:
        where = ", ".join(node.address for node in members)
        typed = target.get("channel", target["topic"])
        if not confirm(arguments, f"{arguments.verb} {name} on {where}", typed):
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
        print_json({"nodes": results})
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
            raise WrongUse(f"{setting!r} is not NAME=VALUE")
        changes[name.replace("-", "_")] = value
    members = nodes.nodes(arguments, changes=bool(changes))
    losing = sorted(LETTING_GO & changes.keys())
    if losing:
        typed = target.get("channel", target["topic"])
        question = f"change {', '.join(losing)} of {typed}, which may let messages go"
        if not confirm(arguments, question, typed):
            return FAILED
    answers = nodes.ask_each(
        members, lambda node: (node.post if changes else node.get)(path, target | changes)
    )
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address, settings in answers.good.items():
        print(address)
        for name, value in settings.items():
            print(f"  {name} = {_shown(value)}")
    answers.tell_errors()
    return answers.code


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
