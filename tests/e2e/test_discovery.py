"""nsqd and nsqlookupd as processes: registration through restarts, kills and lost networks, and
clients that find their nsqd through it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .lookupd import Lookupd, Proxy, eventually, nsqd
from .v2client import pub_bytes

HERE = Path(__file__).resolve().parent
AGAIN_S_MAX = 40.0  # some seconds, on cores that others use too


@pytest.fixture
def lookupd(tmp_path: Path) -> Iterator[Lookupd]:
    with Lookupd(tmp_path / "lookupd") as lookupd:
        yield lookupd


def test_what_is_made_and_deleted_is_known_at_once(tmp_path: Path, lookupd: Lookupd) -> None:
    flags = ("--topology-zone=z", "--topology-region=r")
    with nsqd(tmp_path / "a", lookupd.address, flags=flags) as daemon:
        eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 1)
        daemon.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", daemon))
        daemon.post("/channel/create?topic=t&channel=c")
        daemon.post("/channel/create?topic=t&channel=d%23ephemeral")
        eventually(lambda: len(lookupd.get("/channels?topic=t")["channels"]) == 2)
        daemon.post("/channel/delete?topic=t&channel=d%23ephemeral")
        eventually(lambda: lookupd.get("/channels?topic=t") == {"channels": ["c"]})
        (row,) = lookupd.get("/nodes")["producers"]
        assert (row["topics"], row["topology_zone"], row["topology_region"]) == (["t"], "z", "r")
        assert (row["tcp_port"], row["http_port"]) == (daemon.tcp_port, daemon.http_port)
        daemon.post("/topic/delete?topic=t")
        eventually(lambda: lookupd.knows("t"))
        daemon.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", daemon))
        assert daemon.stop() == 0
        eventually(lambda: lookupd.get("/nodes") == {"producers": []})


def test_lookupds_are_added_and_taken_away_while_it_runs(tmp_path: Path, lookupd: Lookupd) -> None:
    path = "/config/nsqlookupd_tcp_addresses"
    with nsqd(tmp_path / "a") as daemon:
        daemon.post("/topic/create?topic=t")
        listed = json.dumps([lookupd.address]).encode()
        assert daemon.http("PUT", path, listed) == (200, listed)
        eventually(lambda: lookupd.knows("t", daemon))
        assert daemon.http("PUT", path, b"[]") == (200, b"[]")
        eventually(lambda: lookupd.get("/nodes") == {"producers": []})


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_either_side_restarts(tmp_path: Path, lookupd: Lookupd, how: str) -> None:
    with nsqd(tmp_path / "a", lookupd.address) as daemon:
        daemon.post("/topic/create?topic=t")
        daemon.post("/channel/create?topic=t&channel=c")
        eventually(lambda: lookupd.knows("t", daemon))
        getattr(lookupd, how)()
        time.sleep(1)  # long enough that the pauses have grown
        daemon.post("/topic/create?topic=meanwhile")
        lookupd.start()
        eventually(lambda: lookupd.knows("meanwhile", daemon), AGAIN_S_MAX)
        assert lookupd.get("/channels?topic=t") == {"channels": ["c"]}
        getattr(daemon, how)()
        eventually(lambda: lookupd.knows("t"))
        assert lookupd.get("/topics") == {"topics": ["meanwhile", "t"]}
        daemon.start()
        eventually(lambda: lookupd.knows("t", daemon), AGAIN_S_MAX)


def test_the_network_is_lost_and_found(tmp_path: Path, lookupd: Lookupd) -> None:
    with Proxy(lookupd.tcp_port) as proxy, nsqd(tmp_path / "a", proxy.address) as daemon:
        daemon.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", daemon))
        proxy.lose()
        daemon.post("/topic/create?topic=meanwhile")
        eventually(lambda: "REGISTER - no answer" in daemon.stderr())
        assert not lookupd.knows("meanwhile", daemon)
        proxy.lose(False)
        eventually(lambda: lookupd.knows("meanwhile", daemon), AGAIN_S_MAX)
        eventually(lambda: lookupd.knows("t", daemon))
        daemon.post("/topic/delete?topic=t")
        eventually(lambda: lookupd.knows("t"))


@contextmanager
def babbler(says: bytes) -> Iterator[str]:
    """Sends garbage to everybody who connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def run() -> None:
            while not ended.is_set():
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    sock.sendall(says)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_two_lookupds_and_one_that_babbles(tmp_path: Path, lookupd: Lookupd) -> None:
    with (
        Lookupd(tmp_path / "other") as other,
        babbler(b"\0\0\0\2OK" * 10_000) as garbage,
        nsqd(tmp_path / "a", garbage, lookupd.address, other.address) as daemon,
    ):
        with daemon.client() as client:
            client.send(pub_bytes("t", b"x"))
            assert client.frame() == (0, b"OK")
        eventually(lambda: lookupd.knows("t", daemon) and other.knows("t", daemon))
        eventually(lambda: "parsing response - OK" in daemon.stderr())
        other.kill()
        daemon.post("/topic/create?topic=u")
        eventually(lambda: lookupd.knows("u", daemon))


