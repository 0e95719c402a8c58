"""kill -9 while everything is traced: what was stored of the trace stays, and nothing is hurt."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.client import BlockingProducer
from penstock.tools.main import main
from penstock.trace.events import TOPIC

from .daemon import Daemon
from .lookupd import eventually
from .v2client import pub_bytes

COUNT = 20
ROUNDS = 3
LOAD = 3000  # publishes in the air when the kill comes


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """What `penstock trace` tells, but for the node, whose port is another after a restart."""
    main(["trace", *arguments, "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return [{key: value for key, value in row.items() if key != "node"} for row in found]


def traced_life(daemon: Daemon, trace_id: int) -> None:
    """Publish with this trace id, consume and finish."""
    with BlockingProducer(f"127.0.0.1:{daemon.tcp_port}") as producer:
        bodies = [b"%d" % number for number in range(COUNT)]
        producer.mpub("orders", bodies, trace_id=trace_id)
    with daemon.client() as client:
        client.sub("orders", "mail")
        client.rdy(COUNT)
        client.fin(*(message.id for message in client.messages(COUNT)))
        client.settle()


def kill_under_load(daemon: Daemon) -> None:
    with daemon.client() as client:
        client.send(b"".join(pub_bytes("load", b"x") for _ in range(LOAD)))
        client.ok()
        daemon.kill()


@pytest.mark.parametrize("durability", ["disk", pytest.param("os", marks=pytest.mark.long)])
def test_what_was_stored_of_the_trace_survives(
    tmp_path: Path, durability: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with Daemon(data, "--trace-rate=1", f"--durability={durability}") as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=mail")
        for trace_id in range(1, ROUNDS + 1):
            wanted = f"--trace-id={trace_id}"
            address = f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"
            traced_life(daemon, trace_id)
            eventually(lambda: len(rows(capsys, wanted, address)) == 3 * COUNT, 60)  # noqa: B023
            before = rows(capsys, wanted, address)
            kinds = [row["kind"] for row in before]
            assert {kind: kinds.count(kind) for kind in kinds} == {
                "published": COUNT,
                "sent": COUNT,
                "finished": COUNT,
            }
            kill_under_load(daemon)
            assert rows(capsys, wanted, f"--data-path={data}") == before
            assert main(["log", "verify", str(data)]) == 0
            capsys.readouterr()
            daemon.start()
            address = f"--nsqd-http-address=127.0.0.1:{daemon.http_port}"
            assert rows(capsys, wanted, address) == before
        assert daemon.stop() == 0
    assert main(["log", "dump", str(data), "--topic", TOPIC, "--bodies", "--json"]) == 0
    bodies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all("events" in body for body in bodies)  # each of them could be read
    events = [event for body in bodies for event in body["events"]]
    assert [event["kind"] for event in events].count("started") == ROUNDS
    about_load = [event for event in events if event["topic"] == "load"]
    told = {event["offset"] for event in about_load if event["kind"] == "published"}
    main(["log", "dump", str(data), "--topic", "load", "--json"])
    stored = {json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()}
    assert told <= stored
