"""Options are checked when they are given, and secrets are not shown."""

from __future__ import annotations

from typing import Any

import pytest

from cases import each
from penstock.client.options import (
    ConsumerOptions,
    ProducerOptions,
    address_list,
    settle_options,
    split_address,
)
from penstock.errors import ConfigError


@each(
    "changes",
    [
        {"heartbeat_s": 0.5},
        {"heartbeat_s": 61},
        {"max_in_flight": 0},
        {"sample_rate": -1},
        {"backoff_s": float("nan")},
        {"snappy": True, "deflate": True},
        {"max_inflight": 1},
        {"retry": True},
    ],
)
def test_what_is_refused_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        settle_options(ConsumerOptions(), changes)
    assert raised.value.name in changes


def test_changes_on_top_of_options() -> None:
    options = settle_options(ProducerOptions(retry=True), {"publish_timeout_s": 1})
    assert (options.retry, options.publish_timeout_s) == (True, 1)


def test_secrets_are_not_shown() -> None:
    options = ConsumerOptions(auth_secret="hush", lookup_headers={"Authorization": "hush"})
    assert "hush" not in repr(options)


@each(
    ("address", "parts"),
    [
        ("127.0.0.1:4150", ("127.0.0.1", 4150)),
        ("[::1]:4150", ("::1", 4150)),
        ("nsqd.example:1", ("nsqd.example", 1)),
        ("/run/nsqd.sock", ("/run/nsqd.sock", 0)),
        ("./nsqd.sock", ("./nsqd.sock", 0)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
    assert address_list(address) == address_list([address, address]) == [address]


@each("address", ["", "host", ":4150", "host:", "host:0", "host:65536", "h:x"])
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        address_list([address])
