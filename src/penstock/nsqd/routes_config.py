"""`/config/:opt`: reading every option, and changing two of them while the daemon runs.

An option goes by its key in the config file. Strings are answered as plain text, everything else as
JSON, in the forms of nsqd's own option struct: durations in nanoseconds, the log level and the TLS
options as numbers. `log_level` takes a bare word, `nsqlookupd_tcp_addresses` a JSON list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.command import logs
from penstock.command.flags import LOG_LEVELS
from penstock.errors import ConfigError
from penstock.net.api import GET_PUT, Answer, HttpError, Route, json_response, text_response
from penstock.net.exchange import Request, Response
from penstock.net.fetch import without_password
from penstock.net.listener import parse_address
from penstock.nsqd.ground import Ground
from penstock.nsqd.options import FLAGS
from penstock.nsqd.statsd import expand_prefix

_HIDDEN = frozenset(("version", "config", "verbose", "worker_id", "node_id"))
_TLS_REQUIRED = {"false": 0, "0": 0, "tcp-https": 1, "true": 2, "1": 2}
_TLS_VERSIONS = {"": 0x0301, "tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304}
_INVALID_OPTION = HttpError(400, "INVALID_OPTION")
_INVALID_VALUE = HttpError(400, "INVALID_VALUE")


def table(ground: Ground) -> dict[str, Route]:
    serve = _Config(ground).serve
    return {"/config/:": Route(GET_PUT, serve, ground.options.max_msg_size, "INVALID_VALUE")}


class _Config:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._names = {flag.file_key: flag.name for flag in FLAGS if flag.file_key not in _HIDDEN}
        self._shown: dict[str, Callable[[Any], Any]] = {
            "log_level": _level_number,
            "tls_required": lambda value: _TLS_REQUIRED[value],
            "tls_min_version": lambda value: _TLS_VERSIONS[value],
            "statsd_prefix": self._prefix,
            "auth_http_addresses": lambda value: [without_password(one) for one in value],
        }
        self._setters: dict[str, Callable[[bytes], Any]] = {
            "log_level": self._set_log_level,
            "nsqlookupd_tcp_addresses": self._set_lookupds,
        }

    def serve(self, request: Request, answer: Answer) -> None:
        key = request.path.rpartition("/")[2]
        if request.method == "PUT":
            if not request.body:
                raise HttpError(413, "INVALID_VALUE")
            setter = self._setters.get(key)
            if setter is None:
                raise _INVALID_OPTION
            self._ground.config[self._names[key]] = setter(request.body)
        elif key not in self._names:
            raise _INVALID_OPTION
        answer(self._show(key))

    def _show(self, key: str) -> Response:
        shown = self._shown.get(key)
        value = self._ground.config[self._names[key]]
        if shown is not None:
            value = shown(value)
        value = _as_go(value)
        return text_response(value) if isinstance(value, str) else json_response(value)

    def _prefix(self, value: str) -> str:
        ground = self._ground
        return expand_prefix(value, ground.options.broadcast_address, ground.identity.http_port)

    def _set_log_level(self, body: bytes) -> str:
        level = body.decode("utf-8", "replace").lower()
        if level not in LOG_LEVELS:
            raise _INVALID_VALUE
        logs.set_level(level)
        return level

    def _set_lookupds(self, body: bytes) -> tuple[str, ...]:
        try:
            addresses = json.loads(body)
        except (ValueError, RecursionError):  # the latter: lists in lists, many deep
            raise _INVALID_VALUE from None
        if not isinstance(addresses, list) or not all(map(_is_address, addresses)):
            raise _INVALID_VALUE
        self._ground.set_lookupds(addresses)
        return tuple(addresses)


def _as_go(value: Any) -> Any:
    """Go prints a whole float without a fraction: [1,0.99]."""
    if isinstance(value, tuple | list):
        return [_as_go(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _level_number(level: str) -> int:
    return LOG_LEVELS.index(level) + 1


def _is_address(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return not parse_address(text).path
    except ConfigError:
        return False
