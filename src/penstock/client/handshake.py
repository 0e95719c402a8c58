"""The greeting, without I/O: the options in IDENTIFY, and the effect of the answer.

After the answer nsqd changes the form of the connection step by step, each confirmed by an OK that
already has the new form: first TLS, then snappy or deflate. `negotiate` gives these steps in order.
TLS that was asked for and is not offered ends the connection, because going on in the clear would
be weaker than what the user wants. Compression is a matter of speed only: without it we go on.
"""

import json
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock import limits
from penstock.client.options import ConnectionOptions, ConsumerOptions
from penstock.errors import ConnectFailed

MS_PER_S: Final = 1000
_NUMBER_MAX: Final = 2**53  # what JSON can hold beyond it is neither a count nor a time


class Upgrade(Enum):
    TLS = "tls"
    SNAPPY = "snappy"
    DEFLATE = "deflate"


@dataclass(frozen=True, slots=True)
class Negotiated:
    rdy_count_max: int = limits.RDY_COUNT_MAX
    message_timeout_s: float = limits.MESSAGE_TIMEOUT_NS / limits.SECOND
    message_timeout_max_s: float = limits.MESSAGE_TIMEOUT_MAX_NS / limits.SECOND
    deflate_level: int = 6
    auth_required: bool = False
    envelope: bool = False  # NSQ's own does not know it: plain frames come then
    upgrades: tuple[Upgrade, ...] = ()


def identify(options: ConnectionOptions) -> bytes:
    hostname = options.hostname or socket.gethostname()
    asked: dict[str, Any] = {
        "client_id": options.client_id or hostname.partition(".")[0],
        "hostname": hostname,
        "user_agent": options.user_agent,
        "feature_negotiation": True,
        "heartbeat_interval": _milliseconds(options.heartbeat_s),
        "tls_v1": bool(options.tls),
        "snappy": options.snappy,
        "deflate": options.deflate,
        "deflate_level": options.deflate_level,
        "topology_region": options.topology_region,
        "topology_zone": options.topology_zone,
    }
    if isinstance(options, ConsumerOptions):
        asked["sample_rate"] = options.sample_rate
        asked["msg_timeout"] = _milliseconds(options.message_timeout_s)
        asked["output_buffer_size"] = options.output_buffer_bytes
        asked["output_buffer_timeout"] = _milliseconds(options.output_buffer_timeout_s)
        if options.headers:
            asked["extend_support"] = True
        if options.envelope:
            asked["envelope"] = True
        if options.desired_tag:
            asked["desired_tag"] = options.desired_tag
        if options.ext_filter is not None:
            asked["ext_filter"] = options.ext_filter
    return json.dumps(asked).encode()


def _milliseconds(seconds: float) -> int:
    return -1 if seconds < 0 else round(seconds * MS_PER_S)


def negotiate(address: str, options: ConnectionOptions, answer: bytes) -> Negotiated:
    """Read the answer to IDENTIFY. Raises ConnectFailed for an answer that the options do not
    allow."""
    granted = _document(address, answer)
    upgrades = []
    if options.tls:
        if granted.get("tls_v1") is not True:
            raise ConnectFailed(address, "TLS was asked for, and nsqd does not offer it")
        upgrades.append(Upgrade.TLS)
    if options.snappy and granted.get("snappy") is True:
        upgrades.append(Upgrade.SNAPPY)
    elif options.deflate and granted.get("deflate") is True:
        upgrades.append(Upgrade.DEFLATE)
    auth_required = granted.get("auth_required") is True
    if auth_required and not options.auth_secret:
        raise ConnectFailed(address, "nsqd requires AUTH, and no auth_secret was given")
    usual = Negotiated()
    timeout_s = _number(granted, "msg_timeout", usual.message_timeout_s * MS_PER_S) / MS_PER_S
    timeout_max = _number(granted, "max_msg_timeout", usual.message_timeout_max_s * MS_PER_S)
    return Negotiated(
        rdy_count_max=max(int(_number(granted, "max_rdy_count", usual.rdy_count_max)), 1),
        message_timeout_s=timeout_s,
        message_timeout_max_s=timeout_max / MS_PER_S,
        deflate_level=int(_number(granted, "deflate_level", options.deflate_level)),
        auth_required=auth_required,
        envelope=granted.get("envelope") is True,
        upgrades=tuple(upgrades),
    )


def _document(address: str, answer: bytes) -> dict[str, Any]:
    if answer == b"OK":  # an nsqd older than feature negotiation: it grants nothing
        return {}
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ConnectFailed(address, f"IDENTIFY was answered by {answer[:100]!r}")
    return document


def _number(granted: dict[str, Any], key: str, usual: float) -> float:
    value = granted.get(key)
    return value if isinstance(value, int | float) and 0 < value <= _NUMBER_MAX else usual
