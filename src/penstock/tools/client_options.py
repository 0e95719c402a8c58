"""`--consumer-opt` and `--producer-opt`: options by the names that NSQ's own client library uses.

Each is `name,value`, or a bare name for `true`. Durations are Go's, a bare number is milliseconds.
A name that means nothing here, but does in that library, is accepted; any other is an error.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from penstock import limits
from penstock.client import ConsumerOptions, ProducerOptions
from penstock.durations import parse_duration
from penstock.errors import ConfigError
from penstock.tools.nodes import tls_context

# Their names, and ours. A field of ours says how its value is read.
_KNOWN = {
    **{name: name for name in (
        "client_id", "hostname", "user_agent", "snappy", "deflate", "deflate_level", "auth_secret",
        "topology_region", "topology_zone", "max_in_flight", "max_attempts", "sample_rate",
    )},
    "heartbeat_interval": "heartbeat_s", "dial_timeout": "connect_timeout_s",
    "lookupd_poll_interval": "lookup_interval_s", "lookupd_poll_jitter": "lookup_jitter",
    "lookupd_poll_timeout": "lookup_timeout_s", "msg_timeout": "message_timeout_s",
    "output_buffer_size": "output_buffer_bytes",
    "output_buffer_timeout": "output_buffer_timeout_s", "default_requeue_delay": "requeue_delay_s",
    "max_requeue_delay": "requeue_delay_max_s", "backoff_multiplier": "backoff_s",
    "max_backoff_duration": "backoff_max_s", "low_rdy_idle_timeout": "low_rdy_idle_s",
    "low_rdy_timeout": "low_rdy_hold_s",
}  # fmt: skip
_TLS = ("tls_v1", "tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify")
_WITHOUT_MEANING = (  # TLS 1.2 is the floor
    "read_timeout", "write_timeout", "local_addr", "rdy_redistribute_interval", "backoff_strategy",
    "tls_min_version", "lookupd_authorization",
)  # fmt: skip
_KINDS: dict[str, Any] = {one.name: type(one.default) for one in fields(ConsumerOptions)}
_OF_PRODUCERS = {one.name for one in fields(ProducerOptions)}
_RULES = {int: "must be a whole number", float: "must be a number"}


def consumer_changes(given: Sequence[str], flag: str = "consumer-opt") -> dict[str, Any]:
    """Keywords for a Consumer. Raises ConfigError."""
    changes: dict[str, Any] = {}
    tls: dict[str, str] = {}
    for text in given:
        name, comma, value = text.partition(",")
        name = name.strip().replace("-", "_")
        value = value if comma else "true"
        if name in _TLS:
            tls[name] = value
        elif name in _KNOWN:
            try:
                changes[_KNOWN[name]] = _read(_KNOWN[name], value)
            except ValueError as error:
                shown = name if name == "auth_secret" else text
                raise ConfigError(flag, shown, str(error)) from error
        elif name not in _WITHOUT_MEANING:
            names = ", ".join(sorted((*_KNOWN, *_TLS, *_WITHOUT_MEANING)))
            raise ConfigError(flag, name, f"is no option; there are {names}")
    return changes | ({"tls": _context(tls, flag)} if tls else {})


def producer_changes(given: Sequence[str], flag: str = "producer-opt") -> dict[str, Any]:
    """Keywords for a Producer; options that only a consumer has are accepted and left out."""
    changes = consumer_changes(given, flag)
    return {name: changes[name] for name in changes if name in _OF_PRODUCERS}


def _read(field: str, text: str) -> Any:
    """Raises ValueError."""
    kind = _KINDS[field]
    if field.endswith("_s"):
        is_ms = text.lstrip("-").isdecimal()
        return int(text) / 1000 if is_ms else parse_duration(text) / limits.SECOND
    if kind is bool:
        return _boolean(text)
    try:
        return kind(text)
    except ValueError:
        raise ValueError(_RULES[kind]) from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "1", "t", "false", "0", "f"):
        raise ValueError("must be true or false")
    return text.lower() in ("true", "1", "t")


def _context(tls: dict[str, str], flag: str) -> ssl.SSLContext | None:
    """None when the options say no TLS."""
    root, cert, key = (tls.get(name, "") for name in ("tls_root_ca_file", "tls_cert", "tls_key"))
    try:
        if not _boolean(tls.get("tls_v1", "false")):
            return None
        skips = _boolean(tls.get("tls_insecure_skip_verify", "false"))
        return tls_context(root, cert, key, skips)
    except (OSError, ValueError) as error:
        shown = ", ".join(f"{name},{value}" for name, value in sorted(tls.items()))
        raise ConfigError(flag, shown, f"cannot be used: {error}") from error
