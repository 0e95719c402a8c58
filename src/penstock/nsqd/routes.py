"""nsqd's HTTP API: the groups of routes put together, each in a module of its own.

Everything follows NSQ: paths, parameters, the order in which they are checked, and the answers.
What NSQ has not (`/metrics`, `mpub?defer=`, idempotent publishing) comes on top.
"""

from __future__ import annotations

import logging

from penstock.errors import PenstockError
from penstock.net import debug
from penstock.net.api import Api, HttpError
from penstock.nsqd import (
    routes_about,
    routes_config,
    routes_inside,
    routes_log,
    routes_publish,
    routes_replay,
    routes_stage,
    routes_verbs,
)
from penstock.nsqd.ground import Ground, unavailable

log = logging.getLogger("penstock.nsqd")

_QUIET = frozenset(
    ("/pub", "/mpub", "/log/fetch", "/stage", "/metrics", "/connections", "/channel/messages")
)  # asked for again and again


class Routes(Api):
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(log, ground.mono_ns, quiet=_QUIET)
        self.table = {
            **routes_about.table(ground, self.guard),
            **routes_publish.table(ground, self.guard),
            **routes_verbs.table(ground, self.guard),
            **routes_config.table(ground),
            **routes_log.table(ground, self.guard),
            **routes_replay.table(ground, self.guard),
            **routes_inside.table(ground),
            **routes_stage.table(ground, self.guard),
            **debug.table(),
        }

    def error_of(self, error: PenstockError) -> HttpError:
        return unavailable(error)
