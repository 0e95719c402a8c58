"""A cheap HTTP client: keep-alive connections that each send the next request when the answer to
the one before is whole. Requests are made once and sent as they are."""

from __future__ import annotations

import select
import socket
import time

from penstock.bench.dialect import HOST, DaemonFailed

READ_BYTES = 1 << 16
WAIT_SECONDS_MAX = 30.0


def request(method: str, target: str, body: bytes = b"") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def exchange(port: int, data: bytes) -> bytes:
    """One request on a connection of its own; the body of the answer."""
    with socket.create_connection((HOST, port), WAIT_SECONDS_MAX) as sock:
        sock.sendall(data)
        answer = b""
        while True:
            head, found, body = answer.partition(b"\r\n\r\n")
            if found and len(body) >= _length(head):
                break
            more = sock.recv(READ_BYTES)
            if not more:
                raise DaemonFailed("the daemon hung up within an answer")
            answer += more
    if not head.startswith(b"HTTP/1.1 200 "):
        raise DaemonFailed(f"HTTP: {head[:100]!r}")
    return body


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


class Load:
    """`connections` of them; `run` returns the seconds that `count` requests took."""

    def __init__(self, port: int, data: bytes, connections: int) -> None:
        self._data = data
        self._poll = select.epoll()
        self._socks: dict[int, socket.socket] = {}
        for _ in range(connections):
            sock = socket.create_connection((HOST, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socks[sock.fileno()] = sock
            self._poll.register(sock.fileno(), select.EPOLLIN)

    def close(self) -> None:
        self._poll.close()
        for sock in self._socks.values():
            sock.close()

    def run(self, count: int) -> float:
        """Every answer has the length of the first, as all requests are the same."""
        socks, data, poll = self._socks, self._data, self._poll
        began = time.perf_counter()
        length = self._first()
        sent = done = 1
        for sock in socks.values():
            sock.sendall(data)
            sent += 1
        got = dict.fromkeys(socks, 0)
        while done < sent:
            ready = poll.poll(WAIT_SECONDS_MAX)
            if not ready:
                raise DaemonFailed("no answer over HTTP")
            for descriptor, _ in ready:
                sock = socks[descriptor]
                answer = sock.recv(READ_BYTES)
                if not answer or (not got[descriptor] and answer[9:12] != b"200"):
                    raise DaemonFailed(f"HTTP: {answer[:100]!r}")
                got[descriptor] += len(answer)
                if got[descriptor] < length:
                    continue
                got[descriptor] = 0
                done += 1
                if sent < count:
                    sent += 1
                    sock.sendall(data)
        return time.perf_counter() - began

    def _first(self) -> int:
        sock = next(iter(self._socks.values()))
        sock.sendall(self._data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += sock.recv(READ_BYTES)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = _length(head)
        while len(body) < length:
            body += sock.recv(READ_BYTES)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise DaemonFailed(f"HTTP: {answer[:100]!r}")
        return len(head) + 4 + length
