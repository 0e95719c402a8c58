"""Keys and headers through the utilities and the verbs for people, on real nsqds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from e2e.daemon import Daemon
from penstock.tools.envelopes import read_headers
from penstock.tools.main import main
from penstock.tools.nsq_to_http import extension
from penstock.tools.output import WrongUse

from .test_nsq_to_http import Server
from .utilities import Utility, ask, is_done, until

HEADERS = {"key": "k", "source": "shöp"}
MARKED = {"zan_test": True, "##trace_id": "7"}  # one is no text, the other has another answer


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("envelopes") / "data", "--durability=os") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, daemon: Daemon) -> str:
    name = str(request.function.__name__).removeprefix("test_")[:64]
    make(daemon, name)
    return name


def make(daemon: Daemon, name: str, extended: bool = True, partitions: int = 1) -> None:
    shape = f"partition_num={partitions}&extend={str(extended).lower()}"
    ask(daemon, f"/topic/create?topic={name}&{shape}", b"")
    ask(daemon, f"/channel/create?topic={name}&channel=c", b"")


def publish(
    daemon: Daemon, topic: str, body: bytes, headers: dict[str, Any], more: str = ""
) -> None:
    ask(daemon, f"/pub_ext?topic={topic}&ext={quote(json.dumps(headers))}{more}", body)


def tcp(daemon: Daemon) -> str:
    return f"--nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"


def http(daemon: Daemon) -> str:
    return f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"


def stored(daemon: Daemon, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    answer = json.loads(ask(daemon, f"/log/positions?topic={topic}"))
    end = answer["topics"][topic]["partitions"][str(partition)]["committed"]
    target = f"/message/get?topic={topic}&partition={partition}&offset="
    return [json.loads(ask(daemon, f"{target}{offset}")) for offset in range(end)]


def said(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(one["body"], one["headers"]) for one in messages]


# --- nsq_to_nsq ---


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("other") / "data", "--durability=os") as running:
        yield running


def forward(daemon: Daemon, other: Daemon, topic: str, *more: str) -> list[str]:
    to = f"--destination-nsqd-tcp-address=127.0.0.1:{other.tcp_port}"
    return [tcp(daemon), to, f"--topic={topic}", "--channel=c", *more]


def test_nsq_to_nsq_takes_them_along(daemon: Daemon, other: Daemon, tmp_path: Path) -> None:
    make(daemon, "along", partitions=3)
    make(other, "along", partitions=3)
    publish(daemon, "along", b"one", HEADERS, "&partition=2")
    publish(daemon, "along", b"two", MARKED, "&partition=1")
    command = forward(daemon, other, "along", "--keep-partition")
    with Utility("nsq_to_nsq", *command, cwd=tmp_path) as utility:
        until(partial(is_done, daemon, "along", "c"), "all finished")
        assert utility.end() == 0
    found = [said(stored(other, "along", number)) for number in range(3)]
    assert found == [[], [("two", MARKED)], [("one", HEADERS)]]


def test_nsq_to_nsq_refuses_to_lose_headers(daemon: Daemon, other: Daemon, tmp_path: Path) -> None:
    make(daemon, "kept")
    make(other, "kept", extended=False)
    publish(daemon, "kept", b"one", HEADERS)
    with Utility("nsq_to_nsq", *forward(daemon, other, "kept"), cwd=tmp_path) as utility:
        assert utility.wait() == 1
        assert "does not take the headers of messages to kept (E_EXT_NOT_SUPPORT)" in utility.err
    assert stored(other, "kept") == []
    command = forward(daemon, other, "kept", "--drop-headers")
    with Utility("nsq_to_nsq", *command, cwd=tmp_path) as utility:
        until(partial(is_done, daemon, "kept", "c"), "it came again, and went over")
        assert utility.end() == 0
        assert utility.err.count("are dropped from now on") == 1
    (message,) = stored(other, "kept")
    assert (message["body"], message["headers"], message["key_base64"]) == ("one", None, "aw==")


# --- what prints, and what stores ---


def test_nsq_tail_prints_them(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    publish(daemon, topic, b"one", HEADERS)
    ask(daemon, f"/pub?topic={topic}", b"two")
    flags = [f"--topic={topic}", "--channel=c", "-n", "2", tcp(daemon)]
    with Utility("nsq_tail", *flags, "--print-headers", "--print-topic", cwd=tmp_path) as tail:
        assert tail.wait() == 0
        head = f"{topic} | "
        assert tail.out.decode() == (
            f'{head}{{"key":"k","source":"shöp"}} | one\n{head}{{}} | two\n'
        )


def test_nsq_to_file_writes_objects(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    make(daemon, "keyed", extended=False, partitions=3)
    publish(daemon, topic, b"one", HEADERS)
    ask(daemon, "/pub?topic=keyed&key=k", b"\xff")
    flags = [f"--topic={topic}", "--topic=keyed", "--channel=c", tcp(daemon), "--gzip=false"]
    flags += ["--output-format=json", f"--output-dir={tmp_path}", "--sync-interval=100ms"]
    with Utility("nsq_to_file", *flags, cwd=tmp_path) as utility:
        until(partial(is_done, daemon, topic, "c"), "the first is finished")
        until(partial(is_done, daemon, "keyed", "c"), "the second, too")
        assert utility.end() == 0
    rows = [json.loads(path.read_text("utf-8")) for path in tmp_path.glob("*.log")]
    found = {row["topic"]: row for row in rows}
    names = ("partition", "key", "headers", "body")
    assert [found[topic][name] for name in names] == [0, "k", HEADERS, "one"]
    assert [found["keyed"].get(name) for name in names] == [2, "k", {}, None]
    assert found["keyed"]["body_base64"] == "/w=="
    assert found["keyed"]["attempts"] == 1


def test_nsq_to_http_sends_them_on(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    publish(daemon, topic, b"one", {**HEADERS, "##trace_id": "7", "a b": " x\r\ny%z w "})
    server = Server()
    try:
        flags = [f"--topic={topic}", "--channel=c", f"--post={server.url}/in", tcp(daemon)]
        with Utility("nsq_to_http", *flags, "--forward-headers", cwd=tmp_path) as utility:
            until(partial(is_done, daemon, topic, "c"), "finished")
            assert utility.end() == 0
    finally:
        server.end()
    assert server.seen == [b"one"]
    (headers,) = server.headers
    assert {name: headers[name] for name in headers if name.startswith("X-Nsqext-")} == {
        "X-Nsqext-key": "k",
        "X-Nsqext-source": "sh%C3%B6p",
        "X-Nsqext-##trace_id": "7",
        "X-Nsqext-a%20b": "%20x%0D%0Ay%25z%20w%20",
    }


def test_a_blank_inside_a_header_stays() -> None:
    assert extension({"a": "red car", "zan_test": True}) == {
        "X-Nsqext-a": "red car",
        "X-Nsqext-zan_test": "true",
    }


# --- what publishes ---


def test_to_nsq_gives_each_record_headers(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    flags = [f"--topic={topic}", tcp(daemon), "--key=k", "--header=source=shöp"]
    with Utility("to_nsq", *flags, cwd=tmp_path, stdin=True) as utility:
        assert utility.process.stdin is not None
        utility.process.stdin.write(b"one\ntwo\n")
        utility.process.stdin.close()
        assert (utility.wait(), utility.err) == (0, "")
    assert said(stored(daemon, topic)) == [("one", HEADERS), ("two", HEADERS)]


def test_pub_publishes_one_with_headers(daemon: Daemon, topic: str) -> None:
    more = ["--header", "source=shöp", "--key", "k", http(daemon)]
    assert main(["pub", topic, "one", *more]) == 0
    assert said(stored(daemon, topic)) == [("one", HEADERS)]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (["a"], "--header 'a': must be NAME=VALUE"),
        (["=b"], "--header '=b': must be NAME=VALUE"),
        (["a=b", "a=c"], "a is there already"),
        (["key=l"], "key is there already"),
        ([f"a={'b' * 70_000}"], "65535 bytes of JSON at most"),
    ],
)
def test_headers_that_are_refused(given: list[str], rule: str) -> None:
    with pytest.raises(WrongUse, match=rule):
        read_headers(given, "k")


# --- what shows ---


def test_peek_shows_them(daemon: Daemon, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(daemon, "bare", extended=False)
    publish(daemon, topic, b"one", HEADERS)
    ask(daemon, "/pub?topic=bare&key=k", b"two")
    for name in (topic, "bare"):
        assert main(["topic", "peek", name, http(daemon)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(' {"key":"k","source":"shöp"} one')
    assert second.endswith(' {"key":"k"} two')


@pytest.mark.parametrize("form", ["text", "json"])
def test_tail_shows_them(daemon: Daemon, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"tailed-{form}"
    make(daemon, topic)

    def later() -> None:
        until(lambda: b"#ephemeral" in ask(daemon, f"/stats?topic={topic}"), "a channel")
        publish(daemon, topic, b"one", HEADERS)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        more = ["--json"] if form == "json" else []
        assert main(["tail", topic, "--count=1", *more, tcp(daemon)]) == 0
    finally:
        thread.join()
    out = capsys.readouterr().out
    if form == "text":
        assert out.endswith(' {"key":"k","source":"shöp"} one\n')
    else:
        row = json.loads(out)
        assert (row["partition"], row["key"], row["headers"]) == (0, "k", HEADERS)
