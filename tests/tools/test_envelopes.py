"""Keys and headers through the utilities and the verbs for people, on real nsqds."""

import asyncio
import gzip
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from e2e.daemon import Daemon
from penstock import limits
from penstock.errors import ServerRefused
from penstock.tools.archive_file import ArchiveFile, Layout
from penstock.tools.envelopes import read_headers
from penstock.tools.main import main
from penstock.tools.nsq_to_http import extension
from penstock.tools.nsq_to_nsq import Carrier, Unfit
from penstock.tools.output import WrongUse

from .test_nsq_to_http import Server
from .test_nsq_to_nsq import to
from .test_to_nsq import run as to_nsq
from .utilities import Clock, Utility, finish, http, is_done, tailed, tcp, until

HEADERS = {"key": "k", "source": "shöp"}
EXTENDED = "&extend=true"
MARKED = {"zan_test": True, "##trace_id": "7"}  # one is no text, the other has another answer


@pytest.fixture
def topic(request: pytest.FixtureRequest, daemon: Daemon) -> str:
    name = str(request.function.__name__).removeprefix("test_")[:64]
    daemon.make(name, "c", shape=EXTENDED)
    return name


def publish(
    daemon: Daemon, topic: str, body: bytes, headers: dict[str, Any], more: str = ""
) -> None:
    daemon.post(f"/pub_ext?topic={topic}&ext={quote(json.dumps(headers))}{more}", body)


