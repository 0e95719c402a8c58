"""`penstock stage`: what programs have staged and not committed, and giving it up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from penstock.command import terminal
from penstock.tools import nodes
from penstock.tools.verbs import (
    FAILED,
    VerbParser,
    add_json,
    add_yes,
    confirm,
    print_json,
    run_verb,
)

_HEADS = ("app", "versions", "stages", "size", "staged last")


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock stage",
        description="Staged blocks of Spark and other programs, which wait for their commit.",
        examples=["penstock stage list", "penstock stage abort nightly --version 7 --yes"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser(
        "list", help="what is staged, by app", examples=["penstock stage list --json"]
    )
    abort = verbs.add_parser(
        "abort",
        help="give up all that an app has staged; asks for --yes",
        description="Give up all that an app has staged and not committed. A program that is still "
        "at work then fails, and begins its batch again. What was committed stays.",
        examples=["penstock stage abort nightly --yes"],
    )
    abort.add_argument("app", metavar="APP", help='as listed; "" for writers that name no app')
    abort.add_argument("--version", type=int, metavar="N", help="only that version of it")
    add_yes(abort)
    for one in (listing, abort):
        add_json(one)
        nodes.add_arguments(one)
    return parser


def stage_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    return _list(arguments) if arguments.verb == "list" else _abort(arguments)


def _list(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments)
    answers = nodes.ask_each(members, lambda node: node.document("/stage/list", None, "apps"))
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address, found in answers.good.items():
        size = terminal.short(found["bytes"])
        print(f"{address}: {found['stages']:,} stages, {size}B")
        if found["apps"]:
            rows = [_row(app, time.time()) for app in found["apps"]]
            print("\n".join(terminal.table(_HEADS, rows, left=2)))
        if found["apps_total"] > len(found["apps"]):
            print(f"and {found['apps_total'] - len(found['apps']):,} smaller apps")
    answers.tell_errors()
    return answers.code


def _row(app: dict[str, Any], now_s: float) -> list[str]:
    versions = [str(version) for version in app["versions"]]
    shown = ", ".join(versions[:3]) + (", ..." if len(versions) > 3 else "")
    return [
        app["app"] or "(none named)",
        shown,
        f"{app['stages']:,}",
        f"{terminal.short(app['bytes'])}B",
        f"{terminal.span(max(now_s - app['last_staged_at'], 0))} ago",
    ]


def _abort(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments, changes=True)
    where = ", ".join(node.address for node in members)
    name = arguments.app or "writers that name no app"
    if not confirm(arguments, f"give up what {name} staged on {where}", arguments.app):
        return FAILED
    target = {"app": arguments.app}
    if arguments.version is not None:
        target["version"] = str(arguments.version)
    answers = nodes.ask_each(members, lambda node: node.post("/stage/abort", target))
    if arguments.json:
        print_json(answers.as_json())
        return answers.code
    for address, found in answers.good.items():
        print(f"{address}: {found['aborted']:,} stages of {name} are given up")
    answers.tell_errors()
    return answers.code
