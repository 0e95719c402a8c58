"""Publishes that say into which partition they go, or carry a key or headers.

`PUB t 3` is for a partition. A key and headers are a JSON object of strings in front of the body
(`PUB_EXT`), of which the member `key` is the key: messages with the same key are in one partition,
in the order of their publishes. Headers beside the key need an extended topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

from penstock import limits
from penstock.client import framing
from penstock.client.traced import checked_id, mpub_trace, pub_trace
from penstock.errors import ConfigError
from penstock.ids.unique import KEY, UniqueIds

_LENGTH_BYTES = 2  # of the headers
_KEY = "key"
_TRACE_ID = "##trace_id"
_MAY_BE_BOOLEAN = "zan_test"  # marks the traffic of a load test


Headers = Mapping[str, str | bool]  # a boolean only for `zan_test`, as in Youzan's NSQ


class Address(NamedTuple):
    partition: int | None = None
    key: str | None = None
    headers: Headers | None = None


class To(TypedDict, total=False):
    """An address as keywords of `pub` and `mpub`."""

    partition: int | None
    key: str | None
    headers: Headers | None


def pub(
    topic: bytes, body: bytes, trace_id: int | None, to: Address, ids: UniqueIds | None = None
) -> bytes:
    """The whole command. `ids`: of a header of its own, where the caller has set none. Raises
    ConfigError."""
    place = place_of(topic, to)
    headers = _identified(headers_of(to), ids)
    if headers is None and trace_id is None:
        return framing.sized(b"PUB %b\n" % place, body)
    if headers is None:
        return pub_trace(place, body, trace_id or 0)
    if trace_id is not None:
        headers = {**headers, _TRACE_ID: str(checked_id(trace_id))}
    return framing.sized(b"PUB_EXT %b\n" % place, encode_headers(headers) + body)


def mpub(
    topic: bytes,
    bodies: Sequence[bytes],
    trace_ids: int | Sequence[int] | None,
    to: Address,
    ids: UniqueIds | None = None,
) -> bytes:
    """The same for several, all with this key and these headers."""
    place = place_of(topic, to)
    headers = headers_of(to)
    if ids is not None and trace_ids is None:
        fronts = (encode_headers(_identified(headers, ids) or {}) for _ in bodies)
        packed = [front + body for front, body in zip(fronts, bodies, strict=True)]
        return framing.mpub(place, packed, b"MPUB_EXT")
    if headers is None and trace_ids is None:
        return framing.mpub(place, bodies)
    if headers is None:
        return mpub_trace(place, bodies, trace_ids or 0)
    if trace_ids is not None:
        rule = "several messages have a trace id, or a key and headers"
        raise ConfigError("trace_id", trace_ids, rule)
    front = encode_headers(headers)
    return framing.mpub(place, [front + body for body in bodies], b"MPUB_EXT")


def _identified(headers: Headers | None, ids: UniqueIds | None) -> Headers | None:
    """With a unique id. The user's own wins, an empty one too, as in RocketMQ."""
    if ids is None or (headers is not None and KEY in headers):
        return headers
    return {**(headers or {}), KEY: ids.next()}


def place_of(topic: bytes, to: Address) -> bytes:
    """The topic and, where one is named, the partition, as they stand in a command."""
    if to.partition is None:
        return topic
    if to.key is not None:
        raise ConfigError("partition", to.partition, "a publish names a key or a partition")
    return b"%b %d" % (topic, checked_partition(to.partition))


def checked_partition(partition: int) -> int:
    if not 0 <= partition < limits.PARTITIONS_MAX:
        raise ConfigError("partition", partition, f"0 to {limits.PARTITIONS_MAX - 1}")
    return partition


def headers_of(to: Address) -> Headers | None:
    """All of them, the key included; None where there are none."""
    if to.key is None:
        return to.headers
    if to.key != (to.headers or {}).get(_KEY, to.key):
        raise ConfigError("key", to.key, "headers name another one")
    return {**(to.headers or {}), _KEY: to.key}


def encode_headers(headers: Headers) -> bytes:
    """Their length and their JSON. Raises ConfigError."""
    for name, value in headers.items():
        may_be = (str, bool) if name == _MAY_BE_BOOLEAN else str
        if not isinstance(name, str) or not isinstance(value, may_be):
            raise ConfigError("headers", {name: value}, "names and values are strings")
    text = json.dumps(headers, separators=(",", ":"), ensure_ascii=False)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("headers", text[:100], "no UTF-8 has half of a surrogate pair") from error
    if len(data) > limits.HEADERS_BYTES_MAX:
        raise ConfigError("headers", len(data), f"{limits.HEADERS_BYTES_MAX} bytes of JSON at most")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
