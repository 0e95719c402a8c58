import asyncio
import errno
import logging
import socket
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


def test_every_interface_takes_ipv4() -> None:
    with listen(ListenAddress("", 0, "")) as sock:
        port = bound_address(sock).port
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_socket_file_without_an_owner_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listen(ListenAddress("", 0, path)).close()  # as after kill -9: the file stays
    with listen(ListenAddress("", 0, path)) as owned:
        with pytest.raises(OSError, match="in use") as caught:
            listen(ListenAddress("", 0, path))
        assert caught.value.errno == errno.EADDRINUSE
        close_listener(owned)
    assert not (tmp_path / "s").exists()


def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        listen(ListenAddress("", 0, str(path)))
    assert path.read_text() == "precious"


async def accept_from(address: ListenAddress, count: int) -> list[tuple[bool, bool, str]]:
    """(non-blocking, no delay, remote address) of `count` accepted connections."""
    loop = asyncio.get_running_loop()
    seen: list[tuple[bool, bool, str]] = []
    everyone = loop.create_future()

    def on_connect(sock: socket.socket, remote: str) -> None:
        no_delay = sock.family == socket.AF_UNIX or bool(
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        )
        seen.append((not sock.getblocking(), no_delay, remote))
        sock.close()
        if len(seen) == count:
            everyone.set_result(None)

    acceptor = Acceptor(loop, listen(address), on_connect)
    clients = []
    for _ in range(count):
        bound = acceptor.address
        client = socket.socket(socket.AF_UNIX if bound.path else socket.AF_INET)
        client.connect(bound.path or (bound.host, bound.port))
        clients.append(client)
    await asyncio.wait_for(everyone, 40)
    for client in clients:
        client.close()
    acceptor.close()
    acceptor.close()
    return seen


def test_accepting_over_tcp() -> None:
    count = limits.ACCEPTS_PER_TURN + 3
    seen = asyncio.run(accept_from(ListenAddress("127.0.0.1", 0, ""), count))
    assert len(seen) == count
    assert all(non_blocking and no_delay for non_blocking, no_delay, _ in seen)
    assert all(remote.startswith("127.0.0.1:") for _, _, remote in seen)


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


def test_the_last_descriptors_are_not_for_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "connections_end", lambda: 0)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        accepted: list[str] = []

        def on_connect(sock: socket.socket, remote: str) -> None:
            accepted.append(remote)
            sock.close()

        acceptor = Acceptor(loop, listen(ListenAddress("127.0.0.1", 0, "")), on_connect)
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*acceptor.address[:2])
            assert await asyncio.wait_for(reader.read(), 40) == b""
            writer.close()
        acceptor.close()
        assert accepted == []

    with caplog.at_level(logging.ERROR, "penstock.net"):
        asyncio.run(run())
    assert caplog.text.count("are refused: of ") == 1


def test_out_of_descriptors_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        accepted = loop.create_future()
        sock = Exhausted(listen(ListenAddress("127.0.0.1", 0, "")))

        def on_connect(sock: socket.socket, remote: str) -> None:
            sock.close()
            accepted.set_result(remote)

        acceptor = Acceptor(loop, sock, on_connect)  # type: ignore[arg-type]
        with socket.create_connection(acceptor.address[:2], 40):
            await asyncio.wait_for(accepted, 40)
        acceptor.close()

    with caplog.at_level(logging.ERROR, "penstock.net"):
        asyncio.run(run())
    assert "Too many open files" in caplog.text
