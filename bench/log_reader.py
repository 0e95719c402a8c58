"""A process that fetches one log over HTTP from its beginning to its end, again and again, from one
line of its standard input to the next. It then says how many MB a second it read. It looks at
nothing but heads: what it costs is the transfer."""

import select
import socket
import sys
import time

from penstock.nsqdapi import calls

HOST = "127.0.0.1"
FETCH_BYTES = 4 << 20
OFFSET_MAX = (1 << 63) - 1
SLICE_BYTES = 1 << 20


class Fetches:
    def __init__(self, port: int, topic: str) -> None:
        self._sock = socket.create_connection((HOST, port))
        self._topic = topic
        self._buffer = bytearray(SLICE_BYTES)

    def fetch(self, offset: int) -> tuple[int, int]:
        """(where to go on, bytes)."""
        call = calls.fetch(self._topic, offset, OFFSET_MAX, FETCH_BYTES)
        self._sock.sendall(f"GET {call.target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        view = memoryview(self._buffer)
        got = 0
        while (end := self._buffer.find(b"\r\n\r\n", 0, got)) < 0:
            got += self._receive(view[got:])
        head = bytes(view[:end]).decode("latin-1").lower()
        if not head.startswith("http/1.1 200"):
            raise SystemExit(head)
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        length = int(fields["content-length"])
        left = length - (got - end - 4)
        while left:
            left -= self._receive(view[: min(left, SLICE_BYTES)])
        return call.decode(b"", fields).next_offset, length

    def _receive(self, view: memoryview) -> int:
        got = self._sock.recv_into(view)
        if not got:
            raise SystemExit("the daemon hung up")
        return got


def main() -> None:
    fetches = Fetches(int(sys.argv[1]), sys.argv[2])
    fetches.fetch(0)
    print("ready", flush=True)
    while sys.stdin.readline():
        print("reading", flush=True)
        began_s = time.perf_counter()
        total = read(fetches)
        print(total / 1e6 / (time.perf_counter() - began_s), flush=True)


def read(fetches: Fetches) -> int:
    """How many bytes came until the next line, or the end, of standard input."""
    offset = total = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        offset, count = fetches.fetch(offset)
        total += count
        if not count:
            offset = 0
    sys.stdin.readline()
    return total


if __name__ == "__main__":
    main()
