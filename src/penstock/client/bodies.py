"""Bodies of messages: bytes as they are, text as UTF-8, anything else by the producer's serializer.

The serializer is JSON unless a producer is given another one: dicts, lists, dataclasses, msgspec's
structs, dates, UUIDs and decimals, and models that have a `model_dump_json`, as Pydantic's do. They
are read again as what the reader names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.errors import ConfigError

Serializer = Callable[[Any], bytes]


def to_json(value: Any) -> bytes:
    """Raises TypeError."""
    return msgspec.json.encode(value, enc_hook=_model)


def _model(value: Any) -> msgspec.Raw:
    dump = getattr(value, "model_dump_json", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return msgspec.Raw(dump().encode())


def from_json(data: bytes, type: Any) -> Any:
    """Raises msgspec.DecodeError, which is a ValueError."""
    return msgspec.json.decode(data, type=type, dec_hook=_validated)


def _validated(type: Any, value: Any) -> Any:
    """A model from its JSON: strict ones take a text for a date from JSON only."""
    validate = getattr(type, "model_validate_json", None)
    if validate is None:
        raise TypeError(f"{type!r} has no form in JSON")
    return validate(msgspec.json.encode(value))


def encode(body: object, serializer: Serializer) -> bytes:
    """Raises ConfigError."""
    if isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
    elif isinstance(body, str):
        data = _text(body)
    else:
        data = _serialized(body, serializer)
    if not data:
        raise ConfigError("body", body, "a message has at least one byte")
    return data


def _text(body: str) -> bytes:
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("body", body[:100], "no UTF-8 has half of a surrogate pair") from error


def _serialized(body: object, serializer: Serializer) -> bytes:
    if body is None:
        raise ConfigError("body", body, "a message has at least one byte")
    try:
        data = serializer(body)
    except Exception as error:
        raise ConfigError("body", type(body), f"cannot be serialized: {error}") from error
    if not isinstance(data, bytes):
        rule = f"bytes are what a serializer returns, not a {type(data).__name__}"
        raise ConfigError("serializer", serializer, rule)
    return data


def encode_all(bodies: Sequence[object], serializer: Serializer) -> Sequence[bytes]:
    """The bodies of one publish, at least one. Raises ConfigError."""
    check_several(bodies)
    if {*map(type, bodies)} == {bytes} and all(bodies):  # the usual ones, in a few passes of C
        return cast("Sequence[bytes]", bodies)
    data = [encode(body, serializer) for body in bodies]
    if not data:
        raise ConfigError("bodies", 0, "at least one, each of at least one byte")
    return data


def check_several(bodies: object) -> None:
    """A single body would be taken for several: a text for its characters. Raises ConfigError."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        rule = "is one body, and several are asked for: give a list"
        raise ConfigError("bodies", type(bodies), rule)
