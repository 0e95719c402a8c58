"""Which heads of requests are let in, as a table."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from cases import each
from e2e.certificates import Certificates
from penstock.errors import ConfigError
from penstock.net.gate import Caller, Gate, check_allowed, host_of
from penstock.net.secret_file import bearer, first_secret, read_secrets
from penstock.net.tls import Tls

EVIL = b"http://evil.example"
OWN = b"127.0.0.1:4151"


def status(gate: Gate, method: str, path: str = "/topic/delete", **text: bytes | None) -> int:
    denial = gate.denial(method, path, Caller(**text))
    return denial.status if denial is not None else 200


LOOPBACK = Gate(True, ["node1", "node1.example.com"])
LISTED = Gate(True, ["node1"], ["Panel.example.com"])
OUTSIDE = Gate(False, ["node1"])
OUTSIDE_LISTED = Gate(False, ["node1"], ["nsqd.internal"])
ANYTHING = Gate(True, ["node1"], ["*"])


@each(
    ("gate", "text", "expected"),
    [
        # what clients and tools send
        (LOOPBACK, {}, 200),
        (LOOPBACK, {"host": OWN}, 200),
        (LOOPBACK, {"host": b"localhost.:4151"}, 200),
        (LOOPBACK, {"host": b"[::1]:4151"}, 200),
        (LOOPBACK, {"host": b"node1:4151"}, 200),
        (LOOPBACK, {"host": b""}, 200),
        # a name that an attacker has made to resolve to us
        (LOOPBACK, {"host": b"evil.example"}, 403),
        (LOOPBACK, {"host": b"127.0.0.1.evil.example"}, 403),
        (LISTED, {"host": b"panel.EXAMPLE.com:4151"}, 200),
        (LISTED, {"host": b"evil.example"}, 403),
        (OUTSIDE, {"host": b"nsqd:4151"}, 200),
        (OUTSIDE_LISTED, {"host": b"nsqd.internal:4151"}, 200),
        (OUTSIDE_LISTED, {"host": b"evil.example:4151"}, 403),
        (ANYTHING, {"host": b"evil.example"}, 200),
        # pages
        (LOOPBACK, {"host": OWN, "origin": EVIL}, 403),
        (LOOPBACK, {"host": OWN, "origin": b"null"}, 403),
        (LOOPBACK, {"host": OWN, "origin": b"http://[::1"}, 403),
        (LOOPBACK, {"host": OWN, "origin": b"\xff\xfe"}, 403),
        (LOOPBACK, {"host": OWN, "origin": b"http://127.0.0.1.evil.example"}, 403),
        (LOOPBACK, {"host": OWN, "origin": b"http://127.0.0.1:4151"}, 200),
        (LOOPBACK, {"host": OWN, "origin": b"http://localhost:3000"}, 200),
        (LOOPBACK, {"host": b"node1:4151", "origin": b"http://node1:4151"}, 200),
        (LOOPBACK, {"host": OWN, "fetch_site": b"cross-site"}, 403),
        (LOOPBACK, {"host": OWN, "fetch_site": b"same-site"}, 403),
        (LOOPBACK, {"host": OWN, "fetch_site": b"same-origin"}, 200),
        (LOOPBACK, {"host": OWN, "fetch_site": b"none"}, 200),
        (LISTED, {"host": OWN, "origin": b"https://panel.example.com:8443"}, 200),
        (
            LISTED,
            {"host": OWN, "origin": b"https://panel.example.com", "fetch_site": b"cross-site"},
            200,
        ),
        (LISTED, {"host": OWN, "origin": EVIL}, 403),
        (OUTSIDE, {"host": b"nsqd:4151", "origin": EVIL}, 403),
        (OUTSIDE, {"host": b"10.0.0.1:4151", "origin": b"http://localhost:3000"}, 403),
        (OUTSIDE, {"host": b"10.0.0.1:4151", "origin": b"http://10.0.0.1:4151"}, 200),
        (OUTSIDE, {"host": b"10.0.0.1:4151", "origin": b"http://10.0.0.1:80"}, 403),
        (OUTSIDE, {"host": b"evil.example:4151", "origin": b"http://evil.example:4151"}, 403),
        (OUTSIDE, {"fetch_site": b"cross-site"}, 403),
        (ANYTHING, {"host": OWN, "origin": EVIL, "fetch_site": b"cross-site"}, 200),
    ],
)
def test_methods_that_change_something(
    gate: Gate, text: dict[str, bytes | None], expected: int
) -> None:
    assert [status(gate, method, **text) for method in ("POST", "PUT", "DELETE")] == [expected] * 3


def test_the_secret_is_for_changes() -> None:
    gate = Gate(True, secrets=[b"0123456789abcdef", b"another-secret-of-ours"])
    assert status(gate, "GET") == status(gate, "OPTIONS") == 200
    assert status(gate, "POST") == status(gate, "PUT") == 401
    for good in (b"Bearer 0123456789abcdef", b"bearer  another-secret-of-ours"):
        assert status(gate, "POST", authorization=good) == 200
    for bad in (b"0123456789abcdef", b"Bearer", b"Bearer ", b"Bearer 0123456789abcdeF", b"Basic x"):
        assert status(gate, "POST", authorization=bad) == 401
    page = {"origin": EVIL, "authorization": b"Bearer 0123456789abcdef"}
    assert status(gate, "POST", **page) == 403


def test_denials_name_the_rule() -> None:
    denial = LOOPBACK.denial("POST", "/pub", Caller(host=b"evil.example:80"))
    assert denial is not None
    assert denial.message.startswith("HOST_DENIED 'evil.example'")
    denial = LOOPBACK.denial("POST", "/pub", Caller(origin=EVIL))
    assert denial is not None
    assert denial.message.startswith("ORIGIN_DENIED 'http://evil.example'")


@each(
    ("authority", "host"),
    [("a:1", "a"), ("A.", "a"), ("[::1]:1", "::1"), ("::1", "::1"), ("", ""), ("[::1", "::1")],
)
def test_hosts_of_authorities(authority: str, host: str) -> None:
    assert host_of(authority) == host


def test_names_in_the_list() -> None:
    check_allowed(["nsqd", "panel.example.com", "*", "10.0.0.1", "::1"])
    for wrong in ("nsqd:4151", "http://panel", "", "a b", "*.example.com"):
        with pytest.raises(ConfigError, match="http-allowed-host"):
            check_allowed([wrong])


# --- files of secrets: what is taken, what is refused, and that no error shows one ---


def test_files_of_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"  0123456789abcdef  \n\nanother-secret-of-ours\r\n")
    assert read_secrets(str(path)) == (b"0123456789abcdef", b"another-secret-of-ours")
    assert read_secrets("") == ()
    for content in (b"", b"\n", b"too short", b"0123456789abcdef\nshort", b"0123456789 abcdef",
                    b"\xff" * 20, b"x" * 70_000):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ConfigError) as raised:
            read_secrets(str(path))
        assert "0123456789" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_secrets(str(tmp_path / "none"))


# --- both sides of TLS as buffers: what one says the other reads, and a farewell is one ---


class Client:
    """The standard library's side of it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self) -> bool:
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def pair(path: Path) -> tuple[Tls, Client]:
    certificates = Certificates(path)
    server, client = Tls(certificates.server()), Client(certificates.client())
    done = [False, False]
    while not all(done):
        done[0] = done[0] or client.shake()
        server.feed(client.outgoing.read())
        done[1] = done[1] or server.shake()
        client.incoming.write(server.output())
    return server, client


def test_a_farewell_is_seen_and_answered(tmp_path: Path) -> None:
    server, client = pair(tmp_path)
    view = memoryview(bytearray(1000))
    client.object.write(b"last words")
    server.feed(client.outgoing.read())
    assert view[: server.read_into(view)] == b"last words"
    assert not server.ended
    with suppress(ssl.SSLWantReadError):
        client.object.unwrap()
    server.feed(client.outgoing.read())
    assert server.read_into(view) == 0
    assert server.ended
    client.incoming.write(server.close())
    client.object.unwrap()  # would want to read more without the answer


def test_a_client_sends_the_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"the-new-secret-of-ours\nthe-old-secret-of-ours\n")
    secret = first_secret(str(path), "http_secret_file")
    assert bearer(secret) == "Bearer the-new-secret-of-ours"
    assert bearer(first_secret("", "http_secret_file")) == ""
    with pytest.raises(ConfigError, match="http_secret_file"):
        first_secret(str(tmp_path / "none"), "http_secret_file")
