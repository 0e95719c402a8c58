"""Starts, stops and restarts of a whole daemon."""

import socket
import stat
import threading
from pathlib import Path

import pytest

from penstock.wire import frames

from .world import Running, eventually, ok, pub, running_with

nsqd = running_with()


def test_a_stop_answers_received_commands_and_disconnects(tmp_path: Path) -> None:
    """Publishers run into the stop: what got an OK is in the log, and nobody hangs."""
    acknowledged = [0] * 4
    with Running(tmp_path) as nsqd:
        started = threading.Barrier(5)

        def publish(index: int) -> None:
            with nsqd.client() as client:
                started.wait()
                try:
                    while True:
                        client.send(pub("busy", b"%d" % index) * 20)
                        for _ in range(20):
                            if client.read() != ok():
                                return
                            acknowledged[index] += 1
                except (EOFError, ConnectionError):
                    return

        threads = [threading.Thread(target=publish, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        eventually(lambda: min(acknowledged) > 20)
        nsqd.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    with Running(tmp_path) as nsqd:
        assert nsqd.stats("&topic=busy")["topics"][0]["depth"] >= sum(acknowledged)


def test_unix_sockets(tmp_path: Path) -> None:
    """Of HTTP over one see `tests/nsqdapi/test_transports.py`."""
    tcp, http = tmp_path / "tcp.sock", tmp_path / "http.sock"
    flags = (f"--tcp-address={tcp}", f"--http-address={http}")
    with Running(tmp_path / "data", *flags):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(40)
            client.connect(str(tcp))
            client.sendall(b"  V2" + pub("t", b"x"))
            assert client.recv(100) == frames.encode_frame(0, b"OK")
        assert stat.S_ISSOCK(tcp.stat().st_mode)
    assert not tcp.exists()
    assert not http.exists()


def test_no_http(tmp_path: Path) -> None:
    with Running(tmp_path, "--http-address=") as nsqd, nsqd.client() as client:
        assert nsqd.daemon.http_address.port == 0
        assert client.ask(pub("t", b"x")) == ok()


def test_a_taken_port_fails_the_start_and_leaves_the_directory_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        reason = rf"^listen \({address}\) failed - Address already in use$"
        with pytest.raises(OSError, match=reason), Running(tmp_path, f"--tcp-address={address}"):
            pass
    with Running(tmp_path):
        pass


def broken(*_: object) -> None:
    raise RuntimeError("impossible")


def is_broken(nsqd: Running) -> bool:
    """The daemon has ended by a fault, and nothing more is stored."""
    eventually(nsqd.daemon.ended.done)
    nsqd.stop()
    return (nsqd.daemon.ended.result(), nsqd.daemon.broken) == (1, True)


def test_a_fault_in_a_command_stops_the_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client, nsqd.client() as other:
        assert other.ask(pub("t", b"x")) == ok()
        nsqd.call(lambda: setattr(nsqd.daemon.broker, "topic", broken))
        client.send(b"SUB new c\n")
        assert is_broken(nsqd)
        other.send(pub("t", b"y"))
        assert other.is_closed()  # and has no OK for it
    assert caplog.text.count("internal error: the daemon stops") == 1
    assert "impossible" in caplog.text


def test_a_fault_in_a_change_over_http_stops_the_daemon(nsqd: Running) -> None:
    nsqd.call(lambda: setattr(nsqd.daemon.broker, "topic", broken))
    assert nsqd.request("POST", "/topic/create?topic=x").status == 500
    assert is_broken(nsqd)


def test_a_fault_in_a_read_over_http_does_not_stop_the_daemon(
    nsqd: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(nsqd.daemon.broker), "health", property(broken))
        assert nsqd.request("GET", "/ping").status == 500
    assert nsqd.request("GET", "/ping").status == 200
    assert not nsqd.daemon.broken


def test_an_idle_daemon_wakes_up_about_once_a_second(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client:
        client.send(pub("t", b"x") + b"SUB t c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.message()
        turns = 0
        order = nsqd.daemon.node.turn.order
        run = order.run

        def counted(mono_ns: int) -> bool:
            nonlocal turns
            turns += 1
            return run(mono_ns)

        nsqd.call(lambda: setattr(order, "run", counted))
        assert client.is_silent(1.5)
        assert turns <= 6


def test_the_largest_depth_is_no_bound_for_a_topic_with_messages(tmp_path: Path) -> None:
    largest = (1 << 63) - 1
    with Running(tmp_path / "data") as nsqd:
        nsqd.request("POST", "/pub?topic=t", b"x")
        assert nsqd.request("POST", f"/topic/config?topic=t&max_depth={largest}").status == 200
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    with Running(tmp_path / "data") as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
        assert nsqd.ask("GET", "/topic/config?topic=t")[1]["max_depth"] == largest
