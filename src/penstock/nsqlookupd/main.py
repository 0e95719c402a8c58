"""The executable `nsqlookupd`."""

import os
import sys
from collections.abc import Sequence

from penstock.command import logs
from penstock.command import run as command_run
from penstock.command.program import run_program
from penstock.nsqlookupd.options import FLAGS, Options, read_options

_HELP_NOTE = """
Any flag may also stand in the TOML file that -config names, or in the environment
as PENSTOCK_<KEY>, where <KEY> is the flag with underscores. It listens on the loopback interface
(127.0.0.1) unless -tcp-address and -http-address say otherwise; give 0.0.0.0:4160 and 0.0.0.0:4161
to serve a network.

examples:
  penstock nsqlookupd -http-address=0.0.0.0:4161
"""


def main(argv: Sequence[str] | None = None) -> int:
    return run_program("nsqlookupd", FLAGS, _HELP_NOTE, read_options, _serve, argv)


async def _serve(arguments: Sequence[str], options: Options) -> int:
    from penstock.nsqlookupd.daemon import Daemon

    async def reload() -> None:
        logs.set_level(read_options(arguments, os.environ).log_level)

    return await command_run.serve(Daemon(options), "nsqlookupd", reload=reload)


if __name__ == "__main__":
    sys.exit(main())
