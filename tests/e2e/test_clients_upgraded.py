"""Client libraries that people use, over TLS, snappy, deflate, and TLS with compression."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from .certificates import Certificates
from .daemon import Daemon
from .test_clients import (
    PUBLISHED,
    Child,
    consumer,
    deliveries,
    wait_for_consumers,
    wait_for_nothing_left,
)

FORMS = ("tls", "snappy", "deflate", "tls+snappy", "tls+deflate")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("clients") / "data", *certificates.flags) as daemon:
        yield daemon


def options_of(library: str, form: str, certificates: Certificates) -> dict[str, Any]:
    options: dict[str, Any] = {name: True for name in form.split("+") if name != "tls"}
    if "tls" in form and library == "pynsq":
        authority = {"ca_certs": str(certificates.authority), "cert_reqs": ssl.CERT_REQUIRED}
        options |= {"tls_v1": True, "tls_options": authority}
    elif "tls" in form:
        options |= {"tls": True, "tlsVerification": False}
    return options


@pytest.mark.parametrize(
    ("library", "form"),
    [(library, form) for library in ("pynsq", "nsqjs") for form in FORMS],
)
def test_it_publishes_and_consumes(
    daemon: Daemon, certificates: Certificates, library: str, form: str
) -> None:
    topic = f"{library}-{form.replace('+', '-')}"
    options = options_of(library, form, certificates)
    count = len(PUBLISHED)
    with consumer(daemon, library, topic, count, max_in_flight=50, connection=options) as child:
        wait_for_consumers(daemon, topic, "chan")
        (seen,) = daemon.channel_stats(topic, "chan")["clients"]
        assert [name for name in ("tls", "snappy", "deflate") if seen[name]] == form.split("+")
        with Child(
            f"{library}_producer", str(daemon.tcp_port), topic, json.dumps(options)
        ) as producer:
            assert producer.lines()[0] == ["OK"] * 103
        found = deliveries(child.lines())
    assert sorted(body for body, _ in found) == PUBLISHED
    wait_for_nothing_left(daemon, topic)


def test_ansq_asks_for_nothing_and_is_refused_where_tls_is_required(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> None:
    """It has none of these features; it must not be left waiting."""
    path = tmp_path_factory.mktemp("locked") / "data"
    with Daemon(path, *certificates.flags, "--tls-required=tcp-https") as daemon:
        child = Child("ansq_producer", str(daemon.tcp_port), "locked")
        with child:
            _, err = child.process.communicate(timeout=30)
            assert child.process.returncode != 0
        assert "ConnectionClosedError" in err
        assert daemon.stats()["topics"] == []
