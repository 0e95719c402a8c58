"""Every parser of `penstock`, and what reads a command as it does."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from penstock.command.flags import UsageError, resolve
from penstock.errors import ConfigError
from penstock.pipelines import registry, settings
from penstock.tools.main import VERBS


class Found(NamedTuple):
    words: tuple[str, ...]  # "topic", "peek"
    parser: argparse.ArgumentParser


def all_parsers() -> Iterator[Found]:
    for verb, entry in VERBS.items():
        module = import_module(entry.module)
        if hasattr(module, "parser"):
            yield from _below(Found((verb,), module.parser()))


def _below(found: Found) -> Iterator[Found]:
    yield found
    for action in found.parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _below(Found((*found.words, name), child))


def daemons() -> list[str]:
    return [verb for verb, entry in VERBS.items() if hasattr(import_module(entry.module), "FLAGS")]


def examples_of(text: str) -> list[str]:
    """The commands below `examples:` in a help text."""
    _, _, below = text.partition("examples:\n")
    lines = []
    for line in below.splitlines():
        if not line.startswith("  "):
            break
        lines.append(line.strip())
    return lines


def parse(command: str) -> argparse.Namespace | None:
    """Raises ValueError with the parser's own words. None for a daemon, which has flags."""
    program, verb, *words = shlex.split(command)
    if program != "penstock" or verb not in VERBS:
        raise ValueError(f"{command}: there is no such verb")
    module = import_module(VERBS[verb].module)
    said = io.StringIO()
    try:
        if hasattr(module, "FLAGS"):
            resolve(module.FLAGS, words, {})
            return None
        with contextlib.redirect_stderr(said):
            namespace: argparse.Namespace = module.parser().parse_args(words)
        if verb == "pipeline" and namespace.verb == "run":
            given = [word for word in namespace.settings if word not in ("--context", "prod")]
            table = registry.load(namespace.name).settings
            settings.resolve(namespace.name, table, given, {}, {})
    except (SystemExit, UsageError, ConfigError) as error:
        raise ValueError(f"{command}: {said.getvalue() or error}") from error
    return namespace
