"""IDENTIFY: the options of a client, the granted ones, and the answer.

The body is a JSON object (or `null`). Unknown keys are ignored, known ones match in any letter
case, and a value of the wrong type makes the whole body unreadable: a fraction is no integer, a
string is no number. Values are then checked in a fixed order, and the first bad one is named in
the error: heartbeat interval, output buffer timeout, output buffer size, sample rate, message
timeout; after NSQ's own, the tag and the filter that Youzan's has. For most of them 0 means "keep
what I have" and -1 "switch it off". `envelope` is ours: such a consumer gets the partition with
each message, and its headers or key, whatever the topic has.

A client that sets `feature_negotiation` is answered with a JSON object, keys in NSQ's order; any
other is answered `OK`. TLS and compression are granted only when the daemon offers them, which is
what `Offer` says; the client learns from the answer, and goes on in the clear.
"""

import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

from penstock import limits
from penstock.wire.compression import DeflateDecoder, DeflateEncoder, SnappyDecoder, SnappyEncoder
from penstock.wire.errors import Fault, WireFault
from penstock.wire.extfilter import ExtFilter, Pairs, parse_filter
from penstock.wire.names import quote

MS = limits.MS
_TAG = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.TAG_BYTES_MAX}}}")
DEFLATE_LEVEL_DEFAULT = 6


@dataclass(frozen=True, slots=True)
class Request:
    """The body as sent; a field that was not there has its zero value."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    heartbeat_interval: int = 0
    output_buffer_timeout: int = 0
    output_buffer_size: int = 0
    tls_v1: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = 0
    sample_rate: int = 0
    msg_timeout: int = 0
    topology_region: str = ""
    topology_zone: str = ""
    desired_tag: str = ""
    extend_support: bool = False
    envelope: bool = False
    ext_filter: Pairs = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one connection, by default. Zero heartbeat: off. Zero output timeout: no
    timed flush."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    heartbeat_ns: int = limits.HEARTBEAT_NS
    output_bytes: int = limits.OUTPUT_BUFFER_BYTES
    output_timeout_ns: int = limits.OUTPUT_BUFFER_TIMEOUT_NS
    sample_rate: int = 0
    message_timeout_ns: int = limits.MESSAGE_TIMEOUT_NS
    deflate_level: int = DEFLATE_LEVEL_DEFAULT
    topology_region: str = ""
    topology_zone: str = ""
    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    desired_tag: str = ""
    extend_support: bool = False
    envelope: bool = False
    ext_filter: ExtFilter | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """The daemon's limits, and its description of itself."""

    version: str
    rdy_count_max: int = limits.RDY_COUNT_MAX
    heartbeat_max_ns: int = limits.HEARTBEAT_MAX_NS
    output_timeout_min_ns: int = 25 * MS
    output_timeout_max_ns: int = 30 * limits.SECOND
    output_bytes_max: int = limits.OUTPUT_BUFFER_BYTES_MAX
    message_timeout_max_ns: int = limits.MESSAGE_TIMEOUT_MAX_NS
    deflate_level_max: int = 6
    topology_region: str = ""
    topology_zone: str = ""
    auth_required: bool = False
    tls: bool = False
    snappy: bool = False
    deflate: bool = False


