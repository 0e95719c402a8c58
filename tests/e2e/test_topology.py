"""Topology-aware consumption with real consumers in two zones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .daemon import Daemon
from .v2client import V2Client

PLACE = ("--topology-region=eu", "--topology-zone=eu-1")
EXPERIMENT = "--enable-experiment=topology-aware-consumption"
TOPIC, CHANNEL = "t", "ch"


def consumer(daemon: Daemon, region: str, zone: str, rdy: int) -> V2Client:
    client = daemon.client()
    client.identify(topology_region=region, topology_zone=zone)
    client.sub(TOPIC, CHANNEL)
    client.rdy(rdy)
    return client


def publish(daemon: Daemon, count: int) -> None:
    with daemon.client() as publisher:
        for number in range(count):
            publisher.pub(TOPIC, b"%d" % number)


def counts(row: dict[str, Any]) -> list[int | None]:
    keys = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    return [row.get(key) for key in keys]


def test_messages_stay_in_the_zone_then_in_the_region(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data", EXPERIMENT, *PLACE) as daemon,
        consumer(daemon, "us", "us-1", 50) as far,
        consumer(daemon, "eu", "eu-2", 50) as beside,
        consumer(daemon, "eu", "eu-1", 20) as near,
    ):
        for client in (far, beside, near):
            client.settle()  # its RDY has been read
        publish(daemon, 10)
        assert len(near.messages(10)) == 10
        assert (beside.message(0.05), far.message(0.05)) == (None, None)
        near.rdy(0)
        near.settle()
        publish(daemon, 5)
        assert len(beside.messages(5)) == 5
        beside.rdy(0)
        beside.settle()
        publish(daemon, 3)
        assert len(far.messages(3)) == 3
        row = daemon.channel_stats(TOPIC, CHANNEL)
        assert counts(row) == [10, 5, 3]
        clients = {client["topology_zone"]: counts(client) for client in row["clients"]}
        assert clients == {
            "eu-1": [10, None, None],
            "eu-2": [None, 5, None],
            "us-1": [None, None, 3],
        }
