"""nsqd's HTTP API, row by row of `http.toml`, against a real process."""

import http.client
import json
import re
import socket
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from cases import each
from e2e.daemon import Daemon

from .script import HERE, encode

TIMEOUT_S = 40
CASES = tomllib.loads((HERE / "http.toml").read_text("utf-8"))["case"]
ASKS = [case for case in CASES if "ask" in case]
RAWS = [case for case in CASES if "raw" in case]
KEYS = {"ask", "body", "status", "answer", "code", "like", "type", "allow", "location", "closes"}
NSQ_HEADER = "nsq; version=1.0"
TYPES = {
    "json": "application/json; charset=utf-8",
    "text": "text/plain; charset=utf-8",
    "none": None,
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ("--durability=os", "--max-msg-size=100", "--max-body-size=500", "--max-req-timeout=1s")
    with Daemon(tmp_path_factory.mktemp("http") / "data", *flags) as daemon:
        for target in ("/topic/create?topic=known", "/channel/create?topic=known&channel=c"):
            assert ask(daemon, "POST", target)[0].status == 200
        yield daemon


def ask(
    daemon: Daemon, method: str, target: str, body: bytes = b""
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_rows_have_known_keys_and_say_what_comes() -> None:
    for case in ASKS:
        assert not set(case) - KEYS - {"plain"}, case
        keys = [key for key in ("answer", "code", "like", "location") if key in case]
        assert len(keys) == 1, case


@each("case", ASKS)
def test_answer(daemon: Daemon, case: dict[str, Any]) -> None:
    method, target = case["ask"].split(" ", 1)
    response, body = ask(daemon, method, target, encode(case.get("body", ""), {}))
    assert response.status == case["status"]
    if "code" in case:
        message = json.loads(body)
        assert message["message"] == case["code"]
        assert set(message) <= {"message", "reason"}
    elif "like" in case:
        assert re.fullmatch(case["like"].encode(), body), body
    else:
        assert body == case.get("answer", "").encode()
    kind = case.get("type", "json" if "code" in case else "none")
    assert response.getheader("Content-Type") == TYPES[kind]
    assert response.getheader("X-Nsq-Content-Type") == (None if "plain" in case else NSQ_HEADER)
    assert response.getheader("Allow") == case.get("allow")
    assert response.getheader("Location") == case.get("location")
    assert (response.getheader("Connection") == "close") == case.get("closes", False)


@each("case", RAWS)
def test_raw_bytes(daemon: Daemon, case: dict[str, Any]) -> None:
    with socket.create_connection(("127.0.0.1", daemon.http_port), TIMEOUT_S) as sock:
        sock.sendall(encode(case["raw"], {}))
        received = b""
        while data := sock.recv(65536):
            received += data
    assert re.fullmatch(case["hears"].encode(), received), received


def test_a_profile_is_made_while_the_daemon_serves_on(daemon: Daemon) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/debug/pprof/profile?seconds=3")
        while (busy := ask(daemon, "GET", "/debug/pprof/heap"))[0].status == 200:
            pass  # it has not begun
        assert ask(daemon, "GET", "/ping")[1] == b"OK"
        assert (busy[0].status, busy[1]) == (503, b'{"message":"PROFILING"}')
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    samples = re.match(r"(\d+) samples in 3 s\n\ninnermost:\n", text)
    assert samples is not None
    assert int(samples[1]) > 10
    assert "penstock" in text


def test_debug_lines_come_and_go_with_the_level(daemon: Daemon) -> None:
    ask(daemon, "PUT", "/config/log_level", b"debug")
    ask(daemon, "POST", "/pub?topic=seen", b"x")
    ask(daemon, "PUT", "/config/log_level", b"info")
    ask(daemon, "POST", "/pub?topic=unseen", b"x")
    lines = [line for line in daemon.stderr().splitlines() if "/pub?topic=" in line]
    assert any("DEBUG: 200 POST /pub?topic=seen" in line for line in lines)
    assert not any("topic=unseen" in line for line in lines)
