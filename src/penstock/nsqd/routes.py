"""nsqd's HTTP API: paths, parameters, the order in which they are checked, and the answers.

Errors are `{"message":"CODE"}` with a status. Parameters come from the query string only; a body
is payload. Every answer but those of `/ping` and redirects carries `X-Nsq-Content-Type`, by which
clients tell this API from older ones.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import __version__, limits
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.topic import Topic
from penstock.errors import NameInvalid, NotFound, PenstockError, Refused
from penstock.net.http import BodyRule, Request, Response
from penstock.net.query import QueryInvalid, parse_query
from penstock.nsqd import stats
from penstock.nsqd.durations import format_duration
from penstock.wire.names import is_valid_name

if TYPE_CHECKING:
    from penstock.nsqd.options import Options
    from penstock.nsqd.protocol import Protocol

log = logging.getLogger("penstock.nsqd")

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)

Parameters = dict[str, str]
Answer = Callable[[Response], None]

_U32 = struct.Struct(">i")
_FALSE, _TRUE = ("false", "0"), ("true", "1")


class HttpError(PenstockError):
    def __init__(self, status: int, code: str, closes: bool = False) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.closes = closes


class Identity(NamedTuple):
    """What the daemon says about itself."""

    version_line: str
    start_time: int
    started_mono_ns: int
    tcp_port: int
    http_port: int
    hostname: str


class Route(NamedTuple):
    methods: tuple[str, ...]
    serve: Callable[[Request, Answer], None]
    body_bytes_max: int = limits.HTTP_DISCARD_BYTES_MAX
    too_big: str = "BODY_TOO_BIG"


def json_response(value: Any) -> Response:
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(200, body, JSON, NSQ_HEADER)


def text_response(text: str) -> Response:
    return Response(200, text.encode("utf-8", "replace"), TEXT, NSQ_HEADER)


def error_response(error: HttpError) -> Response:
    body = json.dumps({"message": error.code}, separators=(",", ":")).encode()
    return Response(error.status, body, JSON, NSQ_HEADER, error.closes)


EMPTY = Response(200, headers=NSQ_HEADER)
OK = text_response("OK")


class Routes:
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(
        self,
        broker: Broker,
        protocol: Protocol,
        options: Options,
        identity: Identity,
        mono_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        soon: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._protocol = protocol
        self._options = options
        self._identity = identity
        self._mono_ns = mono_ns
        self._wall_ns = wall_ns
        self._soon = soon
        get, post = ("GET", "OPTIONS"), ("OPTIONS", "POST")
        self._table = {
            "/ping": Route(get, self._at_once(self._ping)),
            "/info": Route(get, self._at_once(self._info)),
            "/stats": Route(get, self._at_once(self._stats)),
            "/pub": Route(post, self._pub, options.max_msg_size, "MSG_TOO_BIG"),
            "/mpub": Route(post, self._mpub, options.max_body_size),
            "/topic/create": Route(post, self._at_once(self._topic_create)),
            "/topic/delete": Route(post, self._at_once(self._topic_delete)),
            "/topic/empty": Route(post, self._at_once(self._topic_empty)),
            "/topic/pause": Route(post, self._at_once(self._topic_pause)),
            "/topic/unpause": Route(post, self._at_once(self._topic_unpause)),
            "/channel/create": Route(post, self._at_once(self._channel_create)),
            "/channel/delete": Route(post, self._at_once(self._channel_delete)),
            "/channel/empty": Route(post, self._at_once(self._channel_empty)),
            "/channel/pause": Route(post, self._at_once(self._channel_pause)),
            "/channel/unpause": Route(post, self._at_once(self._channel_unpause)),
        }

    # --- what the HTTP shell calls ---

    def body_rule(self, method: str, path: str) -> BodyRule:
        route = self._table.get(path)
        if route is None or method not in route.methods:
            refusal = error_response(HttpError(413, "BODY_TOO_BIG", closes=True))
            return BodyRule(limits.HTTP_DISCARD_BYTES_MAX, refusal)
        refusal = error_response(HttpError(413, route.too_big, closes=True))
        return BodyRule(route.body_bytes_max, refusal)

    def serve(self, request: Request, answer: Answer) -> None:
        started_ns = self._mono_ns()
        level = logging.DEBUG if request.path in ("/pub", "/mpub") else logging.INFO

        def logged(response: Response) -> None:
            if log.isEnabledFor(level):
                elapsed = format_duration(self._mono_ns() - started_ns)
                line = f"{request.method} {request.target} ({request.remote}) {elapsed}"
                log.log(level, "%d %s", response.status, line)
            answer(response)

        try:
            self._dispatch(request, logged)
        except HttpError as error:
            logged(error_response(error))
        except QueryInvalid:
            logged(error_response(HttpError(400, "INVALID_REQUEST")))
        except PenstockError as error:
            logged(error_response(unavailable(error)))
        except Exception:
            log.exception("a fault while serving %s %s", request.method, request.target)
            logged(error_response(HttpError(500, "INTERNAL_ERROR", closes=True)))

    def _dispatch(self, request: Request, answer: Answer) -> None:
        route = self._table.get(request.path)
        if route is None:
            answer(self._redirect_or_not_found(request))
            return
        allowed = (("Allow", ", ".join(route.methods)), *NSQ_HEADER)
        if request.method == "OPTIONS":
            answer(Response(200, headers=allowed))
        elif request.method not in route.methods:
            refused = error_response(HttpError(405, "METHOD_NOT_ALLOWED"))
            answer(refused._replace(headers=allowed))
        else:
            route.serve(request, answer)

    def _redirect_or_not_found(self, request: Request) -> Response:
        path = request.path.lower().rstrip("/")
        if path not in self._table:
            return error_response(HttpError(404, "NOT_FOUND"))
        query = request.query.decode("latin-1")
        location = f"{path}?{query}" if query else path
        return Response(301 if request.method == "GET" else 307, headers=(("Location", location),))

    def _at_once(self, respond: Callable[[Parameters], Response]) -> Callable[..., None]:
        """A route whose answer is there when the function returns."""

        def serve(request: Request, answer: Answer) -> None:
            response = respond(parse_query(request.query))
            answer(response)
            if request.method == "POST":
                self._soon()

        return serve

    # --- about the daemon ---

    def _ping(self, parameters: Parameters) -> Response:
        health = self._broker.health
        return Response(200 if health == "OK" else 500, health.encode("utf-8", "replace"), TEXT)

    def _info(self, parameters: Parameters) -> Response:
        options, identity = self._options, self._identity
        return json_response(
            {
                "version": __version__,
                "broadcast_address": options.broadcast_address,
                "hostname": identity.hostname,
                "http_port": identity.http_port,
                "tcp_port": identity.tcp_port,
                "start_time": identity.start_time,
                "max_heartbeat_interval": options.max_heartbeat_interval_ns,
                "max_output_buffer_size": options.max_output_buffer_size,
                "max_output_buffer_timeout": options.max_output_buffer_timeout_ns,
                "max_deflate_level": options.max_deflate_level,
                "topology_zone": options.topology_zone,
                "topology_region": options.topology_region,
            }
        )

    def _stats(self, parameters: Parameters) -> Response:
        identity = self._identity
        query = stats.Query(
            parameters.get("topic", ""),
            parameters.get("channel", ""),
            parameters.get("include_clients", "true") not in _FALSE,
            parameters.get("include_mem", "true") not in _FALSE,
        )
        document = stats.document(
            __version__,
            identity.start_time,
            self._broker,
            self._protocol.sessions.values(),
            query,
        )
        if parameters.get("format") == "json":
            return json_response(document)
        uptime_ns = self._mono_ns() - identity.started_mono_ns
        return text_response(stats.text(document, identity.version_line, uptime_ns))

    # --- publishing ---

    def _publish_topic(self, parameters: Parameters) -> Topic:
        name = parameters.get("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if not _is_valid(name):
            raise HttpError(400, "INVALID_TOPIC")
        return self._broker.topic(name)

    def _publish(self, topic: Topic, bodies: list[bytes], due_ns: int, answer: Answer) -> None:
        def done(error: PenstockError | None) -> None:
            answer(OK if error is None else error_response(unavailable(error)))

        topic.publish(bodies, due_ns, done)
        self._soon()

    def _pub(self, request: Request, answer: Answer) -> None:
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = parse_query(request.query)
        topic = self._publish_topic(parameters)
        due_ns = 0
        if "defer" in parameters:
            delay_ns = self._defer_ns(parameters["defer"])
            due_ns = self._wall_ns() + delay_ns if delay_ns else 0
        self._publish(topic, [request.body], due_ns, answer)

    def _defer_ns(self, text: str) -> int:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise HttpError(400, "INVALID_DEFER")
        delay_ns = int(text) * limits.MS
        if not 0 <= delay_ns <= self._options.max_req_timeout_ns:
            raise HttpError(400, "INVALID_DEFER")
        return delay_ns

    def _mpub(self, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        topic = self._publish_topic(parameters)
        binary = parameters.get("binary", "false")
        if binary in _FALSE:
            bodies = self._text_bodies(request.body)
        else:
            if binary not in _TRUE:
                log.warning("deprecated value %r for binary: use true or false", binary)
            bodies = self._binary_bodies(request.body)
        if bodies:
            self._publish(topic, bodies, 0, answer)
        else:
            answer(OK)

    def _text_bodies(self, body: bytes) -> list[bytes]:
        bodies = [line for line in body.split(b"\n") if line]
        if bodies and max(map(len, bodies)) > self._options.max_msg_size:
            raise HttpError(413, "MSG_TOO_BIG")
        return bodies

    def _binary_bodies(self, body: bytes) -> list[bytes]:
        count_max = (self._options.max_body_size - 4) // 5
        if len(body) < _U32.size:
            raise HttpError(413, "BAD_BODY")
        count = _U32.unpack_from(body)[0]
        if not 0 < count <= count_max:
            raise HttpError(413, "BAD_BODY")
        bodies = []
        position = _U32.size
        for _ in range(count):
            if len(body) < position + _U32.size:
                raise HttpError(413, "BAD_MESSAGE")
            size = _U32.unpack_from(body, position)[0]
            position += _U32.size
            if not 0 < size <= self._options.max_msg_size or len(body) < position + size:
                raise HttpError(413, "BAD_MESSAGE")
            bodies.append(body[position : position + size])
            position += size
        return bodies

    # --- topics ---

    def _topic(self, parameters: Parameters, checks_name: bool = False) -> Topic:
        name = parameters.get("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if checks_name and not _is_valid(name):
            raise HttpError(400, "INVALID_TOPIC")
        try:
            return self._broker.find_topic(name)
        except NotFound as error:
            raise HttpError(404, "TOPIC_NOT_FOUND") from error

    def _topic_create(self, parameters: Parameters) -> Response:
        self._publish_topic(parameters)
        return EMPTY

    def _topic_delete(self, parameters: Parameters) -> Response:
        self._broker.delete_topic(self._topic(parameters).name)
        return EMPTY

    def _topic_empty(self, parameters: Parameters) -> Response:
        self._topic(parameters, checks_name=True).empty()
        return EMPTY

    def _topic_pause(self, parameters: Parameters) -> Response:
        self._topic(parameters).pause()
        return EMPTY

    def _topic_unpause(self, parameters: Parameters) -> Response:
        self._topic(parameters).unpause()
        return EMPTY

    # --- channels ---

    def _channel_arguments(self, parameters: Parameters) -> tuple[Topic, str]:
        names = []
        for kind in ("topic", "channel"):
            name = parameters.get(kind)
            if name is None:
                raise HttpError(400, f"MISSING_ARG_{kind.upper()}")
            if not _is_valid(name):
                raise HttpError(400, f"INVALID_ARG_{kind.upper()}")
            names.append(name)
        return self._topic(parameters), names[1]

    def _channel(self, parameters: Parameters) -> Channel:
        topic, name = self._channel_arguments(parameters)
        try:
            return topic.find_channel(name)
        except NotFound as error:
            raise HttpError(404, "CHANNEL_NOT_FOUND") from error

    def _channel_create(self, parameters: Parameters) -> Response:
        topic, name = self._channel_arguments(parameters)
        topic.channel(name)
        return EMPTY

    def _channel_delete(self, parameters: Parameters) -> Response:
        channel = self._channel(parameters)
        channel.topic.delete_channel(channel.name)
        return EMPTY

    def _channel_empty(self, parameters: Parameters) -> Response:
        self._channel(parameters).empty()
        return EMPTY

    def _channel_pause(self, parameters: Parameters) -> Response:
        self._channel(parameters).pause()
        return EMPTY

    def _channel_unpause(self, parameters: Parameters) -> Response:
        self._channel(parameters).unpause()
        return EMPTY


def _is_valid(name: str) -> bool:
    return is_valid_name(name.encode("utf-8", "surrogateescape"))


def unavailable(error: PenstockError) -> HttpError:
    """What the broker refused. NSQ answers 503 EXITING to all of it; we name the reason."""
    if isinstance(error, Refused) and error.reason == "exiting":
        return HttpError(503, "EXITING")
    if isinstance(error, NameInvalid):
        return HttpError(400, "INVALID_ARG")
    reason = error.reason if isinstance(error, Refused) else str(error)
    return HttpError(503, f"FAILED {reason}")