def test_a_new_topic_has_the_channels_of_the_cluster(tmp_path: Path, lookupd: Lookupd) -> None:
    with (
        nsqd(tmp_path / "a", lookupd.address) as first,
        nsqd(tmp_path / "b", lookupd.address) as second,
    ):
        eventually(lambda: len(lookupd.get("/nodes")["producers"]) == 2)
        for topic in ("tcp", "http", "sub", "made", "delayed"):
            first.post(f"/topic/create?topic={topic}")
            first.post(f"/channel/create?topic={topic}&channel=c")
            first.post(f"/channel/create?topic={topic}&channel=e%23ephemeral")
            eventually(
                lambda topic=topic: len(lookupd.get(f"/channels?topic={topic}")["channels"]) == 2
            )
        second.stop()
        second.start()
        eventually(lambda: "peer info" in second.stderr())
        with second.client() as client:
            client.send(pub_bytes("tcp", b"x") + pub_bytes("tcp", b"y"))
            assert [client.frame(), client.frame()] == [(0, b"OK"), (0, b"OK")]
            client.command("DPUB delayed 60000", b"x")
            assert client.frame() == (0, b"OK")
            client.command("SUB sub d")
            assert client.frame() == (0, b"OK")
        second.post("/pub?topic=http", b"x")
        second.post("/topic/create?topic=made")
        assert second.channel_stats("tcp", "c")["depth"] == 2
        assert second.channel_stats("http", "c")["depth"] == 1
        assert second.channel_stats("delayed", "c")["deferred_count"] == 1
        for topic, names in (("sub", ["c", "d"]), ("made", ["c"])):
            rows = second.topic_stats(topic)["channels"]
            assert [row["channel_name"] for row in rows] == names


def test_a_lookupd_that_does_not_answer_holds_up_new_topics_only(tmp_path: Path) -> None:
    """It registers us, and its HTTP API accepts and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        info = json.dumps({"broadcast_address": "127.0.0.1", "http_port": port}).encode()
        says = len(info).to_bytes(4, "big") + info
        flags = ("--http-client-request-timeout=4s",)
        with (
            quiet_lookupd(says) as address,
            nsqd(tmp_path / "a", address, flags=flags) as daemon,
        ):
            eventually(lambda: "peer info" in daemon.stderr())
            with daemon.client() as waiting, daemon.client() as other:
                started_s = time.monotonic()
                waiting.send(pub_bytes("t", b"x") + b"NOP\n")
                other.command("PUB", None)  # any command: the loop is alive
                assert other.frame() == (1, b"E_INVALID PUB insufficient number of parameters")
                assert "failed to query nsqlookupd" not in daemon.stderr()  # it waits for it still
                daemon.stats()
                assert waiting.frame() == (0, b"OK")
                assert time.monotonic() - started_s > 3.9
            assert daemon.topic_stats("t")["depth"] == 1
            assert "failed to query nsqlookupd" in daemon.stderr()
            with daemon.client() as leaving:
                leaving.send(pub_bytes("gone", b"x"))
            assert daemon.stop() == 0


@contextmanager
def quiet_lookupd(says: bytes) -> Iterator[str]:
    """Answers IDENTIFY with `says`, everything else with OK."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, sock.makefile("rb") as file:
                sock.sendall(says)
                for line in file:
                    if line.startswith((b"REGISTER", b"UNREGISTER", b"PING")):
                        sock.sendall(b"\0\0\0\2OK")

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_pynsq_finds_its_nsqd(tmp_path: Path, lookupd: Lookupd) -> None:
    with (
        nsqd(tmp_path / "a", lookupd.address) as first,
        nsqd(tmp_path / "b", lookupd.address) as second,
    ):
        for daemon in (first, second):
            daemon.post("/topic/create?topic=t")
            daemon.post("/pub?topic=t", b"from %d" % daemon.tcp_port)
        eventually(lambda: lookupd.knows("t", first, second))
        options = {
            "lookupd": f"http://127.0.0.1:{lookupd.http_port}",
            "topic": "t",
            "channel": "c",
            "count": 2,
            "max_in_flight": 4,
        }
        done = subprocess.run(
            [sys.executable, str(HERE / "pynsq_consumer.py"), json.dumps(options)],
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        bodies = {json.loads(line)["body"] for line in done.stdout.splitlines()}
        assert bodies == {f"from {daemon.tcp_port}" for daemon in (first, second)}


def test_a_tombstone_hides_a_node_until_its_topic_is_made_again(tmp_path: Path) -> None:
    with (
        Lookupd(tmp_path / "lookupd", "--tombstone-lifetime=1h") as lookupd,
        nsqd(tmp_path / "a", lookupd.address) as daemon,
    ):
        daemon.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", daemon))
        node = f"127.0.0.1:{daemon.http_port}"
        lookupd.post(f"/topic/tombstone?topic=t&node={node}")
        assert lookupd.knows("t")
        assert lookupd.get("/nodes")["producers"][0]["tombstones"] == [True]
        daemon.post("/topic/delete?topic=t")
        daemon.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", daemon))
