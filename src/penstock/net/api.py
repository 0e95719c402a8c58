"""The common parts of our HTTP APIs: a table of routes, JSON and text answers, NSQ's error form.

Errors are `{"message":"CODE"}` with a status. Parameters come from the query string only; a body
is payload. Every answer but those of `/ping` and redirects carries `X-Nsq-Content-Type`, by which
clients tell this API from older ones. An unknown path is a 404, a known one with the wrong method
a 405, and a trailing slash or the wrong letter case a redirect.

A path of the table that ends in `/:` stands for all that have one more part, whatever it is; its
handler finds it in `Request.path`.
"""

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from penstock import limits
from penstock.clock import Clock
from penstock.durations import format_duration
from penstock.errors import PenstockError
from penstock.net.exchange import BodyRule, Request, Response
from penstock.net.gate import Caller, Gate
from penstock.net.query import QueryInvalid, parse_query

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
NSQ_HEADER = (("X-Nsq-Content-Type", "nsq; version=1.0"),)
GET = ("GET", "OPTIONS")
POST = ("OPTIONS", "POST")
PUT = ("OPTIONS", "PUT")
GET_PUT = ("GET", "OPTIONS", "PUT")
GET_POST = ("GET", "OPTIONS", "POST")

_SHOWN_CHARACTERS = 200  # of a refused path, in the log

Parameters = dict[str, str]
Answer = Callable[[Response], None]
Guard = Callable[[Request, Answer, Callable[[], None]], None]  # Api.guard


class HttpError(PenstockError):
    """Raised by a handler: the status and the code of the answer."""

    def __init__(
        self, status: int, code: str, closes: bool = False, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{status} {code}")
        self.details = details or {}  # further members of the answer, beside `message`
        self.status = status
        self.code = code
        self.closes = closes


def because(status: int, code: str, reason: object) -> HttpError:
    return HttpError(status, code, details={"reason": str(reason)})


class Route(NamedTuple):
    methods: tuple[str, ...]
    serve: Callable[[Request, Answer], None]
    body_bytes_max: int = limits.HTTP_DISCARD_BYTES_MAX
    too_big: str = "BODY_TOO_BIG"
    together: bool = False  # requests need not wait for the answers of earlier ones that have it

    @property
    def body_rule(self) -> BodyRule:
        return _body_rule(self.body_bytes_max, self.too_big, self.together)


def json_response(value: Any) -> Response:
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(200, body, JSON, NSQ_HEADER)


def text_response(text: str) -> Response:
    return Response(200, text.encode("utf-8", "replace"), TEXT, NSQ_HEADER)


def error_response(error: HttpError) -> Response:
    fields = {"message": error.code, **error.details}
    body = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(error.status, body, JSON, NSQ_HEADER, error.closes)


@cache
def _body_rule(bytes_max: int, too_big: str, together: bool = False) -> BodyRule:
    details = {"reason": f"a body has at most {bytes_max} bytes"}
    refusal = error_response(HttpError(413, too_big, closes=True, details=details))
    return BodyRule(bytes_max, refusal, together)


EMPTY = Response(200, headers=NSQ_HEADER)
OK = text_response("OK")


class Api:
    """The application behind an HTTP listener (`net/http.py`). A subclass fills `table`."""

    def __init__(
        self, log: logging.Logger, clock: Clock, quiet: frozenset[str] = frozenset()
    ) -> None:
        self.table: dict[str, Route] = {}
        self._log = log
        self._mono_ns = clock.mono_ns
        self._quiet = quiet  # paths whose requests are too many for the log

    def check(self, request: Request) -> None:
        """Checks for requests of every route. Raises HttpError."""

    def error_of(self, error: PenstockError) -> HttpError:
        """The answer to an error that no handler turned into an HttpError."""
        return HttpError(500, "INTERNAL_ERROR")

    def on_fault(self, request: Request, error: Exception) -> None:
        """A fault of the program was answered."""

    def route(self, path: str) -> Route | None:
        found = self.table.get(path)
        return found if found is not None else self.table.get(path.rpartition("/")[0] + "/:")

    # --- calls of the HTTP shell ---

    def body_rule(self, method: str, path: str) -> BodyRule:
        route = self.route(path)
        if route is None or method not in route.methods:
            return _body_rule(limits.HTTP_DISCARD_BYTES_MAX, "BODY_TOO_BIG")
        return route.body_rule

    def serve(self, request: Request, answer: Answer) -> None:
        level = logging.DEBUG if request.path in self._quiet else logging.INFO
        if not self._log.isEnabledFor(level):
            self.guard(request, answer, lambda: self._dispatch(request, answer))
            return
        started_ns = self._mono_ns()

        def logged(response: Response) -> None:
            elapsed = format_duration(self._mono_ns() - started_ns)
            line = f"{request.method} {request.target} ({request.remote}) {elapsed}"
            self._log.log(level, "%d %s", response.status, line)
            answer(response)

        self.guard(request, logged, lambda: self._dispatch(request, logged))

    def guard(self, request: Request, answer: Answer, act: Callable[[], None]) -> None:
        """Run `act`, which answers, now or later; its errors are answered here. A handler that
        continues after `serve` has returned uses this."""
        try:
            act()
        except HttpError as error:
            answer(error_response(error))
        except QueryInvalid:
            answer(error_response(HttpError(400, "INVALID_REQUEST")))
        except PenstockError as error:
            answer(error_response(self.error_of(error)))
        except Exception as error:
            self._log.exception("internal error while serving %s %s", request.method, request.path)
            answer(error_response(HttpError(500, "INTERNAL_ERROR", closes=True)))
            self.on_fault(request, error)

    def _dispatch(self, request: Request, answer: Answer) -> None:
        route = self.route(request.path)
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
            self.check(request)
            route.serve(request, answer)

    def _redirect_or_not_found(self, request: Request) -> Response:
        path = request.path.lower().rstrip("/")
        if self.route(path) is None:
            return error_response(HttpError(404, "NOT_FOUND"))
        query = request.query.decode("latin-1")
        location = f"{path}?{query}" if query else path
        return Response(301 if request.method == "GET" else 307, headers=(("Location", location),))


class Admission:
    """The decisions of a gate, for the HTTP shell; refusals are logged."""

    def __init__(self, gate: Gate, log: logging.Logger) -> None:
        self._gate = gate
        self._log = log

    def __call__(self, method: str, path: str, remote: str, caller: Caller) -> Response | None:
        denial = self._gate.denial(method, path, caller)
        if denial is None:
            return None
        shown = f"{method} {path[:_SHOWN_CHARACTERS]} ({remote})"
        self._log.warning("%d %s denied: %s", denial.status, shown, denial.message)
        response = error_response(HttpError(denial.status, denial.message, closes=True))
        if denial.status == 401:
            response = response._replace(headers=(*NSQ_HEADER, ("WWW-Authenticate", "Bearer")))
        return response


def at_once(respond: Callable[[Parameters], Response]) -> Callable[[Request, Answer], None]:
    """A route that answers when the function returns."""

    def serve(request: Request, answer: Answer) -> None:
        answer(respond(parse_query(request.query)))

    return serve
