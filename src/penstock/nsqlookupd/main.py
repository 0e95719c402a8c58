"""The executable `nsqlookupd`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

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
    return run_program(Program("nsqlookupd", FLAGS, _HELP_NOTE), read_options, _serve, argv)


async def _serve(options: Options) -> int:
    from penstock.nsqlookupd.daemon import Daemon

    daemon = Daemon(options)

    async def start() -> bool:
        try:
            await daemon.start()
        except (PenstockError, OSError) as error:
            log.critical("failed to start nsqlookupd - %s", error)
            return False
        return True

    return await command_run.serve(daemon, start)


if __name__ == "__main__":
    sys.exit(main())
