"""`penstock pipeline`: run a pipeline on Spark, list them, print a file with all their settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from penstock.pipelines import example, registry
from penstock.pipelines.frame import run_by_name
from penstock.tools.verbs import DONE, VerbParser, add_json, print_json, run_verb


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock pipeline",
        description="Work on the log with Spark.",
        examples=["penstock pipeline list", "penstock pipeline run archive --table /data/archive"],
    )
    below = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = below.add_parser(
        "run",
        help="run one: run NAME --help says what it takes",
        examples=["penstock pipeline run audit --topic orders --url http://127.0.0.1:4151"],
    )
    run.add_argument("name", help="a pipeline, or a table of the file that --config names")
    run.add_argument("settings", nargs=argparse.REMAINDER, help="settings of that pipeline")
    listing = below.add_parser(
        "list", help="which there are", examples=["penstock pipeline list --json"]
    )
    add_json(listing)
    shown = below.add_parser(
        "example",
        help="print a TOML file with all settings",
        examples=["penstock pipeline example archive"],
    )
    shown.add_argument("names", nargs="*", help="of these pipelines (all)")
    return parser


def pipeline_main(argv: Sequence[str]) -> int:
    words = list(argv)
    if words[:1] == ["run"] and len(words) > 1 and not words[1].startswith("-"):
        return run_by_name(words[1], words[2:])  # its flags are its own
    return run_verb(parser(), words, _act)


def _act(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments.json)
    if arguments.verb == "example":
        print(example.example(arguments.names or list(registry.PIPELINES)), end="")
        return DONE
    return run_by_name(arguments.name, arguments.settings)


def _list(as_json: bool) -> int:
    pipelines = [registry.load(name) for name in registry.PIPELINES]
    if as_json:
        print_json([{"name": each.name, "summary": each.summary} for each in pipelines])
    else:
        for each in pipelines:
            print(f"{each.name:<10} {each.summary}")
    return DONE
