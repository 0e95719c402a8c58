"""The executable `nsqd`. SIGUSR1 drains it (`drain.py`), SIGHUP reloads it."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence

from penstock.command import run as command_run
from penstock.command.flags import UsageError
from penstock.command.program import run_program
from penstock.errors import ConfigError
from penstock.nsqd.options import FLAGS, Options, read_options

log = logging.getLogger("penstock.nsqd")

_HELP_NOTE = """
Any flag may also stand in the TOML file that -config names, or in the environment
as PENSTOCK_<KEY>, where <KEY> is the flag with underscores. It listens on the loopback interface
(127.0.0.1) unless -tcp-address and -http-address say otherwise; give 0.0.0.0:4150 and 0.0.0.0:4151
to serve a network.

examples:
  penstock nsqd -data-path=/var/lib/penstock
  penstock nsqd -lookupd-tcp-address=lookup1:4160 -http-address=0.0.0.0:4151
"""


def main(argv: Sequence[str] | None = None) -> int:
    return run_program("nsqd", FLAGS, _HELP_NOTE, read_options, _serve, argv)


async def _serve(arguments: Sequence[str], options: Options) -> int:
    try:
        from penstock.nsqd.daemon import Daemon
    except ImportError as error:  # the compiled kernel is not installed; it says what to do
        log.critical("failed to start nsqd - %s", error)
        return command_run.EXIT_FATAL

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # not the end while the log is still being opened
    daemon = Daemon(options)

    def started() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, daemon.drain.begin)
        gc.freeze()  # what the start made stays; the collector need not walk it again

    async def reload() -> None:
        try:
            await daemon.reload(read_options(arguments, os.environ))
        except UsageError as error:  # the command line has not changed, but its file may say more
            raise ConfigError("config", options.config, str(error)) from error

    return await command_run.serve(daemon, "nsqd", started, reload)


if __name__ == "__main__":
    sys.exit(main())
