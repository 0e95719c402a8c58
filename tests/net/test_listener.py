import asyncio
import errno
import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from cases import each
from penstock import limits
from penstock.net import listener
from penstock.net.listener import (
    Acceptor,
    ListenAddress,
    bound_address,
    close_listener,
    listen,
    parse_address,
)


@each(
    ("text", "address"),
    [
        ("127.0.0.1:4150", ListenAddress("127.0.0.1", 4150, "")),
        (":4150", ListenAddress("", 4150, "")),
        ("[::1]:4150", ListenAddress("::1", 4150, "")),
        ("host.name:0", ListenAddress("host.name", 0, "")),
        ("/run/nsqd.sock", ListenAddress("", 0, "/run/nsqd.sock")),
        ("nsqd.sock", ListenAddress("", 0, "nsqd.sock")),
        ("/with:colon/x", ListenAddress("", 0, "/with:colon/x")),
    ],
)
def test_addresses(text: str, address: ListenAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_a_host_that_no_name_can_be() -> None:
    with pytest.raises(OSError, match=r"^listen \(a\.\.b:1\) failed - encoding with 'idna'"):
        listen("a..b:1")


def test_every_interface_takes_ipv4() -> None:
    with listen(":0") as sock:
        port = bound_address(sock).port
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_socket_file_without_an_owner_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listen(path).close()  # as after kill -9: the file stays
    with listen(path) as owned:
        with pytest.raises(OSError, match="in use"):
            listen(path)
        close_listener(owned)
    assert not (tmp_path / "s").exists()


def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        listen(str(path))
    assert path.read_text() == "precious"


async def test_accepting_over_tcp() -> None:
    loop = asyncio.get_running_loop()
    count, everyone = limits.ACCEPTS_PER_TURN + 3, loop.create_future()
    remotes: list[str] = []

    def on_connect(sock: socket.socket, remote: str) -> None:
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        remotes.append(remote)
        sock.close()
        if len(remotes) == count:
            everyone.set_result(None)

    acceptor = Acceptor(loop, listen("127.0.0.1:0"), on_connect)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(acceptor.address[:2]))
        await asyncio.wait_for(everyone, 40)
    acceptor.close()
    acceptor.close()
    assert all(remote.startswith("127.0.0.1:") for remote in remotes)


class Exhausted:
    """A listening socket that is out of descriptors at first."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.failures = 1

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._sock.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


async def test_the_last_descriptors_are_not_for_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "connections_end", lambda: 0)
    caplog.set_level(logging.ERROR, "penstock.net")
    accepted: list[str] = []
    acceptor = Acceptor(
        asyncio.get_running_loop(), listen("127.0.0.1:0"),
        lambda _, remote: accepted.append(remote),
    )  # fmt: skip
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*acceptor.address[:2])
        assert await asyncio.wait_for(reader.read(), 40) == b""
        writer.close()
    acceptor.close()
    assert accepted == []
    assert caplog.text.count("are refused: of ") == 1


async def test_out_of_descriptors_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "penstock.net")
    loop = asyncio.get_running_loop()
    accepted = loop.create_future()

    def on_connect(sock: socket.socket, remote: str) -> None:
        sock.close()
        accepted.set_result(remote)

    exhausted = Exhausted(listen("127.0.0.1:0"))
    acceptor = Acceptor(loop, exhausted, on_connect)  # type: ignore[arg-type]
    with socket.create_connection(acceptor.address[:2], 40):
        await asyncio.wait_for(accepted, 40)
    acceptor.close()
    assert "Too many open files" in caplog.text
