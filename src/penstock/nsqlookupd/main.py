"""The executable `nsqlookupd`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from penstock.command import logs
from penstock.command import run as command_run
from penstock.command.program import Program, run_program
from penstock.errors import PenstockError
from penstock.nsqlookupd.options import FLAGS, Options, read_options

log = logging.getLogger("penstock.nsqlookupd")

_HELP_NOTE = """
Any flag may also stand in the TOML file that -config names, or in the environment
as PENSTOCK_<KEY>, where <KEY> is the flag with underscores. It listens on the loopback interface
(127.0.0.1) unless -tcp-address and -http-address say otherwise; give 0.0.0.0:4160 and 0.0.0.0:4161
to serve a network.

examples:
  penstock nsqlookupd -http-address=0.0.0.0:4161
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv

    async def reload() -> None:
        logs.set_level(read_options(arguments, os.environ).log_level)

    program = Program("nsqlookupd", FLAGS, _HELP_NOTE)
    return run_program(program, read_options, lambda options: _serve(options, reload), arguments)


async def _serve(options: Options, reload: Callable[[], Awaitable[None]]) -> int:
    from penstock.nsqlookupd.daemon import Daemon

    daemon = Daemon(options)

    async def start() -> bool:
        try:
            await daemon.start()
        except (PenstockError, OSError) as error:
            log.critical("failed to start nsqlookupd - %s", error)
            return False
        return True

    return await command_run.serve(daemon, start, reload)


if __name__ == "__main__":
    sys.exit(main())
