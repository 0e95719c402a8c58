"""The operator's command: `penstock <verb>`. Each verb is imported on first use, and typer only for
verbs, not for daemons."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from penstock import __version__
from penstock.command.environment import COMMAND_LINE, check_near_misses
from penstock.command.extras import extra_of, lacks_extra
from penstock.errors import ConfigError, PenstockError
from penstock.tools.output import DONE, FAILED, INTERRUPTED, UNKNOWN, USAGE, WrongUse

DAEMONS = {
    "nsqd": "run the message daemon (nsqd --help: flags)",
    "nsqlookupd": "run the discovery daemon (nsqlookupd --help: flags)",
    "nsqadmin": "run the web UI (nsqadmin --help: flags)",
}
# The module, whose `app` has the verb or the verbs below it, and what it is for.
VERBS = {
    **{name: ("", about) for name, about in DAEMONS.items()},
    "admin": ("penstock.tools.admin", "users of the web UI"),
    "context": ("penstock.tools.context", "name installations, and switch between them"),
    "demo": ("penstock.tools.demo", "start nsqd with a producer and consumers, show rates"),
    "up": ("penstock.tools.up", "start a whole cluster on this machine, with clients"),
    "cluster": ("penstock.tools.cluster", "nodes and replicas of a cluster, and what is wrong"),
    "stats": ("penstock.tools.reports", "depth and rates of topics and channels"),
    "node": ("penstock.tools.node", "nsqds: version, rates, disk space, last sync"),
    "topic": ("penstock.tools.topic", "list, create, change and delete topics"),
    "channel": ("penstock.tools.channel", "list, create, change and delete channels"),
    "stage": ("penstock.tools.stage", "staged blocks that wait for their commit"),
    "definitions": ("penstock.tools.definitions", "export and import topics and channels"),
    "pub": ("penstock.tools.pub", "publish a message, or lines of input"),
    "tail": ("penstock.tools.tail", "watch the messages of a topic go by"),
    "id": ("penstock.tools.ids", "decode message ids and others"),
    "drain": ("penstock.tools.node", "refuse publishes, deliver the rest, stop"),
    "check": ("penstock.tools.check", "health in one line and an exit code, for monitoring"),
    "bundle": ("penstock.tools.bundle", "gather diagnostics in one file, and analyze them"),
    "trace": ("penstock.tools.trace", "what happened to one message, as a timeline"),
    "log": ("penstock.tools.log", "dump, verify and repair stored messages, offline"),
    "migrate": ("penstock.tools.migrate", "convert the data of an official nsqd, and back"),
    "pipeline": ("penstock.tools.pipeline", "run and list pipelines on Spark"),
    "sql": ("penstock.tools.sql", "query topics and tables with SQL (DuckDB, in this process)"),
    "bench": ("penstock.tools.bench", "measure how quickly an nsqd publishes and delivers"),
    "completion": ("penstock.tools.app", "print a completion script for a shell"),
}
_COMPLETE = "_PENSTOCK_COMPLETE"  # a shell that completes sets it; nothing else is printed then


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    verb = arguments[0]
    if _COMPLETE in os.environ:
        return _run([])
    if verb in ("--version", "-version", "version"):
        print(f"penstock {__version__}")
        return DONE
    try:
        return _run([*arguments[1:], "--help"] if verb == "help" else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if not extra:
            raise
        what = "penstock" if extra == "cli" else f"penstock {verb}"
        print(lacks_extra(what, extra, error), file=sys.stderr)
        return FAILED
    except (BrokenPipeError, SystemExit) as error:  # typer ends so where nobody reads the output
        raise BrokenPipeError from error
    except (PenstockError, OSError) as error:
        print(f"penstock {verb}: {_reason(error)}", file=sys.stderr)
        return _wrong_use(arguments) if isinstance(error, WrongUse) else FAILED


def _reason(error: PenstockError | OSError) -> str:
    if isinstance(error, PenstockError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _run(arguments: Sequence[str]) -> int:
    verb = arguments[0] if arguments else ""
    if verb in DAEMONS:
        code: int = import_module(f"penstock.{verb}.main").main(arguments[1:])
        return code
    if verb not in ("pipeline", "completion", ""):  # a pipeline looks at the environment itself
        try:
            check_near_misses(COMMAND_LINE, os.environ)
        except ConfigError as error:
            raise WrongUse(str(error)) from error
    from penstock.tools.app import run

    code = run(VERBS, arguments)
    return _wrong_use(arguments) if code < 0 else code


def _wrong_use(arguments: Sequence[str]) -> int:
    """Where 2 means that the installation is in trouble, wrong use is 3, as in monitoring."""
    levels = list(arguments[:1]) == ["check"] or list(arguments[:2]) in (
        ["bundle", "analyze"], ["cluster", "check"],
    )  # fmt: skip
    return UNKNOWN if levels else USAGE


if __name__ == "__main__":
    sys.exit(main())
