"""The executable `nsqd`: flags, signals, exit codes.

0: a wanted end (--help, --version, SIGINT, SIGTERM); 1: the start or the run failed, with one FATAL
line; 2: the command line is wrong. A second signal ends the process at once.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence

from penstock.command import logs
from penstock.command import run as command_run
from penstock.command.flags import HelpWanted, UsageError, usage
from penstock.command.run import EXIT_FATAL, EXIT_USAGE
from penstock.errors import ConfigError, PenstockError
from penstock.nsqd.options import FLAGS, Options, read_options

log = logging.getLogger("penstock.nsqd")

_HELP_NOTE = """ Any flag may also stand in the TOML file that -config names, or in the environment
as PENSTOCK_<KEY>, where <KEY> is the flag with underscores. It listens on the loopback interface
(127.0.0.1) unless -tcp-address and -http-address say otherwise; give 0.0.0.0:4150 and 0.0.0.0:4151
to serve a network.
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    try:
        options = read_options(arguments, os.environ)
    except HelpWanted:
        print(usage("nsqd", FLAGS) + _HELP_NOTE, end="")
        return 0
    except UsageError as error:
        print(f"{error}\n{usage('nsqd', FLAGS)}", end="", file=sys.stderr)
        return EXIT_USAGE
    except ConfigError as error:
        handler = logs.set_up("info", "[nsqd] ", "text")
        log.critical("%s", error)
        logs.tear_down(handler)
        return EXIT_FATAL
    if options.version:
        from penstock.nsqd.daemon import version_line

        print(version_line())
        return 0
    handler = logs.set_up(options.log_level, options.log_prefix, options.log_format)
    try:
        return run(options)
    finally:
        logs.tear_down(handler)


def run(options: Options) -> int:
    """Serve until a signal comes. Returns the exit code."""
    return command_run.run(lambda: _serve(options))


async def _serve(options: Options) -> int:
    from penstock.nsqd.daemon import Daemon

    daemon = Daemon(options)

    async def start() -> bool:
        try:
            await daemon.start()
        except (PenstockError, OSError) as error:
            log.critical("failed to start nsqd - %s", error)
            return False
        gc.freeze()  # what the start made stays; the collector need not walk it again
        return True

    return await command_run.serve(daemon, start)


if __name__ == "__main__":
    sys.exit(main())
