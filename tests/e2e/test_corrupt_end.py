"""A flipped bit at the end of a real daemon's log: `penstock log repair` gives up what it hurt."""

from __future__ import annotations

from pathlib import Path

from penstock.tools.main import main

from .daemon import Daemon


def test_a_corrupt_end_is_repaired_and_publishing_goes_on(tmp_path: Path) -> None:
    data_path = tmp_path / "data"
    with Daemon(data_path) as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=billing")
        for number in range(5):
            daemon.post("/pub?topic=orders", b"message %d" % number)
        assert daemon.stop() == 0
        (path,) = (data_path / "topics/orders/0").glob("*.log")
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(data)
        daemon.start()
        status, said = daemon.http("POST", "/pub?topic=orders", b"refused")
        assert (status, b"the end of the log is corrupt" in said) == (503, True)
        assert daemon.stop() == 0
        assert main(["log", "repair", str(data_path), "--yes"]) == 0
        daemon.start()
        assert daemon.http("GET", "/ping") == (200, b"OK")
        daemon.post("/pub?topic=orders", b"taken")
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            client.sub("orders", "billing")
            client.rdy(10)
            bodies = [message.body for message in client.messages(5)]
        assert bodies == [b"message %d" % number for number in range(4)] + [b"taken"]
        assert daemon.http("GET", "/ping") == (200, b"OK")
        assert main(["log", "verify", str(data_path)]) == 0
