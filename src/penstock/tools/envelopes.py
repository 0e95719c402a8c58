"""The parts of a message beside its body: headers, key, partition.

A key is a member of the headers where a message has any. On a topic without headers it stands
alone; here it is then the one header `key`, which is how it is published, too.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client import Message
from penstock.client.publishing import encode_headers
from penstock.errors import ConfigError
from penstock.tools.output import WrongUse

KEY = "key"


def carried(message: Message) -> dict[str, Any]:
    """The headers, including the key; from a consumer that asks for an envelope."""
    headers = message.headers
    if message.key is not None:
        headers.setdefault(KEY, message.key)
    return headers


def as_text(headers: Mapping[str, Any]) -> str:
    """One line, in as few characters as JSON allows."""
    return json.dumps(headers, separators=(",", ":"), ensure_ascii=False)


def as_json(message: Message) -> dict[str, Any]:
    """The body as text where it is UTF-8, else as base64."""
    key = message.key  # it may be any bytes, and what is printed is UTF-8
    if key is not None:
        key = key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    row: dict[str, Any] = {
        "id": message.id, "timestamp": message.timestamp_ns, "attempts": message.attempts,
        "node": message.address, "partition": message.partition, "key": key,
        "headers": message.headers,
    }  # fmt: skip
    try:
        return {**row, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**row, "body_base64": base64.b64encode(message.body).decode()}


def read_headers(given: Sequence[str], key: str | None) -> dict[str, str]:
    """`--header NAME=VALUE`, each name once, and `--key`. Raises WrongUse."""
    headers = {} if key is None else {KEY: key}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUse(f"--header {text!r}: must be NAME=VALUE")
        if name in headers:
            raise WrongUse(f"--header {text!r}: {name} is there already")
        headers[name] = value
    try:
        encode_headers(headers)
    except ConfigError as error:
        raise WrongUse(f"--header: {error.rule}") from error
    return headers
