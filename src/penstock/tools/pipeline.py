"""`penstock pipeline`: run a pipeline on Spark, list them, print a file with all their settings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from penstock.command.flags import HelpWanted, UsageError
from penstock.errors import PenstockError
from penstock.pipelines import registry, settings
from penstock.pipelines.frame import Pipeline, run_by_name
from penstock.tools import nodes, where
from penstock.tools.verbs import DONE, VerbParser, WrongUse, add_json, print_json, run_verb


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock pipeline",
        description="Work on the log with Spark.",
        examples=[
            "penstock pipeline list",
            "penstock pipeline run archive --topics orders --table /data/archive",
        ],
    )
    below = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = below.add_parser(
        "run",
        help="run one: run NAME --help says what it takes, and --context says where",
        examples=["penstock pipeline run audit --topic orders --trace /data/trace --context prod"],
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
        return run_verb(parser(), words[:2], lambda _: _run(words[1], words[2:]))
    return run_verb(parser(), words, _act)


def _act(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments.json)
    if arguments.verb == "example":
        for name in arguments.names:
            if name not in registry.PIPELINES:
                raise WrongUse(f"no such pipeline: {name}")
        print(registry.example(arguments.names or list(registry.PIPELINES)), end="")
        return DONE
    return _run(arguments.name, arguments.settings)


def _run(name: str, words: Sequence[str]) -> int:
    """Its flags are its own, but for `--context`, which says where it reads."""
    context, rest = _without_context(words)
    understood = _understood(name, rest)
    if understood is None:
        return run_by_name(name, rest)  # which says what is wrong, or prints the help
    pipeline, explicit = understood
    try:
        place = [] if "url" in explicit and not context else _place(context)
    except (PenstockError, OSError) as error:
        print(f"penstock pipeline {name}: {error}", file=sys.stderr)
        return pipeline.failed
    return run_by_name(name, [*place, *rest])


def _without_context(words: Sequence[str]) -> tuple[str, list[str]]:
    context, rest, left = "", list[str](), iter(words)
    for word in left:
        flag, equals, text = word.lstrip("-").partition("=")
        if word.startswith("-") and flag == "context":
            context = text if equals else next(left, "")
            if not context:
                raise WrongUse("--context needs a name")
        else:
            rest.append(word)
    return context, rest


def _understood(name: str, words: Sequence[str]) -> tuple[Pipeline, frozenset[str]] | None:
    """The pipeline, and which of its settings somebody has set."""
    try:
        document = settings.read_document(settings.config_path(name, words, os.environ))
        chosen = settings.choose(name, document, registry.PIPELINES)
        pipeline = registry.load(chosen.pipeline)
        found = settings.resolve(name, pipeline.settings, words, os.environ, chosen.document)
    except (HelpWanted, UsageError, PenstockError, OSError):
        return None
    return pipeline, found.explicit


def _place(context: str) -> list[str]:
    """Flags from a context, or from addresses in the environment; none when nothing is said."""
    found = where.find(argparse.Namespace(context=context))
    if not found.name and not any(getattr(found.context, kind) for kind in where.HTTP):
        return []
    members = nodes.addresses_of(found, found.tls())
    if len(members) > 1:
        raise PenstockError(f"it reads from one nsqd, give --url: {', '.join(members)}")
    url = members[0] if "://" in members[0] else f"http://{members[0]}"
    files = {
        "ca-file": found.context.tls_root_ca_file,
        "http-secret-file": found.context.http_secret_file,
    }
    return [f"--url={url}", *(f"--{name}={path}" for name, path in files.items() if path)]


def _list(as_json: bool) -> int:
    pipelines = [registry.load(name) for name in registry.PIPELINES]
    if as_json:
        print_json([{"name": each.name, "summary": each.summary} for each in pipelines])
    else:
        for each in pipelines:
            print(f"{each.name:<10} {each.summary}")
    return DONE
