"""Client libraries that people use, unchanged, each in a process of its own: pynsq and ansq on
Python, nsqjs on Node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from cases import each
from environments import kept_python
from nsqd.test_auth import AuthServer

from .certificates import Certificates
from .daemon import Daemon, shared_daemon
from .lookupd import Lookupd, eventually, nsqd
from .node import node_modules

HERE = Path(__file__).resolve().parent
LIBRARIES = ("pynsq", "ansq", "nsqjs")
END_S_MAX = 90
PUBLISHED = sorted(["one", "two", "three", "four", "later", *(f"window {n}" for n in range(100))])


class Child:
    """A client program; `with` makes sure that none is left."""

    def __init__(
        self,
        script: str,
        *arguments: str,
        out: IO[str] | int = subprocess.PIPE,
        err: IO[str] | int = subprocess.PIPE,  # read at the end: what fills it stops the program
    ) -> None:
        environment = dict(os.environ)
        if script.startswith("nsqjs"):
            environment["NODE_PATH"] = str(node_modules())
            command = ["node", str(HERE / f"{script}.js")]
        else:
            python = kept_python("pynsq") if script.startswith("pynsq") else sys.executable
            command = [python, str(HERE / f"{script}.py")]
        self.process = subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def lines(self) -> list[Any]:
        """What it printed until its orderly end."""
        try:
            out, err = self.process.communicate(timeout=END_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"it did not end:\n{out[-2000:]}\n{err[-4000:]}") from None
        assert self.process.returncode == 0, f"{out[-2000:]}\n{err[-4000:]}"
        return [json.loads(line) for line in out.splitlines()]


daemon = shared_daemon()


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def topic(library: str, request: pytest.FixtureRequest) -> str:
    return f"{library}.{request.function.__name__.removeprefix('test_')}"[:64]


def consumer(daemon: Daemon, library: str, topic: str, count: int, **options: Any) -> Child:
    options = {
        "channel": "chan",
        **options,
        "port": daemon.tcp_port,
        "topic": topic,
        "count": count,
    }
    return Child(f"{library}_consumer", json.dumps(options))


def publish(daemon: Daemon, topic: str, *bodies: str) -> None:
    with daemon.client() as client:
        client.mpub(topic, [body.encode() for body in bodies])


def deliveries(lines: list[Any]) -> list[tuple[str, int]]:
    return [(line["body"], line["attempts"]) for line in lines if "body" in line]


def wait_for_nothing_left(daemon: Daemon, topic: str, channel: str = "chan") -> None:
    """The consumer is gone: its FINs have been read, or will be within a moment."""

    def stats() -> dict[str, Any]:
        return daemon.channel_stats(topic, channel)

    names = ("depth", "in_flight_count", "deferred_count", "client_count")
    eventually(lambda: not any(map(stats().get, names)), END_S_MAX, stats)


def test_every_way_to_publish_reaches_two_channels(
    daemon: Daemon, library: str, topic: str
) -> None:
    started_s = time.monotonic()
    with (
        consumer(daemon, library, topic, len(PUBLISHED), channel="first", max_in_flight=200) as a,
        consumer(daemon, library, topic, len(PUBLISHED), channel="second", max_in_flight=10) as b,
    ):
        wait_for_consumers(daemon, topic, "first", "second")
        with Child(f"{library}_producer", str(daemon.tcp_port), topic) as producer:
            answers = producer.lines()[0]
        assert answers == ["OK"] * 103
        for lines in (a.lines(), b.lines()):
            found = deliveries(lines)
            assert sorted(body for body, _ in found) == PUBLISHED
            assert {attempts for _, attempts in found} == {1}
            later = next(line for line in lines if line.get("body") == "later")
            assert later["at"] - started_s >= 0.4
            if library == "ansq":
                assert lines[-1] == {"cls": "CLOSE_WAIT"}
    for channel in ("first", "second"):
        wait_for_nothing_left(daemon, topic, channel)


def wait_for_consumers(daemon: Daemon, topic: str, *channels: str) -> None:
    def found() -> dict[str, int]:
        rows = [row for row in daemon.stats()["topics"] if row["topic_name"] == topic]
        return {one["channel_name"]: one["client_count"] for row in rows for one in row["channels"]}

    eventually(lambda: all(map(found().get, channels)), END_S_MAX, found)


def test_messages_are_requeued_ignored_and_touched_and_heartbeats_answered(
    daemon: Daemon, library: str, topic: str
) -> None:
    bodies = ["requeue", "requeue later", "ignore", "touch", "finish"]
    with consumer(daemon, library, topic, 5, first="as it says", max_in_flight=5) as child:
        wait_for_consumers(daemon, topic, "chan")
        publish(daemon, topic, *bodies[:4])
        eventually(lambda: daemon.channel_stats(topic, "chan")["clients"][0]["finish_count"] == 4)
        stats = daemon.channel_stats(topic, "chan")
        assert (stats["requeue_count"], stats["timeout_count"]) == (2, 1)
        time.sleep(3.2)  # heartbeats are a second apart; two unanswered ones would end it
        publish(daemon, topic, "finish")
        lines = [line for line in child.lines() if "body" in line]
    found = {body: [one for one in lines if one["body"] == body] for body in bodies}
    assert {body: [one["attempts"] for one in found[body]] for body in bodies} == {
        "requeue": [1, 2], "requeue later": [1, 2], "ignore": [1, 2], "touch": [1], "finish": [1],
    }  # fmt: skip
    waited_s = {body: found[body][-1]["at"] - found[body][0]["at"] for body in bodies}
    assert waited_s["requeue later"] >= 0.99
    assert waited_s["ignore"] >= 1.0  # of two: it may have looked at its clock late
    assert found["finish"][0]["heartbeats"] >= 2
    wait_for_nothing_left(daemon, topic)


@pytest.mark.parametrize("library", ["pynsq", "nsqjs"], indirect=True)
def test_a_client_that_backs_off_is_left_alone_and_then_served(
    daemon: Daemon, library: str, topic: str
) -> None:
    """It requeues at once, but says RDY 0 first and asks for one message some time later."""
    publish(daemon, topic, "m")
    with consumer(daemon, library, topic, 1, first="requeue with backoff") as child:
        wait_for_consumers(daemon, topic, "chan")

        def has_backed_off() -> bool:
            stats = daemon.channel_stats(topic, "chan")
            ready = [client["ready_count"] for client in stats["clients"]]
            return (stats["requeue_count"], stats["depth"], ready) == (1, 1, [0])

        eventually(has_backed_off, END_S_MAX)
        assert deliveries(child.lines()) == [("m", 1), ("m", 2)]
    wait_for_nothing_left(daemon, topic)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lookupd, Daemon, Daemon]]:
    """A lookupd and two nsqds that it knows."""
    path = tmp_path_factory.mktemp("known")
    with (
        Lookupd(path / "lookupd") as lookupd,
        nsqd(path / "a", lookupd.address) as first,
        nsqd(path / "b", lookupd.address) as second,
    ):
        yield lookupd, first, second


def test_a_consumer_finds_its_nsqds_those_too_that_come_later(
    tmp_path: Path, known: tuple[Lookupd, Daemon, Daemon], library: str, topic: str
) -> None:
    lookupd, first, second = known
    for daemon in (first, second):
        publish(daemon, topic, f"from {daemon.tcp_port}")
    eventually(lambda: lookupd.knows(topic, first, second))
    url = f"http://127.0.0.1:{lookupd.http_port}"
    with consumer(first, library, topic, 3, lookupd=url, max_in_flight=6) as child:
        wait_for_consumers(first, topic, "chan")
        wait_for_consumers(second, topic, "chan")
        with nsqd(tmp_path / "c", lookupd.address) as third:
            eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 3)
            publish(third, topic, f"from {third.tcp_port}")
            found = {body for body, _ in deliveries(child.lines())}
            assert found == {f"from {one.tcp_port}" for one in (first, second, third)}


def test_rdy_bounds_what_a_consumer_holds(daemon: Daemon, library: str, topic: str) -> None:
    """It answers nothing, so it gets as many as it is ready for, and no more."""
    publish(daemon, topic, *(str(number) for number in range(50)))
    with consumer(daemon, library, topic, 50, first="hold", max_in_flight=7) as child:
        wait_for_consumers(daemon, topic, "chan")
        eventually(lambda: daemon.channel_stats(topic, "chan")["in_flight_count"] >= 7, END_S_MAX)
        time.sleep(0.3)
        stats = daemon.channel_stats(topic, "chan")
        assert (stats["in_flight_count"], stats["depth"]) == (7, 43)
        child.process.kill()


def test_pynsq_gathers_batches_until_it_is_starved(daemon: Daemon) -> None:
    """The way that pynsq's documentation shows to work in batches: keep messages until the reader
    says that it holds nearly all it may, 85 of 100. Messages trickle in one at a time here, so a
    daemon that waits for FINs before it fills the last quarter would wait for ever."""
    with consumer(daemon, "pynsq", "batches", 85, first="batch", max_in_flight=100) as child:
        wait_for_consumers(daemon, "batches", "chan")
        with daemon.client() as client:
            for number in range(99):
                client.pub("batches", b"%d" % number)
        assert len(deliveries(child.lines())) >= 85


# --- pynsq and nsqjs with a secret, in front of an auth server ---


SECRETS = {"pynsq": "auth_secret", "nsqjs": "authSecret"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("auth") / "data"
    with AuthServer() as server, Daemon(path, f"--auth-http-address={server.address}") as guarded:
        yield guarded


@pytest.mark.parametrize("library", ["pynsq", "nsqjs"])
def test_clients_with_the_secret_publish_and_consume(guarded: Daemon, library: str) -> None:
    topic = f"{library}.secret"
    options = {SECRETS[library]: "all"}
    count = len(PUBLISHED)
    with consumer(guarded, library, topic, count, max_in_flight=20, connection=options) as child:
        wait_for_consumers(guarded, topic, "chan")
        assert guarded.channel_stats(topic, "chan")["clients"][0]["authed"] is True
        arguments = (str(guarded.tcp_port), topic, json.dumps(options))
        with Child(f"{library}_producer", *arguments) as producer:
            assert producer.lines()[0] == ["OK"] * 103
        assert sorted(body for body, _ in deliveries(child.lines())) == PUBLISHED


def test_clients_without_the_secret_are_refused(guarded: Daemon) -> None:
    arguments = (str(guarded.tcp_port), "refused", json.dumps({"authSecret": "wrong"}))
    with Child("nsqjs_producer", *arguments) as child:
        _, err = child.process.communicate(timeout=90)
        assert child.process.returncode == 1
    assert "E_AUTH_FAILED AUTH failed" in err


# --- pynsq and nsqjs over TLS, snappy and deflate. (ansq has none of the three.) ---


WAYS = ["snappy", "deflate", "tls snappy", "tls deflate"]  # tls alone is below


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def daemon_upgraded(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("upgraded") / "data"
    with Daemon(path, *certificates.flags) as daemon_upgraded:
        yield daemon_upgraded


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
    with Daemon(path, *certificates.flags, *flags, "--tls-required=tcp-https") as daemon_upgraded:
        yield daemon_upgraded


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


def seen(daemon_upgraded: Daemon, topic: str) -> set[str]:
    """What the daemon says of its consumer's connection."""
    (row,) = daemon_upgraded.channel_stats(topic, "chan")["clients"]
    return {name for name in ("tls", "snappy", "deflate") if row[name]}


@each("way", WAYS)
@each("library", ["pynsq", "nsqjs"])
def test_every_way_to_publish_and_consume(
    daemon_upgraded: Daemon, certificates: Certificates, library: str, way: str
) -> None:
    topic = f"{library}.{way.replace(' ', '-')}"
    wanted = options(library, way, certificates)
    with consumer(
        daemon_upgraded, library, topic, len(PUBLISHED), max_in_flight=20, connection=wanted
    ) as child:
        wait_for_consumers(daemon_upgraded, topic, "chan")
        assert seen(daemon_upgraded, topic) == set(way.split())
        arguments = (str(daemon_upgraded.tcp_port), topic, json.dumps(wanted))
        with Child(f"{library}_producer", *arguments) as producer:
            assert producer.lines()[0] == ["OK"] * 103
        assert sorted(body for body, _ in deliveries(child.lines())) == PUBLISHED
    wait_for_nothing_left(daemon_upgraded, topic)


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
