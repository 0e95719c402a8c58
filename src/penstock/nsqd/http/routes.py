"""nsqd's HTTP API: one table of routes.

Everything follows NSQ: paths, parameters, the order in which they are checked, and the answers.
What NSQ has not (`/metrics`, `mpub?defer=`, idempotent publishing) comes on top.
"""

import logging
from functools import partial

from penstock import limits
from penstock.broker.channels import operator
from penstock.broker.channels.skips import Skipped
from penstock.errors import PenstockError
from penstock.net import debug
from penstock.net.api import GET, GET_POST, GET_PUT, POST, Answer, Api, HttpError, Route
from penstock.net.exchange import Request
from penstock.net.query import parse_query
from penstock.nsqd.http import about, channels, config, log, messages, topics
from penstock.nsqd.http.arguments import bad_partition, read_argument
from penstock.nsqd.http.deps import Act, Call, Deps, agreeing, changing, unavailable
from penstock.nsqd.http.publish import HttpPublishing
from penstock.nsqd.http.stages import Staging
from penstock.wire.names import ANY

# Asked for again and again: nsqadmin asks for /stats every second.
_QUIET = frozenset((
    "/pub", "/mpub", "/log/fetch", "/stage", "/metrics", "/connections", "/channel/messages",
    "/stats", "/cluster",
))  # fmt: skip


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

Rows = dict[str, tuple[tuple[str, ...], Act]]  # by path: the methods, and what serves a call

# In a cluster other nodes are asked, too (`nsqd/fanout.py`): about all messages or one of them the
# leaders of the partitions, about what the metadata has a node with a replica.
OF_ALL: Rows = {
    "/topic/empty": (POST, changing(topics.empty, keeps=True)),
    "/topic/concede": (POST, topics.concede),
    "/channel/empty": (POST, changing(channels.empty, keeps=True)),
    "/channel/setoffset": (POST, messages.set_offset),
    "/channel/fixconfirmed": (POST, messages.fix_confirmed),
    "/channel/finishmemdelayed": (POST, partial(messages.settle, operator.finish_retried)),
    "/channel/emptydelayed": (POST, partial(messages.settle, operator.finish_delayed)),
    "/channel/requeuedelayed": (POST, messages.requeue_delayed),
}
OF_ONE: Rows = {
    "/message/finish": (POST, messages.finish_by_number),
    "/channel/message/finish": (POST, changing(messages.finish, keeps=True)),
    "/channel/message/requeue": (POST, changing(messages.requeue, keeps=True)),
}
OF_METADATA: Rows = {
    "/topic/delete": (POST, agreeing(topics.delete, ends_topic=True)),
    "/topic/pause": (POST, agreeing(partial(topics.pause, True))),
    "/topic/unpause": (POST, agreeing(partial(topics.pause, False))),
    "/topic/partition/expand": (POST, agreeing(topics.expand)),
    "/topic/meta/update": (POST, agreeing(topics.update)),
    "/topic/config": (GET_POST, agreeing(topics.configure, topics.configuration, reads=True)),
    "/channel/create": (POST, channels.create),
    "/channel/delete": (POST, agreeing(channels.delete)),
    "/channel/pause": (POST, agreeing(partial(channels.pause, True))),
    "/channel/unpause": (POST, agreeing(partial(channels.pause, False))),
    "/channel/skip": (POST, agreeing(partial(channels.skip, Skipped.begun))),
    "/channel/unskip": (POST, agreeing(partial(channels.skip, Skipped.ended))),
    "/channel/skipZanTest": (POST, agreeing(channels.skip_tests(True))),
    "/channel/unskipZanTest": (POST, agreeing(channels.skip_tests(False))),
    "/channel/setorder": (POST, agreeing(channels.set_order)),
    "/channel/config": (GET_POST, agreeing(channels.configure, channels.configuration, reads=True)),
    "/message/trace/enable": (POST, agreeing(partial(channels.set_trace, True))),
    "/message/trace/disable": (POST, agreeing(partial(channels.set_trace, False))),
}
HERE: Rows = {
    "/ping": (GET, about.ping),
    "/info": (GET, about.info),
    "/stats": (GET, about.stats),
    "/connections": (GET, about.connections),
    "/metrics": (GET, about.metrics),
    "/cluster": (GET, about.cluster),
    "/message/stats": (GET, about.message_stats),
    "/message/historystats": (GET, about.history),
    "/serverstats": (GET, about.failures),
    "/coordinator/stats": (GET, about.copies),
    "/topic/create": (POST, topics.create),
    "/topic/greedyclean": (POST, changing(topics.clean)),
    "/topic/cleanunused": (POST, changing(topics.clean_unused)),
    "/channel/redrive": (POST, channels.redrive),
    "/channel/ratelimit": (POST, changing(channels.limit_rate)),
    "/channel/setclientlimit": (POST, changing(channels.limit_clients)),
    "/channel/messages": (GET, messages.listed),
    "/log/positions": (GET, log.positions),
    "/log/fetch": (GET, log.fetch),
    "/log/offset": (GET, log.offset),
    "/message/get": (GET, log.message),
    "/disable/write": (POST, changing(config.disable_writes)),
    "/loglevel/set": (POST, changing(config.set_log_level)),
}
ROUTES = OF_ALL | OF_ONE | OF_METADATA | HERE


