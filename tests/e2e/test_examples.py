"""The programs in `examples/` run, against real daemons, and print what they should."""

import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from nsqd.authserver import AuthServer
from penstock.client import BlockingProducer

from .certificates import Certificates
from .daemon import Daemon, shared_daemon
from .lookupd import Lookupd, eventually, nsqd
from .ports import kept_port

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
END_S_MAX = 90


daemon = shared_daemon()


@pytest.fixture
def address(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


def command(name: str, *arguments: str) -> list[str]:
    # -u: a pipe would get the lines only when there are many, or the program ends.
    return [sys.executable, "-u", str(EXAMPLES / f"{name}.py"), *arguments]


def run(name: str, *arguments: str) -> list[str]:
    """The lines that an example prints."""
    done = subprocess.run(
        command(name, *arguments), capture_output=True, text=True, timeout=END_S_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def settled(daemon: Daemon, topic: str, channel: str) -> dict[str, Any]:
    """Stats of the channel, once nothing of it is in flight."""
    eventually(lambda: daemon.channel_stats(topic, channel)["in_flight_count"] == 0)
    return daemon.channel_stats(topic, channel)


def test_producer_and_consumer(address: str) -> None:
    assert run("producer", address, "plain") == ["published 1104"]
    lines = run("consumer", address, "plain", "c")
    assert len(lines) == 4
    assert lines[-1] == "consumed 1104"


def test_traced(address: str) -> None:
    first, more = run("traced", address, "traced", "42")
    assert re.fullmatch(r"message [0-9a-f]{16} at offset 0", first)
    assert more == "2 more from offset 1 on"


def test_ordered(daemon: Daemon, address: str) -> None:
    lines = run("ordered", f"127.0.0.1:{daemon.http_port}", address, "payments")
    assert lines == ["anna 1 2 3 4", "ben 1 2 3 4", "carl 1 2 3 4"]


def test_partitions(daemon: Daemon, address: str) -> None:
    lines = run("partitions", f"127.0.0.1:{daemon.http_port}", address, "devices")
    values = ["door 1 2 3", "lamp 1 2 3", "meter 1 2 3"]
    assert lines == [*values, "smoke, from partition 3"]


def test_headers(daemon: Daemon, address: str) -> None:
    lines = run("headers", f"127.0.0.1:{daemon.http_port}", address, "countries")
    assert lines == [
        "all: order-1 de, order-2 fr, order-3 de, order-4 it",
        "german: order-1 de, order-3 de",
    ]


def test_idempotent(daemon: Daemon, tmp_path: Path) -> None:
    arguments = (f"127.0.0.1:{daemon.http_port}", "once", str(tmp_path / "epoch"))
    for number in range(2):
        lines = run("idempotent", *arguments)
        assert lines == ["refused: MSG_TOO_BIG", f"epoch {number} published 1003"]
    assert daemon.topic_stats("once")["message_count"] == 2006


def test_handler(address: str) -> None:
    with BlockingProducer(address) as producer:
        producer.mpub("handled", [b"good", b"not now", b"poison", b"gone"])
    program = subprocess.Popen(
        command("handler", address, "handled", "c"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        lines = [program.stdout.readline().strip() for _ in range(4)]
        program.send_signal(signal.SIGTERM)
        rest, errors = program.communicate(timeout=END_S_MAX)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 0, errors
    assert sorted(lines) == [
        "done: good attempt 1",
        "done: not now attempt 2",
        "given up: gone attempt 1",
        "given up: poison attempt 2",
    ]
    assert rest.strip() == "finished 4"


def test_topics(address: str) -> None:
    *handled, measured = run("topics", address, "shop")
    assert sorted(handled) == ["order 17", "refund of 9.5"]
    assert measured == "2 messages, none slower than a second: True"


def test_taskiq_broker(daemon: Daemon, address: str) -> None:
    """With taskiq itself."""
    assert run("taskiq_broker", address, "tasks") == ["3", "7"]
    assert settled(daemon, "tasks", "workers")["depth"] == 0


def test_faststream_broker(daemon: Daemon, address: str) -> None:
    """With FastStream itself."""
    assert run("faststream_broker", address) == ["fs-invoices: anna pays 10.0, attempt 2"]
    for topic, channel, requeued in (("fs-orders", "billing", 0), ("fs-invoices", "mail", 1)):
        stats = settled(daemon, topic, channel)
        assert (stats["depth"], stats["requeue_count"]) == (0, requeued)


def order(port: int) -> tuple[int, dict[str, Any]]:
    """Status and document of an order that is posted to the service."""
    body = json.dumps({"number": 17, "total": 9.5}).encode()
    headers = {"Content-Type": "application/json"}
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/orders", body, headers)) as answer:
            return answer.status, json.load(answer)
    except HTTPError as answer:
        return answer.status, json.load(answer)


def test_fastapi_app(tmp_path: Path) -> None:
    """With FastAPI itself: only what nsqd has stored is accepted, and the end is in order."""
    web, tcp = kept_port(), kept_port()
    program = subprocess.Popen(
        command("fastapi_app", f"127.0.0.1:{tcp}", str(web)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        assert program.stderr is not None
        assert any("Uvicorn running" in line for line in program.stderr)
        status, refused = order(web)
        assert (status, "was not sent" in refused["detail"]) == (503, True)
        with Daemon(tmp_path / "data", f"--tcp-address=127.0.0.1:{tcp}") as daemon:
            eventually(lambda: order(web) == (202, {"number": 17, "total": 9.5}))
            assert program.stdout.readline() == "order 17: 9.5 billed, attempt 1\n"
            program.send_signal(signal.SIGINT)
            rest, errors = program.communicate(timeout=END_S_MAX)
            assert daemon.channel_stats("web-orders", "billing")["depth"] == 0
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 0, errors
    # Not always 1: what had no answer in time is posted again, and may have been stored.
    assert re.fullmatch(r"finished [1-9]\d*", rest.splitlines()[-1])


def test_blocking(address: str) -> None:
    assert run("blocking", address, "blocking", "c") == ["one", "two", "three"]


def test_discovery(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Lookupd(tmp_path / "lookupd"))
        daemon = stack.enter_context(nsqd(tmp_path / "data", lookupd.address))
        eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 1)
        where = f"127.0.0.1:{daemon.tcp_port}"
        lines = run("discovery", f"127.0.0.1:{lookupd.http_port}", "found", "c")
        assert lines == [f"published to {where}", f"from {where} one"]


def test_over_http_and_back(daemon: Daemon, address: str) -> None:
    http = f"--http=127.0.0.1:{daemon.http_port}"
    lines = run("publish_and_consume", f"--tcp={address}", http)
    assert lines[0] == "published: OK"
    assert len(lines) == 11


def test_secure(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "tls")
    with AuthServer() as server:
        flags = [*certificates.flags, "--tls-required", f"--auth-http-address={server.address}"]
        with Daemon(tmp_path / "data", *flags) as daemon:
            where = f"127.0.0.1:{daemon.tcp_port}"
            lines = run("secure", where, "secret", "c", str(certificates.authority), "all")
    assert lines == run("secure") == ["nobody else can read this", "refused: E_AUTH_FAILED"]


def test_every_example_is_run() -> None:
    tested = {"producer", "consumer", "handler", "blocking", "discovery", "secure"}
    tested |= {"idempotent", "publish_and_consume", "traced", "ordered", "partitions", "headers"}
    tested |= {"topics", "taskiq_broker", "faststream_broker", "fastapi_app"}
    tested.add("spark_sink")  # in tests/spark/test_sink.py
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested
