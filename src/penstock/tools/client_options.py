"""`--consumer-opt` and `--producer-opt`: options by the names that NSQ's own client library uses.

Each is `name,value`, or a bare name for `true`. Durations are Go's, a bare number is milliseconds.
A name that means nothing here, but does in that library, is accepted; any other is an error.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock import limits
from penstock.durations import parse_duration
from penstock.errors import ConfigError

T = TypeVar("T")
Changes = dict[str, Any]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "1", "t", "false", "0", "f"):
        raise ValueError("must be true or false")
    return text.lower() in ("true", "1", "t")


def _whole(text: str) -> int:
    return _or_rule(int, text, "must be a whole number")


def _number(text: str) -> float:
    return _or_rule(float, text, "must be a number")


def _or_rule(read: Callable[[str], T], text: str, rule: str) -> T:
    try:
        return read(text)
    except ValueError:
        raise ValueError(rule) from None


def _seconds(text: str) -> float:
    if text.lstrip("-").isdecimal():
        return int(text) / 1000
    return parse_duration(text) / limits.SECOND


Reader = Callable[[str], Any]

# Their name: ours, and how the value is read.
_BOTH: dict[str, tuple[str, Reader]] = {
    "client_id": ("client_id", str),
    "hostname": ("hostname", str),
    "user_agent": ("user_agent", str),
    "heartbeat_interval": ("heartbeat_s", _seconds),
    "snappy": ("snappy", _boolean),
    "deflate": ("deflate", _boolean),
    "deflate_level": ("deflate_level", _whole),
    "auth_secret": ("auth_secret", str),
    "topology_region": ("topology_region", str),
    "topology_zone": ("topology_zone", str),
    "dial_timeout": ("connect_timeout_s", _seconds),
    "lookupd_poll_interval": ("lookup_interval_s", _seconds),
    "lookupd_poll_jitter": ("lookup_jitter", _number),
    "lookupd_poll_timeout": ("lookup_timeout_s", _seconds),
}
_CONSUMER: dict[str, tuple[str, Reader]] = {
    "max_in_flight": ("max_in_flight", _whole),
    "max_attempts": ("max_attempts", _whole),
    "msg_timeout": ("message_timeout_s", _seconds),
    "sample_rate": ("sample_rate", _whole),
    "output_buffer_size": ("output_buffer_bytes", _whole),
    "output_buffer_timeout": ("output_buffer_timeout_s", _seconds),
    "default_requeue_delay": ("requeue_delay_s", _seconds),
    "max_requeue_delay": ("requeue_delay_max_s", _seconds),
    "backoff_multiplier": ("backoff_s", _seconds),
    "max_backoff_duration": ("backoff_max_s", _seconds),
    "low_rdy_idle_timeout": ("low_rdy_idle_s", _seconds),
    "low_rdy_timeout": ("low_rdy_hold_s", _seconds),
}
_WITHOUT_MEANING = frozenset({  # TLS 1.2 is the floor
    "read_timeout", "write_timeout", "local_addr", "rdy_redistribute_interval", "backoff_strategy",
    "tls_min_version", "lookupd_authorization",
})  # fmt: skip
_TLS = frozenset({"tls_v1", "tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify"})


def consumer_changes(given: Sequence[str], flag: str = "consumer-opt") -> Changes:
    """Keywords for a Consumer. Raises ConfigError."""
    changes: Changes = {}
    tls: dict[str, str] = {}
    known = _BOTH | _CONSUMER
    for text in given:
        name, comma, value = text.partition(",")
        name = name.strip().replace("-", "_")
        value = value if comma else "true"
        if name in _TLS:
            tls[name] = value
        elif name in known:
            ours, read = known[name]
            try:
                changes[ours] = read(value)
            except ValueError as error:
                shown = name if name == "auth_secret" else text
                raise ConfigError(flag, shown, str(error)) from error
        elif name not in _WITHOUT_MEANING:
            names = ", ".join(sorted({*known, *_TLS, *_WITHOUT_MEANING}))
            raise ConfigError(flag, name, f"is no option; there are {names}")
    return changes | ({"tls": _context(tls, flag)} if tls else {})


def producer_changes(given: Sequence[str], flag: str = "producer-opt") -> Changes:
    """Keywords for a Producer; options that only a consumer has are accepted and left out."""
    ours = {name for name, _ in _BOTH.values()} | {"tls"}
    return {name: one for name, one in consumer_changes(given, flag).items() if name in ours}


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


def tls_context(
    root_ca_file: str = "", cert: str = "", key: str = "", skip_verify: bool = False
) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) when a file cannot be used."""
    context = ssl.create_default_context(cafile=root_ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert or key:
        context.load_cert_chain(cert, key or None, _no_password)
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key is encrypted; passphrases are not supported")
