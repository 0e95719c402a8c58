"""What may stand where the user types: names of topics, channels, nodes and contexts.

The shell's script asks with all words of the line up to the one that is being typed. The verb's own
parser says what belongs there, so options may stand anywhere and may say where to ask. Whoever
presses Tab does not wait: what has not answered within a second (`PENSTOCK_COMPLETION_SECONDS`) is
not offered, and nothing is ever printed but names.

Names come from daemons, and shells expand what they are given to complete with. So only characters
pass that mean nothing to a shell.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.tools import contextfile, nodes, where
from penstock.tools.nodes import Node
from penstock.tools.where import Where

ANSWER_SECONDS = 1.0  # all of it, however many are asked
VARIABLE = "PENSTOCK_COMPLETION_SECONDS"
_HARMLESS = re.compile(r"[A-Za-z0-9_.#:/\[\]-]+", re.ASCII)
_EXPECTED = (PenstockError, OSError, ValueError, KeyError, TypeError, AttributeError)
_DAEMON_DESTS = ("topic", "channel", "node")


class Wanted(NamedTuple):
    """The argument that is being typed, and those before it."""

    verb: str
    action: argparse.Action
    given: dict[str, list[str]]
    ahead: str  # of the word, before the value: "--context=" or nothing


def complete(raw: Sequence[str]) -> list[str]:
    """`raw` are the words behind `penstock`, the last one unfinished. bash cuts words at = and :,
    so the answer is what may replace the last of them."""
    words = joined(raw)
    current = words[-1] if words else ""
    last = "" if raw and raw[-1] in ("=", ":") else (raw[-1] if raw else "")
    cut = len(current) - len(last)
    found = find(words)
    if found is None:
        return []
    offered = (f"{found.ahead}{name}" for name in values(found) if _HARMLESS.fullmatch(name))
    return sorted({word[cut:] for word in offered if word.startswith(current)})


def joined(raw: Sequence[str]) -> list[str]:
    """The words as the user has typed them."""
    words: list[str] = []
    glue = False
    for word in raw:
        if words and (glue or word in ("=", ":")):
            words[-1] += word
        else:
            words.append(word)
        glue = word in ("=", ":")
    return words


def find(words: Sequence[str]) -> Wanted | None:
    """None: nothing that has a list of values."""
    from penstock.tools.main import VERBS

    if len(words) < 2 or words[0] not in VERBS:
        return None
    module = import_module(VERBS[words[0]].module)
    if not hasattr(module, "parser"):
        return None
    return _Line(words[0], module.parser()).read(words[1:])


class _Line:
    """Reads words as argparse would, without failing."""

    def __init__(self, verb: str, parser: argparse.ArgumentParser) -> None:
        self._verb = verb
        self._given: dict[str, list[str]] = {}
        self._enter(parser)

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self._options = {
            text: action for action in parser._actions for text in action.option_strings
        }
        self._positionals = [one for one in parser._actions if not one.option_strings]

    def read(self, words: Sequence[str]) -> Wanted | None:
        pending: argparse.Action | None = None
        for word in words[:-1]:
            if pending is not None:
                self._keep(pending, word)
                pending = None
            elif word.startswith("--"):
                name, equals, value = word.partition("=")
                action = self._options.get(name)
                if action is not None and equals:
                    self._keep(action, value)
                elif action is not None and action.nargs != 0:
                    pending = action
            else:
                self._take(word)
        return self._last(words[-1], pending)

    def _take(self, word: str) -> None:
        if not self._positionals:
            return
        action = self._positionals[0]
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices.get(word)
            if below is not None:
                self._enter(below)
        else:
            self._keep(action, word)
            if action.nargs not in ("*", "+", argparse.REMAINDER):
                self._positionals.pop(0)

    def _keep(self, action: argparse.Action, value: str) -> None:
        self._given.setdefault(action.dest, []).append(value)

    def _last(self, word: str, pending: argparse.Action | None) -> Wanted | None:
        ahead = ""
        if pending is None and word.startswith("-"):
            name, equals, _ = word.partition("=")
            pending = self._options.get(name) if equals else None
            ahead = f"{name}="
        elif pending is None and self._positionals:
            pending = self._positionals[0]
        return None if pending is None else Wanted(self._verb, pending, self._given, ahead)


def values(wanted: Wanted) -> Iterable[str]:
    """Nothing when nobody answers, or the line makes no sense."""
    action, dest = wanted.action, wanted.action.dest
    try:
        if action.choices:
            return list(map(str, action.choices))
        if dest == "context" or (wanted.verb == "context" and dest == "name"):
            return list(contextfile.load().context)
        if dest == "theme":
            from penstock.tools.recipes import RECIPES

            return [one.theme for one in RECIPES]
        return list(_asked(wanted)) if dest in _DAEMON_DESTS else ()
    except _EXPECTED:
        return ()


# --- asking ---


def _asked(wanted: Wanted) -> Iterator[str]:
    given = wanted.given
    if given.get(where.NSQD_TCP):
        return  # names are told over HTTP
    found = where.find(
        argparse.Namespace(
            nsqd_http_address=given.get(where.NSQD_HTTP),
            lookupd_http_address=given.get(where.LOOKUPD_HTTP),
            context=given.get("context", [""])[-1],
            tls_root_ca_file=given.get("tls_root_ca_file", [""])[-1],
        )
    )
    topic = (given.get("topic") or [""])[0]
    lookupds = list(found.context.lookupd_http_address)
    if wanted.action.dest != "node":
        ask = _names_of(wanted.action.dest, topic, bool(lookupds))
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
        query = {"format": "json", "include_clients": "false", "include_mem": "false"}
        query |= {"topic": topic} if kind == "channel" else {}
        topics = node.get("/stats", query)["topics"] or ()
        if kind == "topic":
            return [one["topic_name"] for one in topics]
        return [below["channel_name"] for one in topics for below in one["channels"]]

    return from_lookupd if of_lookupd else from_nsqd


def _registered(lookupd: Node) -> list[str]:
    return [nodes.address_of(producer) for producer in lookupd.get("/nodes")["producers"]]


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
