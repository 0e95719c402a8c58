"""pynsq and nsqjs over TLS, snappy and deflate. (ansq has none of the three.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cases import each

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

WAYS = ["tls", "snappy", "deflate", "tls snappy", "tls deflate"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("upgraded") / "data"
    with Daemon(path, *certificates.flags) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def strict_daemon(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Daemon]:
    """It wants TLS, and a certificate that its authority has signed."""
    path = tmp_path_factory.mktemp("strict") / "data"
    flags = (
        "--tls-client-auth-policy=require-verify",
        f"--tls-root-ca-file={certificates.authority}",
    )
    with Daemon(path, *certificates.flags, *flags, "--tls-required=tcp-https") as daemon:
        yield daemon


def options(library: str, way: str, certificates: Certificates, name: str = "") -> dict[str, Any]:
    """What the library wants to be told."""
    parts = way.split()
    found: dict[str, Any] = {part: True for part in parts if part != "tls"}
    if "tls" not in parts:
        return found
    files = [str(path) for path in certificates.client_files(name)] if name else []
    if library == "pynsq":
        tls = {"ca_certs": str(certificates.authority)}
        tls |= dict(zip(("certfile", "keyfile"), files, strict=False))
        return found | {"tls_v1": True, "tls_options": tls}
    tls = {"ca": str(certificates.authority)} | dict(zip(("cert", "key"), files, strict=False))
    return found | {"tls": True} | tls


def seen(daemon: Daemon, topic: str) -> set[str]:
    """What the daemon says of its consumer's connection."""
    (row,) = daemon.channel_stats(topic, "chan")["clients"]
    return {name for name in ("tls", "snappy", "deflate") if row[name]}


@each("way", WAYS)
@each("library", ["pynsq", "nsqjs"])
def test_every_way_to_publish_and_consume(
    daemon: Daemon, certificates: Certificates, library: str, way: str
) -> None:
    topic = f"{library}.{way.replace(' ', '-')}"
    wanted = options(library, way, certificates)
    with consumer(
        daemon, library, topic, len(PUBLISHED), max_in_flight=20, connection=wanted
    ) as child:
        wait_for_consumers(daemon, topic, "chan")
        assert seen(daemon, topic) == set(way.split())
        arguments = (str(daemon.tcp_port), topic, json.dumps(wanted))
        with Child(f"{library}_producer", *arguments) as producer:
            assert producer.lines()[0] == ["OK"] * 103
        assert sorted(body for body, _ in deliveries(child.lines())) == PUBLISHED
    wait_for_nothing_left(daemon, topic)


@pytest.mark.parametrize("library", ["pynsq", "nsqjs"])
def test_a_client_with_a_certificate_is_let_in(
    strict_daemon: Daemon, certificates: Certificates, library: str
) -> None:
    topic = f"{library}.certified"
    wanted = options(library, "tls", certificates, "client")
    arguments = (str(strict_daemon.tcp_port), topic, json.dumps(wanted))
    with Child(f"{library}_producer", *arguments) as producer:
        assert producer.lines()[0] == ["OK"] * 103
    with consumer(strict_daemon, library, topic, len(PUBLISHED), connection=wanted) as child:
        assert sorted(body for body, _ in deliveries(child.lines())) == PUBLISHED


def test_ansq_asks_for_nothing_and_is_refused_where_tls_is_required(strict_daemon: Daemon) -> None:
    """It has none of these features; it must not be left waiting."""
    with Child("ansq_producer", str(strict_daemon.tcp_port), "locked") as child:
        _, err = child.process.communicate(timeout=90)
        assert child.process.returncode != 0
    assert "ConnectionClosedError" in err
    assert "locked" not in [row["topic_name"] for row in strict_daemon.stats()["topics"]]