def stored(daemon: Daemon, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    answer = json.loads(daemon.http("GET", f"/log/positions?topic={topic}")[1])
    end = answer["topics"][topic]["partitions"][str(partition)]["committed"]
    target = f"/message/get?topic={topic}&partition={partition}&offset="
    return [json.loads(daemon.http("GET", f"{target}{offset}")[1]) for offset in range(end)]


def contents(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(one["body"], one["headers"]) for one in messages]


# --- nsq_to_nsq ---


def test_nsq_to_nsq_takes_them_along(daemons: list[Daemon], tmp_path: Path) -> None:
    daemon, other = daemons
    for one in daemons:
        one.make("along", "c", shape=f"{EXTENDED}&partition_num=3")
    publish(daemon, "along", b"one", HEADERS, "&partition=2")
    publish(daemon, "along", b"two", MARKED, "&partition=1")
    finish("nsq_to_nsq", daemon, "along", to(other), "--keep-partition", cwd=tmp_path)
    found = [contents(stored(other, "along", number)) for number in range(3)]
    assert found == [[], [("two", MARKED)], [("one", HEADERS)]]


# --- what prints, and what stores ---


def test_nsq_tail_prints_them(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    publish(daemon, topic, b"one", HEADERS)
    daemon.post(f"/pub?topic={topic}", b"two")
    flags = [f"--topic={topic}", "--channel=c", "-n", "2", tcp(daemon)]
    with Utility("nsq_tail", *flags, "--print-headers", "--print-topic", cwd=tmp_path) as tail:
        assert tail.wait() == 0
        head = f"{topic} | "
        assert tail.out.decode() == (
            f'{head}{{"key":"k","source":"shöp"}} | one\n{head}{{}} | two\n'
        )


def test_nsq_to_file_writes_objects(daemon: Daemon, topic: str, tmp_path: Path) -> None:
    daemon.make("keyed", "c", shape="&partition_num=3")
    publish(daemon, topic, b"one", HEADERS)
    daemon.post("/pub?topic=keyed&key=k", b"\xff")
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
    with Server() as server:
        flags = [f"--post={server.url}/in", "--forward-headers"]
        finish("nsq_to_http", daemon, topic, *flags, cwd=tmp_path)
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
    assert to_nsq(tmp_path, b"one\ntwo\n", *flags) == (0, "")
    assert contents(stored(daemon, topic)) == [("one", HEADERS), ("two", HEADERS)]


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
    daemon.make("bare", "c")
    publish(daemon, topic, b"one", HEADERS)
    daemon.post("/pub?topic=bare&key=k", b"two")
    for name in (topic, "bare"):
        assert main(["topic", "peek", name, http(daemon)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(' {"key":"k","source":"shöp"} one')
    assert second.endswith(' {"key":"k"} two')


def test_tail_shows_them(daemon: Daemon, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    def one() -> None:
        publish(daemon, topic, b"one", HEADERS)

    assert tailed(daemon, topic, one, "--count=1") == 0
    assert capsys.readouterr().out.endswith(' {"key":"k","source":"shöp"} one\n')
    until(lambda: b"#ephemeral" not in daemon.http("GET", f"/stats?topic={topic}")[1], "its end")
    assert tailed(daemon, topic, one, "--count=1", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["partition"], row["key"], row["headers"]) == (0, "k", HEADERS)


# --- what a destination takes of a message's headers, learnt from its refusals ---


HEADERS_CARRIER = {"key": "k", "color": "red", "##trace_id": "7"}
NOT_EXTENDED = b"E_EXT_NOT_SUPPORT PUB_EXT topic is not extended"
NOT_KNOWN = b"E_INVALID invalid command PUB_EXT"


def brought(headers: dict[str, Any], key: str | None = None, partition: int | None = 2) -> Any:
    """A message as from a consumer that asks for an envelope."""
    return SimpleNamespace(
        headers=dict(headers), key=key, partition=partition, address="source:4150"
    )


class Taker:
    """A producer whose nsqd refuses headers, or partitions."""

    def __init__(self, refusals: list[bytes] | None = None, partitions: int = 9) -> None:
        self.published: list[tuple[bytes, dict[str, Any]]] = []
        self.tries = 0
        self._refusals = refusals or []
        self._partitions = partitions

    async def pub(self, topic: str, body: bytes, **to: Any) -> None:
        self.tries += 1
        if (to.get("partition") or 0) >= self._partitions:
            raise ServerRefused("b:1", b"E_BAD_PARTITION PUB partition 2 is not there")
        headers = to.get("headers") or {}
        for refusal in self._refusals:
            if headers and (refusal == NOT_KNOWN or "color" in headers):
                raise ServerRefused("b:1", refusal)
        self.published.append((body, to))


def carry(taker: Taker, *messages: Any, drop: bool = False, keep: bool = False) -> None:
    async def story() -> None:
        producer: Any = taker
        carrier = Carrier(producer, "b:1", "t", drop_headers=drop, keep_partition=keep)
        for message in messages:
            await carrier.publish(message, b"body")

    asyncio.run(story())


def test_headers_and_keys_go_along() -> None:
    taker = Taker()
    carry(taker, brought(HEADERS_CARRIER), brought({}, "k"), brought({}))
    assert taker.published == [
        (b"body", {"headers": HEADERS_CARRIER}),
        (b"body", {"headers": {"key": "k"}}),
        (b"body", {}),
    ]


def test_a_partition_that_the_destination_does_not_have() -> None:
    with pytest.raises(Unfit, match=r"E_BAD_PARTITION.*topic t needs as many there"):
        carry(Taker(partitions=2), brought({}), keep=True)


def test_a_partition_that_the_source_does_not_tell() -> None:
    with pytest.raises(Unfit, match="source:4150 does not tell the partition"):
        carry(Taker(), brought({}, partition=None), keep=True)


@pytest.mark.parametrize("refusal", [NOT_EXTENDED, NOT_KNOWN])
def test_headers_are_not_dropped_unasked(refusal: bytes) -> None:
    taker = Taker([refusal])
    with pytest.raises(Unfit, match=r"b:1 does not take the headers .* or give --drop-headers"):
        carry(taker, brought(HEADERS_CARRIER))
    assert taker.published == []


@pytest.mark.parametrize(
    ("refusal", "left"),
    [(NOT_EXTENDED, {"headers": {"key": "k", "##trace_id": "7"}}), (NOT_KNOWN, {})],
)
def test_dropped_headers_are_logged_once(
    refusal: bytes, left: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    taker = Taker([refusal])
    carry(taker, *(brought(HEADERS_CARRIER) for _ in range(3)), drop=True)
    assert taker.published == [(b"body", left)] * 3
    assert taker.tries == 4
    (record,) = caplog.records
    assert "are dropped from now on" in record.getMessage()


def test_another_refusal_is_not_about_headers() -> None:
    class Full(Taker):
        async def pub(self, topic: str, body: bytes, **to: Any) -> None:
            raise ServerRefused("b:1", b"E_PUB_FAILED disk full")

    with pytest.raises(ServerRefused, match="disk full"):
        carry(Full(), brought(HEADERS_CARRIER), drop=True)


S = limits.SECOND


def archive(clock: Clock, out: Path, **settings: object) -> ArchiveFile:
    work = settings.pop("work_dir", out)
    layout = Layout(out, work, host="box", **settings)  # type: ignore[arg-type]
    return ArchiveFile("orders", layout, clock)


def names(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


def test_a_message_is_a_line(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path)
    assert file.write(b"one") is True  # the first of its file
    file.sync()
    assert file.write(b"two") is False
    file.close()
    assert names(tmp_path) == ["orders.box.2026-03-04_05.log"]
    assert (tmp_path / "orders.box.2026-03-04_05.log").read_bytes() == b"one\ntwo\n"


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path) -> None:
    """As a full disk or a kill leaves it."""
    path = tmp_path / "orders.box.2026-03-04_05.log"
    path.write_bytes(b"one\ntw")
    file = archive(Clock(), tmp_path)
    file.write(b"three")
    file.close()
    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_each_sync_ends_a_gzip_member(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path, gzip_level=6)
    for body in (b"one", b"two"):
        file.write(body)
        file.sync()
        assert file.path is not None
        assert gzip.decompress(file.path.read_bytes()).endswith(body + b"\n")
    file.close()
    assert names(tmp_path) == ["orders.box-000000.2026-03-04_05.log.gz"]


def test_a_gzip_file_without_messages_is_one(tmp_path: Path) -> None:
    clock = Clock()
    file = archive(clock, tmp_path, gzip_level=6)
    file.write(b"x")
    clock.now_ns += 3600 * S
    file.rotate()
    file.close()
    _, empty = names(tmp_path)
    data = (tmp_path / empty).read_bytes()
    assert data
    assert gzip.decompress(data) == b""


@pytest.mark.parametrize(("skip_empty", "files"), [(False, 2), (True, 1)])
def test_an_hour_without_messages(tmp_path: Path, skip_empty: bool, files: int) -> None:
    clock = Clock()
    file = archive(clock, tmp_path, skip_empty=skip_empty)
    file.write(b"x")
    clock.now_ns += 3600 * S
    assert file.due
    file.rotate()
    file.close()
    assert len(names(tmp_path)) == files


def test_a_file_ends_by_size(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path, rotate_bytes=10)
    for _ in range(4):
        if file.due:
            file.rotate()
        file.write(b"1234")
    file.close()
    sizes = [(tmp_path / name).stat().st_size for name in names(tmp_path)]
    assert sorted(sizes) == [10, 10]


def test_a_file_ends_by_time(tmp_path: Path) -> None:
    clock = Clock()
    file = archive(clock, tmp_path, rotate_ns=60 * S)
    file.write(b"a")
    clock.now_ns += 60 * S - 1
    assert not file.due
    clock.now_ns += 1
    assert file.due
    file.rotate()
    file.close()
    assert len(names(tmp_path)) == 2


def test_a_complete_file_is_moved_and_overwrites_nothing(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    clock = Clock()
    file = archive(clock, out, work_dir=work)
    file.write(b"mine")
    assert names(out) == []
    out.mkdir(parents=True)
    (out / "orders.box-000000.2026-03-04_05.log").write_bytes(b"another's")
    file.close()
    assert names(work) == []
    assert (out / "orders.box-000000.2026-03-04_05.log").read_bytes() == b"another's"
    assert (out / "orders.box-000001.2026-03-04_05.log").read_bytes() == b"mine\n"


def test_a_disk_without_hard_links_gets_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    real = os.link

    def link(source: Path, target: Path) -> None:
        if work in source.parents:
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr("penstock.tools.archive_file.os.link", link)
    file = archive(Clock(), out, work_dir=work)
    file.write(b"x")
    file.close()
    assert (names(out), names(work)) == (["orders.box-000000.2026-03-04_05.log"], [])


def test_directories_in_names_are_made_and_files_are_private(tmp_path: Path) -> None:
    file = archive(
        Clock(), tmp_path, filename_format="<TOPIC>/<DATETIME>.log", datetime_format="%Y/%m"
    )
    file.write(b"x")
    assert file.path is not None
    assert file.path.stat().st_mode & 0o007 == 0
    file.close()
    assert names(tmp_path) == ["orders/2026/03.log"]
