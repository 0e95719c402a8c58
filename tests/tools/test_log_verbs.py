"""`penstock log dump` and `penstock log verify`, as an operator calls them."""

import json
from pathlib import Path

import pytest

from e2e.daemon import Daemon
from penstock.kernel import encode_batch
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog
from penstock.log.seal import seal
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Owner, Stage
from penstock.spark.brokerapi import BrokerApi
from penstock.tools.main import main
from penstock.trace.events import Event, Kind, encode

from .utilities import Run, as_json

NOW_NS = 1_790_000_000 * 10**9
FIRST_ID = 0x18A26F9AC7A69000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two topics: five batches of two messages, and one with a key."""
    for topic, batches in (("orders", 5), ("other", 1)):
        log = PartitionLog.create(OsDisk(), tmp_path / "topics" / topic / "0")
        for n in range(batches):
            bodies = [b"%s %d" % (topic.encode(), 2 * n + i) for i in range(2)]
            sections: dict[int, dict[int, int | bytes]] | None = (
                {64: {1: b"a key"}} if topic == "other" else None
            )
            base_id = FIRST_ID + 2 * n
            data = encode_batch(bodies, 2 * n, base_id, NOW_NS, log.synced_end, sections=sections)
            log.write([data], len(data), 2 * n, 2, base_id, base_id + 1, NOW_NS)
        log.close()
    (tmp_path / "node.json").write_bytes(seal(b'{"version": 1}'))
    return tmp_path


def segment(directory: Path) -> Path:
    return directory / "topics" / "orders" / "0" / f"{0:020d}.log"


def test_dump_shows_messages(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(directory), "--topic", "orders", "--bodies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[3].split() == [
        "3",
        "18a26f9ac7a69003",
        "2026-09-21T14:13:20.000000Z",
        "8",
        "b'orders",
        "3'",
    ]


def test_trace_events_are_shown_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A body that holds none is shown as it is."""
    event = Event(Kind.SENT, 9, "orders", "mail", 0, 7, 0xABC, 1, "c2")
    log = PartitionLog.create(OsDisk(), tmp_path / "topics" / "_trace" / "0")
    data = encode_batch([encode([event]), b"no events"], 0, FIRST_ID, NOW_NS, log.synced_end)
    log.write([data], len(data), 0, 2, FIRST_ID, FIRST_ID + 1, NOW_NS)
    log.close()
    (tmp_path / "node.json").write_bytes(seal(b'{"version": 1}'))
    assert main(["log", "dump", str(tmp_path), "--bodies", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["events"][0] == event._asdict() | {"kind": "sent", "message_id": f"{0xABC:016x}"}
    assert second["body"] == "no events"
    assert main(["log", "dump", str(tmp_path), "--bodies"]) == 0
    text = capsys.readouterr().out
    assert "kind=sent  time_ns=9  topic=orders  channel=mail" in text
    assert "b'no events'" in text


def test_dump_from_an_offset_and_so_many(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = ["dump", str(segment(directory)), "--from-offset", "3", "--count", "4", "--json"]
    assert main(["log", *verb, "--bodies"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["body"] for row in rows] == [f"orders {n}" for n in (3, 4, 5, 6)]


def test_verify_names_the_damage(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(segment(directory).read_bytes())
    content[content.index(b"orders 4")] ^= 1
    segment(directory).write_bytes(content)
    assert main(["log", "verify", str(directory)]) == 1
    out = capsys.readouterr().out
    assert f"DAMAGED  {segment(directory)} at" in out
    assert "(offsets 4 to 5)" in out
    assert main(["log", "verify", str(directory), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["sound"]
    (finding,) = report["findings"]
    assert (finding["from_offset"], finding["to_offset"]) == (4, 6)
    assert main(["log", "verify", str(directory), "--topic", "other"]) == 0


def test_repair_lists_asks_and_gives_up(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(directory)
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    assert main(["log", "verify", str(directory)]) == 1
    capsys.readouterr()
    assert main(["log", "repair", str(directory)]) == 1  # nobody is here to ask
    output = capsys.readouterr()
    assert "CORRUPT  orders/0: offsets 0 to 1 (2 messages)" in output.out
    assert output.err == "penstock log: give up 2 messages: give --yes (stdin is not a terminal)\n"
    assert main(["log", "repair", str(directory), "--json", "--yes"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["from_offset"], row["to_offset"]) for row in document["lost"]] == [(0, 2)]
    (copy,) = document["copies"]
    assert Path(copy).read_bytes() == bytes(data)
    assert main(["log", "verify", str(directory)]) == 0
    assert "given up" in capsys.readouterr().out
    assert main(["log", "repair", str(directory), "--yes"]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_repair_wants_the_whole_directory_and_no_daemon(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "repair", str(directory / "topics" / "orders"), "--yes"]) == 2
    assert "give the data directory, and --topic for one topic" in capsys.readouterr().err
    lock = OsDisk().lock(str(directory / "penstock.lock"))
    try:
        assert main(["log", "repair", str(directory), "--yes"]) == 1
    finally:
        lock.release()
    assert "failed to lock data-path" in capsys.readouterr().err


# --- `penstock stage` against a real daemon ---


def test_stages_are_listed_and_discarded(daemon: Daemon, run: Run) -> None:
    with BrokerApi(f"http://127.0.0.1:{daemon.http_port}") as api:
        for number in range(3):
            name, owner = f"x-{number}", Owner("nightly", number // 2, "first")
            api.ask(calls.stage(Stage("orders", 0, name), encode_batch([b"a"], 0, 0, 0), owner))
    out = run("stage", "list")[1]
    assert "3 stages" in out
    assert [line.split()[:4] for line in out.splitlines() if "nightly" in line] == [
        ["nightly", "0,", "1", "3"]
    ]
    assert run("stage", "abort", "nightly")[0] == 1  # nobody is there to ask
    output = run("stage", "abort", "nightly", "--version=1", "--yes")[1]
    assert "1 stages of nightly given up" in output
    (answer,) = as_json(run("stage", "abort", "nightly", "--yes", "--json"))["nodes"].values()
    assert answer == {"aborted": 2}
