"""What may stand where the user types: verbs, options, and names of topics, channels and nodes.

The shell runs `penstock` with the line in the environment (argcomplete's protocol), and the verb's
own parser says what belongs there; only that verb's module is imported. Nobody who presses Tab
waits: what has not answered within a second (`PENSTOCK_COMPLETION_SECONDS`) is not offered, and
nothing but names is printed.

Names come from daemons, and shells expand what they are given to complete with. So only names pass
whose characters mean nothing to a shell.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple, TextIO

from argcomplete.completers import BaseCompleter
from argcomplete.finders import CompletionFinder

from penstock.errors import PenstockError
from penstock.nsqdapi.calls import positions, stats_query
from penstock.tools import contexts, nodes, where
from penstock.tools.main import ASKED, VERBS
from penstock.tools.nodes import Node
from penstock.tools.where import Where

ANSWER_SECONDS = 1.0  # all of it, however many are asked
VARIABLE = "PENSTOCK_COMPLETION_SECONDS"
_HARMLESS = re.compile(r"[A-Za-z0-9_.#:/\[\]-]+", re.ASCII)
_EXPECTED = (PenstockError, OSError, ValueError, KeyError, TypeError, AttributeError)
_DAEMON_DESTS = ("topic", "channel", "node", "partition")


class Wanted(NamedTuple):
    """The argument that is being typed, and those before it."""

    program: str  # "penstock topic pause"
    dest: str
    given: argparse.Namespace


class _Finder(CompletionFinder):
    """Names where there are any, options otherwise, or where the word begins with a dash."""

    def collect_completions(
        self,
        active_parsers: list[argparse.ArgumentParser],
        parsed_args: argparse.Namespace,
        cword_prefix: str,
    ) -> list[str]:
        found = super().collect_completions(active_parsers, parsed_args, cword_prefix)
        return [one for one in found if not one.startswith("-")] or found

    def _init_debug_stream(self) -> None:
        """None: descriptor 9 may be somebody else's."""


def complete_line(answer: TextIO | None = None, leave: Callable[[int], object] = os._exit) -> None:
    """Answer the shell (on descriptor 8, unless `answer` is given), and leave."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    words = line.split()
    parser = _root()
    if len(words) > 2 or (len(words) == 2 and line[-1].isspace()):
        parser = parser_of(words[1])
        os.environ[ASKED] = "2"  # the parser begins at the verb
    _Finder()(
        parser,
        always_complete_options="long",
        default_completer=_Names(),
        output_stream=answer,
        exit_method=leave,
    )


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The verb's own; of a daemon, one that knows its flags; an empty one of what is no verb."""
    entry = VERBS.get(verb)
    module = import_module(entry.module) if entry is not None else None
    if module is not None and hasattr(module, "parser"):
        parser: argparse.ArgumentParser = module.parser()
        return parser
    parser = argparse.ArgumentParser(prog=f"penstock {verb}", add_help=False)
    for flag in getattr(module, "FLAGS", ()):
        parser.add_argument(f"--{flag.name}", choices=[one for one in flag.choices if one] or None)
    return parser


def _root() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", add_help=False)
    parser.add_argument("verb", choices=list(VERBS))
    return parser


class _Names(BaseCompleter):
    """What argcomplete asks where the parser itself names no choices."""

    def __call__(
        self,
        *,
        prefix: str,
        action: argparse.Action,
        parser: argparse.ArgumentParser,
        parsed_args: argparse.Namespace,
    ) -> list[str]:
        names = values(Wanted(parser.prog, action.dest, parsed_args))
        fitting = {name for name in names if name.startswith(prefix)}
        return sorted(name for name in fitting if _HARMLESS.fullmatch(name))


def values(wanted: Wanted) -> Iterable[str]:
    """Nothing when nobody answers, or the line makes no sense."""
    dest = wanted.dest
    try:
        if dest == "context" or (dest == "name" and wanted.program.startswith("penstock context")):
            return list(contexts.load().context)
        return list(_asked(wanted)) if dest in _DAEMON_DESTS else ()
    except _EXPECTED:
        return ()


# --- asking ---


def _asked(wanted: Wanted) -> Iterator[str]:
    given = wanted.given
    if getattr(given, where.NSQD_TCP, None):
        return  # nsqd gives names over HTTP only
    found = where.find(
        argparse.Namespace(
            nsqd_http_address=getattr(given, where.NSQD_HTTP, None),
            lookupd_http_address=getattr(given, where.LOOKUPD_HTTP, None),
            context=getattr(given, "context", None) or "",
            tls_root_ca_file=getattr(given, "tls_root_ca_file", None) or "",
        )
    )
    topic = getattr(given, "topic", None) or ""
    topic = topic[0] if isinstance(topic, list) else topic
    lookupds = list(found.context.lookupd_http_address)
    if wanted.dest == "partition":
        ask = _partitions_of(topic)
        yield from _together(found, nodes.addresses_of(found), ask) if topic else ()
    elif wanted.dest != "node":
        ask = _names_of(wanted.dest, topic, bool(lookupds))
        yield from _together(found, lookupds or nodes.addresses_of(found), ask)
    elif lookupds:
        yield from _together(found, lookupds, _registered)
    else:
        yield from nodes.addresses_of(found)


def _names_of(kind: str, topic: str, of_lookupd: bool) -> Callable[[Node], list[str]]:
    def from_lookupd(node: Node) -> list[str]:
        if kind == "topic":
            return list(node.get("/topics")["topics"])
        return list(node.get("/channels", {"topic": topic})["channels"])

    def from_nsqd(node: Node) -> list[str]:
        query = stats_query(topic if kind == "channel" else "")
        topics = node.get("/stats", query)["topics"] or ()
        if kind == "topic":
            return [one["topic_name"] for one in topics]
        return [below["channel_name"] for one in topics for below in one["channels"]]

    return from_lookupd if of_lookupd else from_nsqd


def _partitions_of(topic: str) -> Callable[[Node], list[str]]:
    def from_nsqd(node: Node) -> list[str]:
        spans = node.ask(positions([topic])).topics.get(topic)
        return [str(number) for number in spans.partitions] if spans else []

    return from_nsqd


def _registered(lookupd: Node) -> list[str]:
    return nodes.http_addresses(lookupd)


def _together(
    found: Where, addresses: Sequence[str], ask: Callable[[Node], list[str]]
) -> list[str]:
    """What came in time. Those that are late are left behind: the process ends without them."""
    names: list[str] = []
    tls, seconds = found.tls(), float(os.environ.get(VARIABLE, ANSWER_SECONDS))

    def one(address: str) -> None:
        try:
            names.extend(ask(Node(address, seconds, tls)))
        except _EXPECTED:
            return

    threads = [threading.Thread(target=one, args=(each,), daemon=True) for each in addresses]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return list(names)
