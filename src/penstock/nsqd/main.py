"""The executable `nsqd`: flags, signals, exit codes.

0: a wanted end (--help, --version, SIGINT, SIGTERM); 1: the start or the run failed, with one FATAL
line; 2: the command line is wrong. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from penstock import limits
from penstock.errors import ConfigError, PenstockError
from penstock.nsqd import logs
from penstock.nsqd.flags import HelpWanted, UsageError, usage
from penstock.nsqd.options import FLAGS, Options, read_options

log = logging.getLogger("penstock.nsqd")

EXIT_USAGE = 2
EXIT_FATAL = 1

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
    _raise_descriptor_limit()
    sys.setswitchinterval(limits.GIL_SWITCH_NS / limits.SECOND)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(options))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _raise_descriptor_limit() -> None:
    """A connection is a descriptor; the usual soft limit of 1,024 is a shell's, not a server's."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(options: Options) -> int:
    from penstock.nsqd.daemon import Daemon

    loop = asyncio.get_running_loop()
    daemon = Daemon(options)
    signals = _Signals(daemon.ended)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.on_signal, number)
    try:
        try:
            await daemon.start()
        except (PenstockError, OSError) as error:
            log.critical("failed to start nsqd - %s", error)
            return EXIT_FATAL
        gc.freeze()  # what the start made stays; the collector need not walk it again
        code = await daemon.ended
        await daemon.stop()
        return EXIT_FATAL if daemon.broken else code
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Signals:
    def __init__(self, ended: asyncio.Future[int]) -> None:
        self._ended = ended
        self._count = 0

    def on_signal(self, number: int) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(128 + number)
        if not self._ended.done():
            self._ended.set_result(0)


if __name__ == "__main__":
    sys.exit(main())
