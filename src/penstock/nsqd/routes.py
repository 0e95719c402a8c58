"""nsqd's HTTP API: paths, parameters, the order in which they are checked, and the answers."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock import __version__, limits
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.topic import Topic
from penstock.errors import NameInvalid, NotFound, PenstockError, Refused
from penstock.net.api import (
    EMPTY,
    GET,
    OK,
    POST,
    TEXT,
    Answer,
    Api,
    HttpError,
    Parameters,
    Route,
    error_response,
    json_response,
    text_response,
)
from penstock.net.http import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd import stats
from penstock.wire.names import is_valid_name

if TYPE_CHECKING:
    from penstock.nsqd.options import Options
    from penstock.nsqd.protocol import Protocol
    from penstock.nsqd.topics import Found, TopicMaker

log = logging.getLogger("penstock.nsqd")

_U32 = struct.Struct(">i")
_FALSE, _TRUE = ("false", "0"), ("true", "1")


class Identity(NamedTuple):
    """What the daemon says about itself."""

    version_line: str
    start_time: int
    started_mono_ns: int
    tcp_port: int
    http_port: int
    hostname: str


class Routes(Api):
    """The application behind the HTTP listener (`net/http.py`)."""

    def __init__(
        self,
        broker: Broker,
        topics: TopicMaker,
        protocol: Protocol,
        options: Options,
        identity: Identity,
        mono_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        soon: Callable[[], None],
    ) -> None:
        super().__init__(log, mono_ns, quiet=frozenset(("/pub", "/mpub")))
        self._broker = broker
        self._topics = topics
        self._protocol = protocol
        self._options = options
        self._identity = identity
        self._wall_ns = wall_ns
        self._soon = soon
        self.table = {
            "/ping": Route(GET, self._at_once(self._ping)),
            "/info": Route(GET, self._at_once(self._info)),
            "/stats": Route(GET, self._at_once(self._stats)),
            "/pub": Route(POST, self._pub, options.max_msg_size, "MSG_TOO_BIG"),
            "/mpub": Route(POST, self._mpub, options.max_body_size),
            "/topic/create": Route(POST, self._topic_create),
            "/topic/delete": Route(POST, self._at_once(self._topic_delete)),
            "/topic/empty": Route(POST, self._at_once(self._topic_empty)),
            "/topic/pause": Route(POST, self._at_once(self._topic_pause)),
            "/topic/unpause": Route(POST, self._at_once(self._topic_unpause)),
            "/channel/create": Route(POST, self._at_once(self._channel_create)),
            "/channel/delete": Route(POST, self._at_once(self._channel_delete)),
            "/channel/empty": Route(POST, self._at_once(self._channel_empty)),
            "/channel/pause": Route(POST, self._at_once(self._channel_pause)),
            "/channel/unpause": Route(POST, self._at_once(self._channel_unpause)),
        }

    def _at_once(self, respond: Callable[[Parameters], Response]) -> Callable[..., None]:
        """A route whose answer is there when the function returns."""

        def serve(request: Request, answer: Answer) -> None:
            response = respond(parse_query(request.query))
            answer(response)
            if request.method == "POST":
                self._soon()

        return serve

    # --- about the daemon ---

    def error_of(self, error: PenstockError) -> HttpError:
        return unavailable(error)

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

    def _with_topic(
        self,
        request: Request,
        parameters: Parameters,
        answer: Answer,
        act: Callable[[Topic], None],
    ) -> None:
        """Call `act` with the topic, made when it is not there, which may take a while."""
        name = parameters.get("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if not _is_valid(name):
            raise HttpError(400, "INVALID_TOPIC")

        def go_on(found: Found) -> None:
            if isinstance(found, PenstockError):
                raise found
            act(found)

        self._topics.topic(name, lambda found: self.guard(request, answer, lambda: go_on(found)))

    def _publish(self, topic: Topic, bodies: list[bytes], due_ns: int, answer: Answer) -> None:
        def done(error: PenstockError | None) -> None:
            answer(OK if error is None else error_response(unavailable(error)))

        topic.publish(bodies, due_ns, done)
        self._soon()

    def _pub(self, request: Request, answer: Answer) -> None:
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = parse_query(request.query)

        def publish(topic: Topic) -> None:
            due_ns = 0
            if "defer" in parameters:
                delay_ns = self._defer_ns(parameters["defer"])
                due_ns = self._wall_ns() + delay_ns if delay_ns else 0
            self._publish(topic, [request.body], due_ns, answer)

        self._with_topic(request, parameters, answer, publish)

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

        def publish(topic: Topic) -> None:
            bodies = self._bodies(request, parameters)
            if bodies:
                self._publish(topic, bodies, 0, answer)
            else:
                answer(OK)

        self._with_topic(request, parameters, answer, publish)

    def _bodies(self, request: Request, parameters: Parameters) -> list[bytes]:
        binary = parameters.get("binary", "false")
        if binary in _FALSE:
            return self._text_bodies(request.body)
        if binary not in _TRUE:
            log.warning("deprecated value %r for binary: use true or false", binary)
        return self._binary_bodies(request.body)

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

    def _topic_create(self, request: Request, answer: Answer) -> None:
        def created(topic: Topic) -> None:
            answer(EMPTY)
            self._soon()

        self._with_topic(request, parse_query(request.query), answer, created)

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
