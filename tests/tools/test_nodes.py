import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cases import each
from e2e.answering import Answer, Answering
from penstock.nsqdapi.blocking import Link
from penstock.tools import connection, nodes
from penstock.tools.main import main
from penstock.tools.nodes import Node, NodeFailed

PRODUCERS = [("::1", 2), ("b", 1), ("on-a-unix-socket", -1), ("a", 1)]
ROWS = [{"broadcast_address": host, "http_port": port} for host, port in PRODUCERS]
ANSWERS = {
    "/cluster": b'{"cluster": {}, "node": 0, "nodes": [], "partitions": []}',
    "/b/cluster": b'{"cluster": {"name": "b"}, "node": 0, "nodes": [], "partitions": []}',
    "/half": b'{"topics": [',
    "/page": b"<html>",
    "/nodes": json.dumps({"producers": ROWS}).encode(),
}


class Daemon(Answering):
    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        form = "text/html" if path == "/page" else "application/json"
        return 200 if path in ANSWERS else 404, ANSWERS.get(path, b""), {"Content-Type": form}


class Agreeing(Answering):
    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return 200, b"{}", {}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Daemon() as daemon:
        yield daemon.address


def addresses(*given: list[str] | None) -> list[str]:
    return connection.find(dict(zip(connection.HTTP, given, strict=False))).addresses()


def test_servers_that_are_no_daemon_of_nsq(address: str) -> None:
    node = Node(address)
    with pytest.raises(NodeFailed, match="its answer is no JSON"):
        node.get("/half")
    with pytest.raises(NodeFailed, match="something answers /page, and it is no daemon of NSQ"):
        node.post("/page")


@each("verb", [
    "channel messages t c", "channel redrive t c", "channel seek t c end --yes",
    "drain --status", "drain --yes", "stage list", "stage abort app --yes",
    "topic concede t --yes", "topic config t durability=os --yes",
])  # fmt: skip
def test_verbs_with_servers_that_answer_anything(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Agreeing() as server:
        assert main([*verb.split(), "--nsqd-http-address", server.address]) == 1
    assert "and it is no daemon of NSQ" in capsys.readouterr().err


def test_the_tcp_port_is_known_by_its_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(b"\0\0\0\x12\0\0\0\1E_BAD_PROTOCOL")

        answering = pool.submit(answer)
        with pytest.raises(NodeFailed, match="that is nsqd's TCP port: name its HTTP port"):
            Node(f"127.0.0.1:{server.getsockname()[1]}").get("/ping")
        answering.result()


def test_a_silent_node_is_hardly_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def exchange(link: Link, *_: object) -> None:
        waits.append(link.timeout_s)
        raise TimeoutError

    monkeypatch.setattr(Link, "exchange", exchange)
    node = Node("a:1")
    for method in ("GET", "GET", "POST"):
        with pytest.raises(NodeFailed):
            node.exchange(method, "/stats")
    assert waits == [nodes.REQUEST_SECONDS_MAX, nodes.SILENT_SECONDS_MAX, nodes.REQUEST_SECONDS_MAX]


@each("text", ["here", "here:port", "here:65536", "ftp://here:1", "http://", "http://here:65536"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(NodeFailed) as caught:
        Node(text)
    assert caught.value.url == text


def test_which_nodes(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses() == [connection.DEFAULT_ADDRESS]
    assert addresses(["x:1", "y:2"]) == ["x:1", "y:2"]
    assert addresses(None, [address]) == ["[::1]:2", "a:1", "b:1"]
    monkeypatch.setenv("PENSTOCK_LOOKUPD_HTTP_ADDRESS", f"127.0.0.1:1, {address}")
    assert addresses() == ["[::1]:2", "a:1", "b:1"]  # one lookupd of two is enough
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "z:1,")
    assert addresses() == ["z:1"]


def test_nodes_of_a_cluster_speak_for_silent_ones(address: str) -> None:
    def speakers(*given: str) -> list[str]:
        return connection.find({"nsqd_http_address": given}).speakers()

    silent, alone, other = "127.0.0.1:1", f"http://{address}/alone", f"http://{address}/b"
    assert speakers(silent, address) == [address]
    for given in (silent,), (silent, alone), (silent, address, alone), (silent, address, other):
        assert speakers(*given) == [*given]  # what that one has would be missing


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(NodeFailed) as caught:
        Node("http://user:hidden@127.0.0.1:1")
    assert "not supported" in str(caught.value)
    assert "hidden" not in str(caught.value)
