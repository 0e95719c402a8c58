"""The `main` that our daemons share: flags, one FATAL line when something is wrong, exit codes.

0: a wanted end (--help, --version, SIGINT, SIGTERM); 1: the start or the run failed; 2: the command
line is wrong, said on stderr together with the flags.

Flags that our daemons have in common, the fields that they become, and their bounds.
"""

import logging
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock import __version__, limits
from penstock.command import logs
from penstock.command import run as command_run
from penstock.command.flags import LOG_LEVELS, Flag, HelpWanted, UsageError, flag, usage
from penstock.command.run import EXIT_FATAL, EXIT_USAGE
from penstock.errors import ConfigError

# of daemons that ask others over HTTP
CONNECT_TIMEOUT = flag(limits.FETCH_CONNECT_NS, "time to connect for an outgoing HTTP request",
                       bounds=(limits.MS, None))  # fmt: skip
REQUEST_TIMEOUT = flag(limits.FETCH_REQUEST_NS, "time for an outgoing HTTP request, in all",
                       bounds=(limits.MS, None))  # fmt: skip
CLIENT_CA = flag("", "authorities for the certificates of nsqds and nsqlookupds")
CLIENT_CERT = flag("", "certificate to show to nsqds and nsqlookupds")
CLIENT_KEY = flag("", "key of that certificate")
# of those that are commanded over HTTP
ALLOWED_HOST = flag((), "host name under which HTTP clients and web pages may send requests, "
                    "besides this host's own; * for any (may be repeated)")  # fmt: skip
SECRET_FILE = flag("", "file with the secret that HTTP requests must carry to change anything")
# of those that follow a cluster
ETCD_CA = flag("", "the authority that signs etcd's certificate (default: the system's)")
PASSWORD_FILE = flag("", "file with the password of etcd's user")


def log_prefix(program: str) -> Any:
    return flag(f"[{program}] ", "log message prefix")


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Every daemon's help begins with them."""

    version: bool = flag(False, "print version string")
    config: str = flag("", "path to a TOML config file")
    log_level: str = flag("info", "set log verbosity", choices=LOG_LEVELS)
    log_prefix: str = log_prefix("penstock")
    log_format: str = flag("text", "log lines as text or json", choices=("text", "json"))
    verbose: bool = flag(False, "deprecated; use -log-level")


Options = TypeVar("Options", bound=CommonOptions)


def version_line(program: str) -> str:
    return f"{program} v{__version__} (built w/python{platform.python_version()})"


def run_program(
    name: str, flags: Sequence[Flag], help_note: str,
    read_options: Callable[[Sequence[str], Mapping[str, str]], Options],
    serve: Callable[[Sequence[str], Options], Coroutine[Any, Any, int]],
    argv: Sequence[str] | None,
) -> int:  # fmt: skip
    """Serve until a signal comes. Returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        options = read_options(arguments, os.environ)
    except HelpWanted:
        print(usage(name, flags) + help_note, end="")
        return 0
    except UsageError as error:
        print(f"{error}\n{usage(name, flags)}", end="", file=sys.stderr)
        return EXIT_USAGE
    except ConfigError as error:
        with logs.shown("info", f"[{name}] ", "text"):
            logging.getLogger(f"penstock.{name}").critical("%s", error)
        return EXIT_FATAL
    if options.version:
        print(version_line(name))
        return 0
    with logs.shown(options.log_level, options.log_prefix, options.log_format):
        return command_run.run(lambda: serve(arguments, options))
