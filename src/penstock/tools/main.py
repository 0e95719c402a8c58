"""The operator's command: `penstock <verb>`. Each verb is imported when it is asked for."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from penstock import __version__
from penstock.command.environment import COMMAND_LINE, check_near_misses
from penstock.command.extras import extra_of, lacks_extra
from penstock.errors import ConfigError
from penstock.tools.verbs import FAILED, INTERRUPTED, USAGE


class VerbEntry(NamedTuple):
    module: str
    function: str  # takes the arguments after the verb, returns the exit code
    help: str


VERBS = {
    "nsqd": VerbEntry("penstock.nsqd.main", "main", "run the message daemon (nsqd --help: flags)"),
    "nsqlookupd": VerbEntry(
        "penstock.nsqlookupd.main",
        "main",
        "run the discovery daemon (nsqlookupd --help: flags)",
    ),
    "nsqadmin": VerbEntry(
        "penstock.nsqadmin.main", "main", "run the web UI (nsqadmin --help: flags)"
    ),
    "admin": VerbEntry("penstock.tools.admin", "admin_main", "users of the web UI"),
    "context": VerbEntry(
        "penstock.tools.context", "context_main", "name installations, and switch between them"
    ),
    "demo": VerbEntry(
        "penstock.tools.demo", "demo_main", "start nsqd with a producer and consumers, show rates"
    ),
    "up": VerbEntry(
        "penstock.tools.up", "up_main", "start a whole cluster on this machine, with clients"
    ),
    "cluster": VerbEntry(
        "penstock.tools.cluster", "cluster_main", "a cluster's nodes and replicas; is all well?"
    ),
    "stats": VerbEntry(
        "penstock.tools.stats", "stats_main", "what flows and what waits, once or with --watch"
    ),
    "node": VerbEntry(
        "penstock.tools.node_report", "node_main", "the nsqds: version, rates, disk left, syncs"
    ),
    "topic": VerbEntry(
        "penstock.tools.topic", "topic_main", "list, make, change and remove topics"
    ),
    "channel": VerbEntry(
        "penstock.tools.channel", "channel_main", "list, make, change and remove channels"
    ),
    "stage": VerbEntry(
        "penstock.tools.stage", "stage_main", "what programs have staged and not committed"
    ),
    "definitions": VerbEntry(
        "penstock.tools.definitions",
        "definitions_main",
        "topics, channels and settings as one document: export, import",
    ),
    "pub": VerbEntry("penstock.tools.pub", "pub_main", "publish a message, or lines of input"),
    "tail": VerbEntry("penstock.tools.tail", "tail_main", "watch the messages of a topic go by"),
    "id": VerbEntry("penstock.tools.ids", "id_main", "what is written in an id"),
    "drain": VerbEntry(
        "penstock.tools.drain", "drain_main", "refuse publishes, deliver the rest, stop"
    ),
    "check": VerbEntry(
        "penstock.tools.check", "check_main", "is all well? one line and an exit code"
    ),
    "bundle": VerbEntry(
        "penstock.tools.bundle",
        "bundle_main",
        "gather what a report needs into one file; say what is wrong in one",
    ),
    "trace": VerbEntry(
        "penstock.tools.trace", "trace_main", "what happened to one message, as a timeline"
    ),
    "log": VerbEntry(
        "penstock.tools.log",
        "log_main",
        "look into stored messages without a daemon: dump, verify",
    ),
    "migrate": VerbEntry(
        "penstock.tools.migrate",
        "migrate_main",
        "take the data of an official nsqd over, or write it back",
    ),
    "pipeline": VerbEntry(
        "penstock.tools.pipeline", "pipeline_main", "archive and more on Spark: run, list"
    ),
    "sql": VerbEntry(
        "penstock.tools.sql", "sql_main", "ask topics and tables by SQL (DuckDB, in this process)"
    ),
    "bench": VerbEntry(
        "penstock.tools.bench", "bench_main", "publish to an nsqd and consume, and say how quickly"
    ),
    "completion": VerbEntry(
        "penstock.tools.completion", "completion_main", "print a completion script: bash or zsh"
    ),
}
UNKNOWN = 3  # `penstock check`
ASKED = "_ARGCOMPLETE"  # a shell that completes sets it: which word the parser begins at
# These look at the environment themselves; completion prints nothing but its script.
_WITH_NAMES_OF_THEIR_OWN = ("nsqd", "nsqlookupd", "nsqadmin", "pipeline", "completion")


def help_text() -> str:
    lines = ["usage: penstock <verb> [arguments]", "", "verbs:"]
    width = max(map(len, VERBS))
    lines += [f"  {verb:<{width}}  {entry.help}" for verb, entry in VERBS.items()]
    lines += ["", "penstock <verb> --help says more, with examples; penstock --version"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    if ASKED in os.environ:
        from penstock.tools.completing import complete_line

        complete_line()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if arguments[0] in ("--version", "-version", "version"):
        print(f"penstock {__version__}")
        return 0
    entry = VERBS.get(arguments[0])
    if entry is None:
        print(f"penstock: no such verb: {arguments[0]}{_meant(arguments[0])}", file=sys.stderr)
        return USAGE
    if arguments[0] not in _WITH_NAMES_OF_THEIR_OWN:
        try:
            check_near_misses(COMMAND_LINE, os.environ)
        except ConfigError as error:
            print(f"penstock: {error}", file=sys.stderr)
            return _wrong_use(arguments)
    try:
        run: Callable[[Sequence[str]], int] = getattr(import_module(entry.module), entry.function)
        return run(arguments[1:])
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if not extra:
            raise
        print(lacks_extra(f"penstock {arguments[0]}", extra, error), file=sys.stderr)
        return FAILED


def _wrong_use(arguments: Sequence[str]) -> int:
    """Where 2 means that the installation is in trouble, wrong use is 3, as in monitoring."""
    levels = list(arguments[:1]) == ["check"] or list(arguments[:2]) in (
        ["bundle", "analyze"], ["cluster", "check"],
    )  # fmt: skip
    return UNKNOWN if levels else USAGE


def _meant(word: str) -> str:
    """Verbs that are spelled nearly so, or all verbs."""
    near = difflib.get_close_matches(word, VERBS)
    return f"; is it {' or '.join(near)}?" if near else f"\n\n{help_text()}"


if __name__ == "__main__":
    sys.exit(main())
