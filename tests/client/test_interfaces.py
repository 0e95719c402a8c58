"""This host's interfaces, as the system lists them."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

import pytest

from penstock.client import unique
from penstock.client.interfaces import interface_addresses


def test_the_loopback_interface_is_there() -> None:
    assert IPv4Address("127.0.0.1") in list(interface_addresses())


def test_every_address_is_one_that_can_be_bound() -> None:
    found = [one for one in interface_addresses() if not one.is_link_local]
    assert found
    for address in found:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    monkeypatch.setattr(socket, "gethostbyname", asked)
    assert set(interface_addresses()) <= set(unique.own_addresses())


def test_without_a_route_the_interfaces_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique, "_FAR", ())
    assert list(unique.own_addresses()) == list(interface_addresses())


def test_a_system_that_cannot_list_them_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(12, "getaddrs failed")

    monkeypatch.setattr(unique, "_FAR", ())
    monkeypatch.setattr(unique, "interface_addresses", fail)
    assert list(unique.own_addresses()) == []
    assert "the interfaces of this host cannot be listed" in caplog.text
