"""The `main` that our daemons share: flags, one FATAL line when something is wrong, exit codes.

0: a wanted end (--help, --version, SIGINT, SIGTERM); 1: the start or the run failed; 2: the command
line is wrong, said on stderr together with the flags.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock import __version__
from penstock.command import logs
from penstock.command import run as command_run
from penstock.command.common import CommonOptions
from penstock.command.flags import Flag, HelpWanted, UsageError, usage
from penstock.command.run import EXIT_FATAL, EXIT_USAGE
from penstock.errors import ConfigError

Options = TypeVar("Options", bound=CommonOptions)


class Program(NamedTuple):
    name: str
    flags: Sequence[Flag]
    help_note: str


def version_line(program: str) -> str:
    return f"{program} v{__version__} (built w/python{platform.python_version()})"


def run_program(
    program: Program,
    read_options: Callable[[Sequence[str], Mapping[str, str]], Options],
    serve: Callable[[Options], Coroutine[Any, Any, int]],
    argv: Sequence[str] | None,
) -> int:
    """Serve until a signal comes. Returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        options = read_options(arguments, os.environ)
    except HelpWanted:
        print(usage(program.name, program.flags) + program.help_note, end="")
        return 0
    except UsageError as error:
        print(f"{error}\n{usage(program.name, program.flags)}", end="", file=sys.stderr)
        return EXIT_USAGE
    except ConfigError as error:
        handler = logs.set_up("info", f"[{program.name}] ", "text")
        logging.getLogger(f"penstock.{program.name}").critical("%s", error)
        logs.tear_down(handler)
        return EXIT_FATAL
    if options.version:
        print(version_line(program.name))
        return 0
    handler = logs.set_up(options.log_level, options.log_prefix, options.log_format)
    try:
        return command_run.run(lambda: serve(options))
    finally:
        logs.tear_down(handler)