_TYPES: dict[str, type[Any]] = {
    one.name: type(one.default) for one in fields(Request) if one.name != "ext_filter"
}
_BITS = {"sample_rate": 32}  # other numbers have 64


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as sent: the last one that matches wins."""


def decode_request(body: bytes) -> Request:
    """Raises WireFault(IDENTIFY_JSON)."""
    try:
        document = json.loads(
            body.decode("utf-8", "replace"),
            object_pairs_hook=_Pairs,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise WireFault(Fault.IDENTIFY_JSON) from error
    if document is None:
        return Request()
    if not isinstance(document, _Pairs):
        raise WireFault(Fault.IDENTIFY_JSON)
    values: dict[str, Any] = {}
    for key, value in document:
        name = key.casefold()
        if name == "ext_filter" and value is not None:
            if not isinstance(value, _Pairs):
                raise WireFault(Fault.IDENTIFY_JSON)
            values[name] = value
        elif name in _TYPES and value is not None:
            values[name] = _checked(name, value)
    return Request(**values)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _checked(name: str, value: Any) -> Any:
    if type(value) is not _TYPES[name]:
        raise WireFault(Fault.IDENTIFY_JSON)
    if isinstance(value, str):  # half a surrogate pair has no UTF-8
        if len(value) > limits.IDENTIFY_TEXT_CHARS_MAX:
            raise WireFault(Fault.IDENTIFY_VALUE, b"length of " + name.encode(), len(value))
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    bound = 1 << _BITS.get(name, 64) - 1
    if not -bound <= value < bound:
        raise WireFault(Fault.IDENTIFY_JSON)
    return value


def negotiate(request: Request, current: Settings, offer: Offer) -> Settings:
    """The settings that hold from now on. Raises WireFault for the first value out of range."""
    heartbeat_ns = _within(
        b"heartbeat interval", request.heartbeat_interval, 1000, offer.heartbeat_max_ns // MS,
        kept=current.heartbeat_ns, off=0,
    )  # fmt: skip
    output_timeout_ns = _within(
        b"output buffer timeout", request.output_buffer_timeout, offer.output_timeout_min_ns // MS,
        offer.output_timeout_max_ns // MS, kept=current.output_timeout_ns, off=0,
    )  # fmt: skip
    output_bytes = _within(
        b"output buffer size", request.output_buffer_size, 64, offer.output_bytes_max,
        kept=current.output_bytes, off=1, unit=1,
    )  # fmt: skip
    if request.output_buffer_size == -1:
        output_timeout_ns = 0
    if not 0 <= request.sample_rate <= 99:
        raise WireFault(Fault.IDENTIFY_VALUE, b"sample rate", request.sample_rate)
    message_timeout_ns = _within(
        b"msg timeout", request.msg_timeout, 1000, offer.message_timeout_max_ns // MS,
        kept=current.message_timeout_ns,
    )  # fmt: skip
    negotiates = request.feature_negotiation
    snappy = negotiates and request.snappy and offer.snappy
    deflate = negotiates and request.deflate and offer.deflate
    if snappy and deflate:
        raise WireFault(Fault.COMPRESSION_TWICE)
    wanted_level = request.deflate_level if request.deflate_level > 0 else DEFLATE_LEVEL_DEFAULT
    return replace(
        current,
        client_id=request.client_id,
        hostname=request.hostname,
        user_agent=request.user_agent,
        heartbeat_ns=heartbeat_ns,
        output_bytes=output_bytes,
        output_timeout_ns=output_timeout_ns,
        sample_rate=request.sample_rate,
        message_timeout_ns=message_timeout_ns,
        deflate_level=min(wanted_level, offer.deflate_level_max),
        topology_region=request.topology_region,
        topology_zone=request.topology_zone,
        desired_tag=_desired_tag(request.desired_tag),
        extend_support=request.extend_support,
        envelope=negotiates and request.envelope,
        ext_filter=parse_filter(request.ext_filter),
        tls=negotiates and request.tls_v1 and offer.tls,
        snappy=snappy,
        deflate=deflate,
    )


def _within(
    name: bytes, value: int, least: int, most: int, *, kept: int, off: int | None = None,
    unit: int = MS,
) -> int:  # fmt: skip
    """0 keeps the present value, and -1 is `off`, where that is allowed."""
    if value == 0:
        return kept
    if value == -1 and off is not None:
        return off
    if least <= value <= most:
        return value * unit
    raise WireFault(Fault.IDENTIFY_VALUE, name, value)


def _desired_tag(tag: str) -> str:
    if tag and _TAG.fullmatch(tag) is None:
        raise WireFault(Fault.BAD_TAG, quote(tag.encode("utf-8", "replace")))
    return tag


def encode_response(settings: Settings, offer: Offer) -> bytes:
    """The answer to a client with `feature_negotiation`."""
    answer = {
        "max_rdy_count": offer.rdy_count_max,
        "version": offer.version,
        "max_msg_timeout": offer.message_timeout_max_ns // MS,
        "msg_timeout": settings.message_timeout_ns // MS,
        "tls_v1": settings.tls,
        "deflate": settings.deflate,
        "deflate_level": settings.deflate_level,
        "max_deflate_level": offer.deflate_level_max,
        "snappy": settings.snappy,
        "sample_rate": settings.sample_rate,
        "auth_required": offer.auth_required,
        "output_buffer_size": settings.output_bytes,
        "output_buffer_timeout": settings.output_timeout_ns // MS,
        "topology_region": offer.topology_region,
        "topology_zone": offer.topology_zone,
    }
    if settings.desired_tag:
        answer["desired_tag"] = settings.desired_tag
    if settings.envelope:
        answer["envelope"] = True
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()


Encoder = SnappyEncoder | DeflateEncoder
Decoder = SnappyDecoder | DeflateDecoder


def compression(settings: Settings) -> tuple[Encoder, Decoder] | None:
    """The streams that both sides go over to, if any. The two directions know nothing of one
    another, so client and server call this alike."""
    if settings.snappy:
        return SnappyEncoder(), SnappyDecoder()
    if settings.deflate:
        return DeflateEncoder(settings.deflate_level), DeflateDecoder()
    return None
