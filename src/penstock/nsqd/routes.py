"""nsqd's HTTP API: the groups of routes put together, each in a module of its own.

Everything follows NSQ: paths, parameters, the order in which they are checked, and the answers.
What NSQ has not (`/metrics`, `mpub?defer=`, idempotent publishing) comes on top.
"""

from __future__ import annotations

import logging

from penstock.errors import PenstockError
from penstock.net import debug
from penstock.net.api import Api, HttpError
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.nsqd import (
    routes_about,
    routes_channels,
    routes_cleaning,
    routes_config,
    routes_damage,
    routes_ext,
    routes_figures,
    routes_inside,
    routes_limits,
    routes_log,
    routes_node,
    routes_publish,
    routes_repair,
    routes_replay,
    routes_shape,
    routes_stage,
    routes_topics,
    routes_trace,
    routes_verbs,
)
from penstock.nsqd.ground import Ground, unavailable
from penstock.nsqd.partitions import bad_partition, read_argument
from penstock.wire.partition import ANY

log = logging.getLogger("penstock.nsqd")

_QUIET = frozenset(
    ("/pub", "/mpub", "/log/fetch", "/stage", "/metrics", "/connections", "/channel/messages")
)  # asked for again and again


# These read the parameter themselves.
_WITH_PARTITIONS = (
    *("/log/", "/message/get", "/channel/setoffset", "/stats", "/stage", "/commit"),
    *("/message/finish", "/channel/fixconfirmed", "/channel/finishmemdelayed"),
    *("/channel/emptydelayed", "/channel/requeuedelayed", "/topic/greedyclean"),
    "/topic/concede",
    *("/message/stats", "/message/historystats", "/coordinator/stats"),
    *("/channel/skip", "/channel/unskip"),
    *("/pub", "/mpub"),
)


class Routes(Api):
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(log, ground.clock, quiet=_QUIET)
        self._on_fault = ground.on_fault
        self.table = {
            **routes_about.table(ground, self.guard),
            **routes_publish.table(ground, self.guard),
            **routes_ext.table(ground, self.guard),
            **routes_verbs.table(ground, self.guard),
            **routes_shape.table(ground, self.guard),
            **routes_topics.table(ground, self.guard),
            **routes_channels.table(ground, self.guard),
            **routes_trace.table(ground, self.guard),
            **routes_config.table(ground),
            **routes_figures.table(ground),
            **routes_cleaning.table(ground),
            **routes_damage.table(ground),
            **routes_node.table(ground),
            **routes_limits.table(ground),
            **routes_log.table(ground, self.guard),
            **routes_replay.table(ground, self.guard),
            **routes_repair.table(ground, self.guard),
            **routes_inside.table(ground),
            **routes_stage.table(ground, self.guard),
            **debug.table(),
        }

    def check(self, request: Request) -> None:
        """Other routes are about a whole topic, as NSQ's are: they know partition 0 alone."""
        if b"partition" in request.query and not request.path.startswith(_WITH_PARTITIONS):
            text = parse_query(request.query).get("partition", "")
            if read_argument(text) not in (ANY, 0):
                raise bad_partition(text, f"{request.path} is about a whole topic")

    def on_fault(self, request: Request, error: Exception) -> None:
        """One in a request that changes something may have left the broker half changed."""
        if request.method != "GET":
            self._on_fault(error)

    def error_of(self, error: PenstockError) -> HttpError:
        return unavailable(error)
