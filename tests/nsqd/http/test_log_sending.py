"""How a fetched range comes to the client: from the file, in slices where that can't be, in order,
whole though the file is removed meanwhile, and with nothing left behind when nobody wants it."""

import contextlib
import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.certificates import Certificates
from penstock import limits
from penstock.kernel import decode_columns

from ..world import TIMEOUT_SECONDS, Running, eventually, running_with

nsqd = running_with()

BODY_BYTES = 100_000
COUNT = 30
FETCH = f"/log/fetch?topic=t&from=0&bytes_max={limits.LOG_FETCH_BYTES_MAX}"


def fill(nsqd: Running, count: int = COUNT) -> None:
    for number in range(count):
        body = b"%05d" % number * (BODY_BYTES // 5)
        assert nsqd.request("POST", "/pub?topic=t", body).status == 200


def check(body: bytes, count: int = COUNT) -> None:
    columns = decode_columns(body)
    expected = b"".join(b"%05d" % number * (BODY_BYTES // 5) for number in range(count))
    assert bytes(columns.bodies) == expected


def slow_client(nsqd: Running, target: str = FETCH) -> socket.socket:
    """It takes little at a time, so most of a large answer waits for it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(TIMEOUT_SECONDS)
    address = nsqd.daemon.http_address
    sock.connect((address.host, address.port))
    sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


def check_answer(sock: socket.socket, count: int = COUNT) -> None:
    """What follows its first byte."""
    with sock.makefile("rb") as answer:
        assert answer.readline() == b"TTP/1.1 200 OK\r\n"
        head = http.client.parse_headers(answer)
        check(answer.read(int(head["Content-Length"])), count)


@contextlib.contextmanager
def removing(path: Path, segment_bytes: int) -> Iterator[Running]:
    """Retention removes all that the channel does not want."""
    flags = [f"--segment-bytes={segment_bytes}", "--retain-age=0", "--retain-bytes=0"]
    with Running(path, *flags) as nsqd:
        nsqd.post("/topic/create?topic=t", "/channel/create?topic=t&channel=c")
        fill(nsqd)
        yield nsqd


def readers(nsqd: Running) -> int:
    log = nsqd.daemon.broker.topics["t"].leader().log
    segments = log._segments
    return sum(segments[number].readers for number in range(len(segments)))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_answers_keep_their_order(nsqd: Running) -> None:
    """The second fetch comes while the first is on its way, and small answers stand around it."""
    fill(nsqd)
    address = nsqd.daemon.http_address
    with socket.create_connection((address.host, address.port), TIMEOUT_SECONDS) as sock:
        ask = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        targets = ["/ping", FETCH, FETCH, "/ping", FETCH]
        sock.sendall("".join(ask.format(target) for target in targets).encode())
        with sock.makefile("rb") as answers:
            for target in targets:
                assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
                head = http.client.parse_headers(answers)
                body = answers.read(int(head["Content-Length"]))
                if target == "/ping":
                    assert body == b"OK"
                else:
                    check(body)
    eventually(lambda: readers(nsqd) == 0)


def test_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    with Running(tmp_path / "data", *certificates.flags) as nsqd:
        fill(nsqd)
        address = nsqd.daemon.https_address
        context = certificates.client()
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=TIMEOUT_SECONDS, context=context
        )
        try:
            for _ in range(2):
                connection.request("GET", FETCH)
                check(connection.getresponse().read())
            connection.request("GET", FETCH)  # and nobody takes the answer
        finally:
            connection.close()
        eventually(lambda: readers(nsqd) == 0)


def test_a_client_that_hangs_up(nsqd: Running) -> None:
    fill(nsqd)
    nsqd.request("GET", FETCH)
    before = descriptors()
    for _ in range(3):
        with slow_client(nsqd) as sock:
            assert sock.recv(1)
    eventually(lambda: readers(nsqd) == 0 and descriptors() <= before)
    check(nsqd.request("GET", FETCH).body)


def test_a_segment_that_goes_while_it_is_sent(tmp_path: Path) -> None:
    """Retention removes the file, and what it would have recycled is not overwritten."""
    with removing(tmp_path / "data", 4_000_000) as nsqd, slow_client(nsqd) as sock:
        assert sock.recv(1) == b"H"
        overwrite_what_is_removed(nsqd)
        check_answer(sock)


def overwrite_what_is_removed(nsqd: Running) -> None:
    """Fill segments, have retention remove them, and fill those that come after them."""
    fill(nsqd, 2 * COUNT)
    assert nsqd.request("POST", "/channel/empty?topic=t&channel=c").status == 200
    eventually(lambda: nsqd.request("GET", FETCH).status == 410)
    fill(nsqd, 2 * COUNT)


def test_a_segment_whose_pages_are_queued_in_a_socket(tmp_path: Path) -> None:
    """`sendfile` is done once the socket holds the pages of the file, not copies of them: until the
    client takes them, writing to the file would change the answer."""
    count = 3
    with removing(tmp_path / "data", 1_000_000) as nsqd:
        bytes_max = count * (BODY_BYTES + 100)
        target = f"/log/fetch?topic=t&from=0&bytes_max={bytes_max}"
        with contextlib.ExitStack() as opened:
            socks = [opened.enter_context(slow_client(nsqd, target)) for _ in range(10)]
            for sock in socks:
                assert sock.recv(1) == b"H"
            eventually(lambda: readers(nsqd) == 0)  # nothing is left inside `sendfile`
            overwrite_what_is_removed(nsqd)
            for sock in socks:
                check_answer(sock, count)


def test_a_stop_does_not_wait_for_a_slow_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHUTDOWN_NS", 100 * limits.SECOND)
    with Running(tmp_path / "data", "--log-level=warn") as nsqd:
        fill(nsqd)
        with slow_client(nsqd) as sock:
            assert sock.recv(1)
            began_s = time.monotonic()
            nsqd.stop()
            assert time.monotonic() - began_s < 60
