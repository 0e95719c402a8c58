"""The executable `nsqadmin`."""

import logging
import sys
from collections.abc import Sequence

from penstock.command import memory
from penstock.command import run as command_run
from penstock.command.extras import lacks_extra
from penstock.command.program import run_program
from penstock.nsqadmin.options import FLAGS, Options, read_options

log = logging.getLogger("penstock.nsqadmin")

_HELP_NOTE = """
Any flag may also stand in the TOML file that -config names, or in the environment
as PENSTOCK_<KEY>, where <KEY> is the flag with underscores. It listens on the loopback interface
(127.0.0.1) unless -http-address says otherwise; give 0.0.0.0:4171 to serve a network. Whoever has
not logged in may then only look: make users first, with penstock admin put-user.

examples:
  penstock nsqadmin -lookupd-http-address=lookup1:4161
  penstock nsqadmin -nsqd-http-address=127.0.0.1:4151 -data-path=/var/lib/penstock/nsqadmin
"""


def main(argv: Sequence[str] | None = None) -> int:
    memory.give_back_large()
    return run_program("nsqadmin", FLAGS, _HELP_NOTE, read_options, _serve, argv)


async def _serve(_: Sequence[str], options: Options) -> int:
    try:
        from penstock.nsqadmin.daemon import Daemon
    except ModuleNotFoundError as error:
        log.critical("%s", lacks_extra("nsqadmin", "admin", error))
        return command_run.EXIT_FATAL
    return await command_run.serve(Daemon(options), "nsqadmin", memory.settle)


if __name__ == "__main__":
    sys.exit(main())