class Routes(Api):
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(self, deps: Deps) -> None:
        logger = logging.getLogger("penstock.nsqd")
        super().__init__(logger, deps.clock, quiet=_QUIET)
        self._deps = deps
        self.table = self._table()

    def _table(self) -> dict[str, Route]:
        """The rows above, and the routes with a body."""
        options, route = self._deps.options, self._route
        publishing, staging = HttpPublishing(self._deps, self.guard), Staging(self._deps)
        message_max, pack_max = (options.max_msg_size, "MSG_TOO_BIG"), options.max_body_size
        staged_max = max(limits.STAGE_BYTES_MAX, pack_max)
        return {
            **self.routes_of(ROUTES),
            "/pub": Route(POST, publishing.pub, *message_max, together=True),
            "/mpub": Route(POST, publishing.mpub, pack_max, together=True),
            "/pubtrace": route(POST, publishing.pubtrace, *message_max),
            "/mpubtrace": route(POST, publishing.mpubtrace, pack_max),
            "/pub_ext": route(POST, publishing.pub_ext, *message_max),
            "/stage": route(POST, staging.stage, staged_max, "STAGE_TOO_BIG"),
            "/stage/commit": route(POST, staging.commit, limits.COMMIT_BODY_BYTES_MAX),
            "/stage/abort": route(POST, staging.abort, limits.COMMIT_BODY_BYTES_MAX),
            "/stage/last": route(GET, staging.last),
            "/stage/list": route(GET, staging.list),
            "/config/:": route(GET_PUT, config.option, options.max_msg_size, "INVALID_VALUE"),
            **debug.table(),
        }

    def routes_of(self, rows: Rows) -> dict[str, Route]:
        return {path: self._route(methods, act) for path, (methods, act) in rows.items()}

    def _route(
        self,
        methods: tuple[str, ...],
        act: Act,
        bytes_max: int = limits.HTTP_DISCARD_BYTES_MAX,
        too_big: str = "BODY_TOO_BIG",
    ) -> Route:
        deps, guard = self._deps, self.guard

        def serve(request: Request, answer: Answer) -> None:
            act(Call(deps, guard, request, answer))

        return Route(methods, serve, bytes_max, too_big)

    def check(self, request: Request) -> None:
        """Other routes are about a whole topic, as NSQ's are: they know partition 0 alone."""
        if b"partition" in request.query and not request.path.startswith(_WITH_PARTITIONS):
            text = parse_query(request.query).get("partition", "")
            if read_argument(text) not in (ANY, 0):
                raise bad_partition(text, f"{request.path} is about a whole topic")

    def on_fault(self, request: Request, error: Exception) -> None:
        """A fault in a request that changes something may have left the broker half changed."""
        if request.method != "GET":
            self._deps.on_fault(error)

    def error_of(self, error: PenstockError) -> HttpError:
        return unavailable(error)
