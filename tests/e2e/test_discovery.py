"""nsqd and nsqlookupd as processes: registration through restarts, kills and lost networks, and
clients that find their nsqd through it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .lookupd import Lookupd, Proxy, eventually, nsqd
from .v2client import pub_bytes

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


def test_a_lookupd_that_does_not_answer_holds_up_new_topics_only(tmp_path: Path) -> None:
    """It registers us, and its HTTP API accepts and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        info = json.dumps({"broadcast_address": "127.0.0.1", "http_port": port}).encode()
        says = len(info).to_bytes(4, "big") + info
        flags = ("--http-client-request-timeout=2s",)
        with quiet_lookupd(says) as address, nsqd(tmp_path / "a", address, flags=flags) as daemon:
            eventually(lambda: "peer info" in daemon.stderr())
            with daemon.client() as waiting, daemon.client() as other:
                started_s = time.monotonic()
                waiting.send(pub_bytes("t", b"x") + b"NOP\n")
                other.command("PUB", None)  # any command: the loop is alive
                assert other.frame() == (1, b"E_INVALID PUB insufficient number of parameters")
                assert "failed to query nsqlookupd" not in daemon.stderr()  # it waits for it still
                daemon.stats()
                assert waiting.frame() == (0, b"OK")
                assert time.monotonic() - started_s > 1.9
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
