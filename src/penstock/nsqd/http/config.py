"""`/config/:opt`: reading every option, and changing two of them at run time; and two settings of
Youzan's nsqd: whether the node accepts publishes, and the log level.

An option goes by its key in the config file. Strings are answered as plain text, everything else as
JSON, in the forms of nsqd's own option struct: durations in nanoseconds, the log level and the TLS
options as numbers. `log_level` takes a bare word, `nsqlookupd_tcp_addresses` a JSON list. What is
set holds until the next start.
"""

import json
from collections.abc import Callable
from typing import Any

from penstock.broker.topics.settings import WritesDisabledFor
from penstock.command import logs
from penstock.command.flags import LOG_LEVELS
from penstock.errors import ConfigError
from penstock.net.api import EMPTY, HttpError, json_response, text_response
from penstock.net.exchange import Response
from penstock.net.fetch import without_password
from penstock.net.listener import parse_address
from penstock.nsqd.http.arguments import invalid, one_of
from penstock.nsqd.http.deps import Call, Deps
from penstock.nsqd.options import FLAGS
from penstock.nsqd.statsd import expand_prefix

_HIDDEN = frozenset(("version", "config", "verbose", "worker_id", "node_id"))
_NAMES = {flag.file_key: flag.name for flag in FLAGS if flag.file_key not in _HIDDEN}
_LEVEL_OF = ("error", "warn", "info", "debug")  # by Youzan's numbers: more says more
_TLS_REQUIRED = {"false": 0, "0": 0, "tcp-https": 1, "true": 2, "1": 2}
_TLS_VERSIONS = {"": 0x0301, "tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304}
_INVALID_OPTION = HttpError(400, "INVALID_OPTION")
_INVALID_VALUE = HttpError(400, "INVALID_VALUE")


def option(call: Call) -> None:
    key = call.request.path.rpartition("/")[2]
    if call.request.method == "PUT":
        if not call.request.body:
            raise HttpError(413, "INVALID_VALUE")
        if key not in _SETTERS:
            raise _INVALID_OPTION
        call.deps.config[_NAMES[key]] = _SETTERS[key](call.deps, call.request.body)
    elif key not in _NAMES:
        raise _INVALID_OPTION
    call.answer(_show(call.deps, key))


def disable_writes(call: Call) -> Response:
    known = [member.value for member in WritesDisabledFor]
    kind = one_of("type", call.parameters.get("type", ""), known)
    call.deps.broker.refuse(writes_disabled=WritesDisabledFor(kind))
    return EMPTY


def set_log_level(call: Call) -> Response:
    text = call.parameters.get("loglevel", "").lower()
    is_number = text.isascii() and text.isdigit() and len(text) < 4
    level = _LEVEL_OF[min(int(text), len(_LEVEL_OF) - 1)] if is_number else text
    if level not in LOG_LEVELS:
        rule = f"one of {', '.join(LOG_LEVELS)}, or a number from 0 (error) to 3 (debug)"
        raise invalid("loglevel", text, rule)
    logs.set_level(level)
    call.deps.config["log-level"] = level
    return EMPTY


def _set_level(deps: Deps, body: bytes) -> str:
    level = body.decode("utf-8", "replace").lower()
    if level not in LOG_LEVELS:
        raise _INVALID_VALUE
    logs.set_level(level)
    return level


def _set_lookupds(deps: Deps, body: bytes) -> tuple[str, ...]:
    try:
        addresses = json.loads(body)
    except (ValueError, RecursionError):  # the latter: lists in lists, many deep
        raise _INVALID_VALUE from None
    if not isinstance(addresses, list) or not all(map(_is_address, addresses)):
        raise _INVALID_VALUE
    deps.set_lookupds(addresses)
    return tuple(addresses)


_SETTERS: dict[str, Callable[[Deps, bytes], Any]] = {
    "log_level": _set_level,
    "nsqlookupd_tcp_addresses": _set_lookupds,
}


def _is_address(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return not parse_address(text).path
    except ConfigError:
        return False


# --- how options are shown ---


def _show(deps: Deps, key: str) -> Response:
    value = deps.config[_NAMES[key]]
    if key in _SHOWN:
        value = _SHOWN[key](deps, value)
    value = _as_go(value)
    return text_response(value) if isinstance(value, str) else json_response(value)


_SHOWN: dict[str, Callable[[Deps, Any], Any]] = {
    "log_level": lambda _, level: LOG_LEVELS.index(level) + 1,
    "tls_required": lambda _, value: _TLS_REQUIRED[value],
    "tls_min_version": lambda _, value: _TLS_VERSIONS[value],
    "statsd_prefix": lambda deps, value: expand_prefix(
        value, deps.options.broadcast_address, deps.identity.http_port
    ),
    "auth_http_addresses": lambda _, value: [without_password(one) for one in value],
}


def _as_go(value: Any) -> Any:
    """Go prints a whole float without a fraction: [1,0.99]."""
    if isinstance(value, tuple | list):
        return [_as_go(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
