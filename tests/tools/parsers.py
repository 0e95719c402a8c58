"""Every verb of `penstock`, and what reads a command as it does."""

import io
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any, NamedTuple

from penstock.command.flags import UsageError, resolve
from penstock.errors import ConfigError
from penstock.pipelines import runner, settings
from penstock.tools.app import command_of
from penstock.tools.main import DAEMONS, VERBS


class Found(NamedTuple):
    words: tuple[str, ...]  # "topic", "peek"
    command: Any  # typer's

    @property
    def is_group(self) -> bool:
        return hasattr(self.command, "commands")

    @property
    def options(self) -> set[str]:
        return {option for one in self.command.params for option in one.opts}


def all_verbs() -> Iterator[Found]:
    for verb, (module, _) in VERBS.items():
        if module:
            yield from _below(Found((verb,), command_of(verb, module)))


def _below(found: Found) -> Iterator[Found]:
    yield found
    for name, command in getattr(found.command, "commands", {}).items():
        yield from _below(Found((*found.words, name), command))


def examples_of(text: str) -> list[str]:
    """The commands below `examples:` in a help text."""
    _, _, below = text.partition("examples:\n")
    return [line.strip() for line in below.splitlines() if line.startswith("  ")]


def parse(line: str) -> dict[str, Any]:
    """What a verb would be called with. Raises ValueError with its own words; of a daemon, which
    has flags, it is empty."""
    program, verb, *words = shlex.split(line)
    if program != "penstock" or verb not in VERBS:
        raise ValueError(f"{line}: there is no such verb")
    output = io.StringIO()
    try:
        if verb in DAEMONS:
            resolve(import_module(f"penstock.{verb}.main").FLAGS, words, {})
            return {}
        command: Any = command_of(verb, VERBS[verb][0])
        with redirect_stderr(output), redirect_stdout(output):
            context = command.make_context(verb, list(words))
            while hasattr(command, "commands"):
                _, command, rest = command.resolve_command(
                    context, [*context._protected_args, *context.args]
                )
                context = command.make_context(verb, rest, parent=context)
        given: dict[str, Any] = context.params
        if words[:1] == ["run"]:
            own = [word for word in context.args if word not in ("--context", "prod")]
            table = runner.load(given["name"]).settings
            settings.resolve(given["name"], table, own, {}, {})
    except (UsageError, ConfigError, RuntimeError, Exception) as error:
        raise ValueError(f"{line}: {error}") from error
    return given
