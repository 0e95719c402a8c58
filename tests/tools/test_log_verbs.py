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
from penstock.trace.events import Event, Kind, encode

from .utilities import Run, as_json, out_of

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


def test_dump_shows_messages(directory: Path, penstock: Run) -> None:
    code, out, _ = penstock("log", "dump", directory, "--topic", "orders", "--bodies")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 10)
    assert lines[3].split() == [
        "3", "18a26f9ac7a69003", "2026-09-21T14:13:20.000000Z", "8", "b'orders", "3'",
    ]  # fmt: skip


def test_trace_events_are_shown_as_such(tmp_path: Path, penstock: Run) -> None:
    """A body that holds none is shown as it is."""
    event = Event(Kind.SENT, 9, "orders", "mail", 0, 7, 0xABC, 1, "c2")
    log = PartitionLog.create(OsDisk(), tmp_path / "topics" / "_trace" / "0")
    data = encode_batch([encode([event]), b"no events"], 0, FIRST_ID, NOW_NS, log.synced_end)
    log.write([data], len(data), 0, 2, FIRST_ID, FIRST_ID + 1, NOW_NS)
    log.close()
    (tmp_path / "node.json").write_bytes(seal(b'{"version": 1}'))
    dump = "log", "dump", tmp_path, "--bodies"
    first, second = map(json.loads, penstock(*dump, "--json")[1].splitlines())
    assert first["events"][0] == event._asdict() | {"kind": "sent", "message_id": f"{0xABC:016x}"}
    assert second["body"] == "no events"
    text = penstock(*dump)[1]
    assert "kind=sent  time_ns=9  topic=orders  channel=mail" in text
    assert "b'no events'" in text


def test_dump_from_an_offset_and_so_many(directory: Path, penstock: Run) -> None:
    some = "--from-offset", "3", "--count", "4"
    out = penstock("log", "dump", segment(directory), *some, "--json", "--bodies")[1]
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["body"] for row in rows] == [f"orders {n}" for n in (3, 4, 5, 6)]


def test_verify_names_the_damage(directory: Path, penstock: Run) -> None:
    content = bytearray(segment(directory).read_bytes())
    content[content.index(b"orders 4")] ^= 1
    segment(directory).write_bytes(content)
    code, out, _ = penstock("log", "verify", directory)
    assert (code, f"DAMAGED  {segment(directory)} at" in out) == (1, True)
    assert "(offsets 4 to 5)" in out
    code, out, _ = penstock("log", "verify", directory, "--json")
    report = json.loads(out)
    assert (code, report["sound"]) == (1, False)
    (finding,) = report["findings"]
    assert (finding["from_offset"], finding["to_offset"]) == (4, 6)
    assert penstock("log", "verify", directory, "--topic", "other")[0] == 0


def test_repair_lists_asks_and_gives_up(directory: Path, penstock: Run) -> None:
    path = segment(directory)
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    assert penstock("log", "verify", directory)[0] == 1
    code, out, err = penstock("log", "repair", directory)  # nobody is here to ask
    assert (code, "CORRUPT  orders/0: offsets 0 to 1 (2 messages)" in out) == (1, True)
    assert err == "penstock log: give up 2 messages: give --yes (stdin is not a terminal)\n"
    document = as_json(penstock("log", "repair", directory, "--json", "--yes"))
    assert [(row["from_offset"], row["to_offset"]) for row in document["lost"]] == [(0, 2)]
    (copy,) = document["copies"]
    assert Path(copy).read_bytes() == bytes(data)
    assert "given up" in out_of(penstock("log", "verify", directory), 0)
    assert "nothing to repair" in out_of(penstock("log", "repair", directory, "--yes"), 0)


def test_repair_wants_the_whole_directory_and_no_daemon(directory: Path, penstock: Run) -> None:
    code, _, err = penstock("log", "repair", directory / "topics" / "orders", "--yes")
    assert (code, "give the data directory, and --topic for one topic" in err) == (2, True)
    lock = OsDisk().lock(str(directory / "penstock.lock"))
    try:
        code, _, err = penstock("log", "repair", directory, "--yes")
    finally:
        lock.release()
    assert (code, "failed to lock data-path" in err) == (1, True)


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
