"""The console scripts. Each imports its program when it is called, and until that handles signals
Ctrl-C just ends it: Python's way is a traceback out of the midst of an import.

Each has all standard streams, and is done when nobody reads its output any more, as behind `head`.
"""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module


def _script(module: str, interrupted: bool = False) -> Callable[[], int]:
    """`interrupted`: the program handles KeyboardInterrupt from its first line on."""

    def start() -> int:
        open_standard_streams()
        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:  # not under nohup
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        main = import_module(module).main
        if interrupted:
            signal.signal(signal.SIGINT, usual)
        try:
            code: int = main()
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
            return 0
        return code

    return start


def open_standard_streams() -> None:
    """Those that whoever started us has closed. Else a socket of the loop gets such a number, and
    libuv ends the process at once."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


penstock = _script("penstock.tools.main", interrupted=True)
nsqd = _script("penstock.nsqd.main")
nsqlookupd = _script("penstock.nsqlookupd.main")
nsqadmin = _script("penstock.nsqadmin.main")
nsq_stat = _script("penstock.tools.nsq_stat")
nsq_tail = _script("penstock.tools.nsq_tail")
nsq_to_file = _script("penstock.tools.nsq_to_file")
nsq_to_http = _script("penstock.tools.nsq_to_http")
nsq_to_nsq = _script("penstock.tools.nsq_to_nsq")
to_nsq = _script("penstock.tools.to_nsq")
