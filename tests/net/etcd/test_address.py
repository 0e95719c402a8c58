"""How a cluster is named on the command line."""

from __future__ import annotations

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.net.etcd.address import Address, parse_address


@each(
    ("text", "address"),
    [
        ("etcd://h1", Address(("h1:2379",))),
        ("etcd://h1:2380,h2,10.0.0.3:1", Address(("h1:2380", "h2:2379", "10.0.0.3:1"))),
        ("etcd://h1/west", Address(("h1:2379",), "west")),
        ("etcd://h1/", Address(("h1:2379",))),
        ("etcds://penstock@h1/west", Address(("h1:2379",), "west", "penstock", True)),
        ("etcd://[::1]:2379,[fe80::1]", Address(("[::1]:2379", "[fe80::1]:2379"))),
    ],
)
def test_an_address(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_the_keys_of_a_cluster_begin_with_its_name() -> None:
    assert parse_address("etcd://h1/west").prefix == "/penstock/west/"


@each(
    ("text", "rule"),
    [
        ("h1:2379", "etcd://"),
        ("http://h1", "etcd://"),
        ("etcd://", "etcd://"),
        ("etcd://h1,", "'' is no host"),
        ("etcd://h1:0", "'h1:0' is no host"),
        ("etcd://h1:70000", "'h1:70000' is no host"),
        ("etcd://h 1", "'h 1' is no host"),
        ("etcd://h1/a b", "1 to 64 of"),
        ("etcd://" + ",".join(["h"] * 17), "16 endpoints at most"),
    ],
)
def test_what_is_no_address(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match="cluster: ") as caught:
        parse_address(text)
    assert rule in str(caught.value)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address("etcd://root:hunter2@h1")
    assert "hunter2" not in str(caught.value)
