"""Where partitions are: a real nsqlookupd, and nsqds that name them or do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import each
from nsqd.skewed import skewed
from nsqd.world import Running as Nsqd
from nsqd.world import eventually
from penstock.client.discovery import partitions_in

from .running import Running


@pytest.fixture
def lookupd() -> Iterator[Running]:
    with Running() as running:
        yield running


def test_a_nsqd_of_ours_tells_where_they_are(lookupd: Running, tmp_path: Path) -> None:
    flags = [f"--lookupd-tcp-address={lookupd.daemon.tcp_address}", "--broadcast-address=127.0.0.1"]
    with Nsqd(tmp_path / "data", *flags) as nsqd:
        nsqd.request("POST", "/topic/create?topic=one")
        skewed(nsqd, "t")
        nsqd.request("POST", "/channel/create?topic=t&channel=7")

        def found(topic: str) -> Any:
            status, body, _ = lookupd.request("GET", f"/lookup?topic={topic}&metainfo=true")
            return json.loads(body) if status == 200 else {}

        assert eventually(lambda: found("t").get("channels") == ["7"])
        document = found("t")
        assert list(document["partitions"]) == ["0", "1", "2"]
        (producer,) = document["producers"]
        assert set(map(json.dumps, document["partitions"].values())) == {json.dumps(producer)}
        address = f"127.0.0.1:{nsqd.daemon.tcp_address.port}"
        assert partitions_in(document) == dict.fromkeys(range(3), address)
        assert document["meta"] == {
            "partition_num": 3,
            "replica": 1,
            "extend_support": False,
            "ordered": False,
            "multi_part": True,
            "disable_channel_auto_create": False,
        }
        nsqd.request("POST", "/topic/partition/expand?topic=t&partition_num=5")
        nsqd.request("POST", "/topic/meta/update?topic=t&upgradeext=true")
        assert eventually(lambda: found("t")["meta"]["extend_support"])
        assert list(found("t")["partitions"]) == ["0", "1", "2", "3", "4"]
        assert found("t")["meta"]["partition_num"] == 5
        alone = found("one")
        assert (list(alone["partitions"]), alone["meta"]["multi_part"]) == (["0"], False)
        nsqd.request("POST", "/channel/delete?topic=t&channel=7")
        nsqd.request("POST", "/topic/delete?topic=t")
        assert eventually(lambda: found("t")["producers"] == [])
        assert found("t")["channels"] == ["7"]  # as in NSQ: consumers may still wait for it
        assert "partitions" not in found("t")


def test_what_a_topic_is_like_follows_its_settings(lookupd: Running, tmp_path: Path) -> None:
    flags = [f"--lookupd-tcp-address={lookupd.daemon.tcp_address}", "--broadcast-address=127.0.0.1"]
    with Nsqd(tmp_path / "data", *flags) as nsqd:
        nsqd.request("POST", "/topic/create?topic=closed&disable_channel_auto_create=true")
        nsqd.request("POST", "/topic/create?topic=plain")

        def closed() -> dict[str, Any]:
            rows = lookupd.get("/topics?metaInfo=true")["meta_info"]
            return next((row for row in rows if row["topic_name"] == "closed"), {})

        assert eventually(lambda: closed().get("disable_channel_auto_create"))
        nsqd.request("POST", "/topic/config?topic=closed&ordered=true&disable_channel_auto_create=")
        assert eventually(lambda: closed()["ordered"])
        plain = {"partition_num": 1, "replica": 1, "extend_support": False, "multi_part": False}
        assert closed() == plain | {
            "topic_name": "closed", "ordered": True, "disable_channel_auto_create": False,
        }  # fmt: skip
        nsqd.request("POST", "/topic/config?topic=closed&ordered=")
        assert eventually(lambda: not closed()["ordered"])
        document = lookupd.get("/topics")
        assert document == {"topics": ["closed", "plain"]}


def test_who_reads_finds_tombstoned_nodes_too(lookupd: Running) -> None:
    with (
        lookupd.nsqd("t 0", partitions=True, broadcast_address="a"),
        lookupd.nsqd("t 1", partitions=True, broadcast_address="b"),
    ):
        node = lookupd.get("/lookup?topic=t")["producers"][0]
        lookupd.post(f"/topic/tombstone?topic=t&node=a:{node['http_port']}")

        def found(query: str) -> tuple[list[str], list[str]]:
            document = lookupd.get(f"/lookup?topic=t{query}")
            hosts = [row["broadcast_address"] for row in document["producers"]]
            return hosts, list(document["partitions"])

        assert found("&access=r") == (["a", "b"], ["0", "1"])
        assert found("&access=w") == found("") == (["b"], ["1"])
        status, body, _ = lookupd.request("GET", "/lookup?topic=t&access=x")
        assert (status, json.loads(body)["message"]) == (
            400, "INVALID_ACCESS_MODE 'x': it is r or w",
        )  # fmt: skip


def test_a_list_of_nsqlookupds_has_this_one() -> None:
    with Running("--broadcast-address=here") as lookupd:
        daemon = lookupd.daemon
        row = {
            "ID": f"here:{daemon.tcp_address.port}",
            "NodeIP": "here",
            "TcpPort": str(daemon.tcp_address.port),
            "HttpPort": str(daemon.http_address.port),
            "RpcPort": "",
            "Epoch": 0,
        }
        assert lookupd.get("/listlookup") == {"lookupdnodes": [row], "lookupdleader": row}


def test_a_partition_is_looked_up(lookupd: Running) -> None:
    with (
        lookupd.nsqd("t 0", "t 2", partitions=True, broadcast_address="a"),
        lookupd.nsqd("t 1", distributed_id="x", broadcast_address="b"),
    ):

        def hosts(query: str) -> list[str]:
            rows = lookupd.get(f"/lookup?topic=t{query}")["producers"]
            return [row["broadcast_address"] for row in rows]

        assert (hosts(""), hosts("&partition=1"), hosts("&partition=*")) == (
            ["a", "b"], ["b"], ["a", "b"],
        )  # fmt: skip
        assert list(lookupd.get("/lookup?topic=t&partition=1")["partitions"]) == ["1"]
        status, body, _ = lookupd.request("GET", "/lookup?topic=t&partition=x")
        assert (status, json.loads(body)["message"][:27]) == (400, "INVALID_ARG_TOPIC_PARTITION")


@each(
    ("document", "found"),
    [
        ({"partitions": {"3": {"broadcast_address": "b", "tcp_port": 1}}}, {3: "b:1"}),
        ({"data": {"partitions": {"0": {"broadcast_address": "b", "tcp_port": 1}}}}, {0: "b:1"}),
        ({"partitions": {"x": {"broadcast_address": "b", "tcp_port": 1}, "1": {}}}, {}),
        ({"partitions": [1]}, {}),
        ({"producers": []}, {}),
        (None, {}),
    ],
)
def test_what_a_client_reads(document: Any, found: dict[int, str]) -> None:
    assert partitions_in(document) == found
