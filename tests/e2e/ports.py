"""Ports for what is started on a port of the test's choice, or again on the one it had.

A port that the system chose goes to anyone once it is closed, so a test beside this one may have it
before the process under test does. These come from below the range that systems choose from; each
worker has a stripe of its own.
"""

import itertools
import os
import re
import socket

FIRST, STRIPE, STRIPES = 12_000, 600, 32

_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or os.getpid())
_steps = itertools.count(os.getpid())


def kept_port() -> int:
    """One that nothing listens on, and that is not returned again before 600 others were."""
    start = FIRST + _worker % STRIPES * STRIPE
    for step in itertools.islice(_steps, STRIPE):
        port = start + step % STRIPE
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {start} and {start + STRIPE}")
