"""nsqlookupd's HTTP API: status and body of every endpoint, and of every mistake."""

import json
import time
from collections.abc import Iterator

import pytest

from cases import each
from e2e.answering import served
from e2e.lookupd import eventually
from penstock import __version__
from penstock.nsqlookupd.routes import GO_ZERO_TIME_NS

from .running import Client, Running

NSQ = ("X-Nsq-Content-Type", "nsq; version=1.0")
GETS = ("/ping", "/info", "/topics", "/channels", "/lookup", "/nodes", "/debug", "/metrics")
POSTS = (
    "/topic/create", "/topic/delete", "/topic/tombstone", "/channel/create", "/channel/delete",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running:
        running.post("/channel/create?topic=known&channel=c")
        yield running


lookupd = served(lambda: Running("--tombstone-lifetime=1h"))


ERRORS = [
    ("GET", "/nothing", 404, "NOT_FOUND"),
    ("GET", "/config/log_level", 404, "NOT_FOUND"),
    *[("POST", path, 405, "METHOD_NOT_ALLOWED") for path in GETS],
    *[("GET", path, 405, "METHOD_NOT_ALLOWED") for path in POSTS],
    *[("GET", f"{path}?topic=%zz", 400, "INVALID_REQUEST") for path in ("/channels", "/lookup")],
    ("GET", "/channels", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/lookup", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/lookup?topic=", 404, "TOPIC_NOT_FOUND"),
    ("GET", "/lookup?topic=none", 404, "TOPIC_NOT_FOUND"),
    ("GET", "/lookup?topic=*", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/create?topic=", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=a$", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=%ff", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?node=a:1", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
    *[("POST", f"/channel/{verb}{query}", 400, code)
      for verb in ("create", "delete")
      for query, code in (
          ("", "MISSING_ARG_TOPIC"),
          ("?channel=c", "MISSING_ARG_TOPIC"),
          ("?topic=a$&channel=c", "INVALID_ARG_TOPIC"),
          ("?topic=t", "MISSING_ARG_CHANNEL"),
          ("?topic=t&channel=", "INVALID_ARG_CHANNEL"),
          ("?topic=t&channel=c$", "INVALID_ARG_CHANNEL"),
      )],
    ("POST", "/channel/delete?topic=known&channel=none", 404, "CHANNEL_NOT_FOUND"),
    ("POST", "/channel/delete?topic=none&channel=c", 404, "CHANNEL_NOT_FOUND"),
]  # fmt: skip


def test_polling_by_nsqadmin_is_not_logged(
    lookupd: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "penstock.nsqlookupd"):
        for path in ("/nodes", "/topics", "/info"):
            assert lookupd.request("GET", path)[0] == 200
    assert "200 GET /info" in caplog.text
    assert "/nodes" not in caplog.text
    assert "/topics" not in caplog.text


@each(("method", "target", "status", "code"), ERRORS)
def test_errors(shared: Running, method: str, target: str, status: int, code: str) -> None:
    found, body, headers = shared.request(method, target)
    assert (found, json.loads(body)) == (status, {"message": code})
    assert NSQ in headers.items()


@each(
    ("target", "body"),
    [
        ("/ping", b"OK"),
        ("/info", b'{"version":"%b"}' % __version__.encode()),
        ("/topics", b'{"topics":["known"]}'),
        ("/channels?topic=known", b'{"channels":["c"]}'),
        ("/channels?topic=none", b'{"channels":[]}'),
        ("/channels?topic=", b'{"channels":[]}'),
        ("/lookup?topic=known", b'{"channels":["c"],"producers":[]}'),
        ("/nodes", b'{"producers":[]}'),
        ("/debug", b"{}"),
    ],
)
def test_answers(shared: Running, target: str, body: bytes) -> None:
    status, found, headers = shared.request("GET", target)
    assert (status, found) == (200, body)
    if target != "/ping":
        assert NSQ in headers.items()
        assert headers["Content-Type"] == "application/json; charset=utf-8"


def test_profiles(shared: Running) -> None:
    for path in ("", "/cmdline", "/goroutine", "/heap", "/threadcreate", "/block", "/symbol"):
        assert shared.request("GET", f"/debug/pprof{path}")[0] == 200
    status, _, headers = shared.request("GET", "/debug/pprof/")
    assert (status, headers["Location"]) == (301, "/debug/pprof")
    assert shared.request("POST", "/debug/freememory")[0] == 404


def row(client: Client, address: str = "node") -> dict[str, object]:
    return {
        "remote_address": client.address,
        "hostname": "host",
        "broadcast_address": address,
        "tcp_port": 4150,
        "http_port": 4151,
        "version": "1.3.0",
        "topology_zone": "z",
        "topology_region": "r",
    }


def test_lookup_and_nodes(lookupd: Running) -> None:
    with (
        lookupd.nsqd("t c", "t b", "a", broadcast_address="two") as two,
        lookupd.nsqd("t c", broadcast_address="one") as one,
    ):
        assert lookupd.get("/topics") == {"topics": ["a", "t"]}
        found = lookupd.get("/lookup?topic=t")
        assert list(found) == ["channels", "producers"]
        assert found == {"channels": ["b", "c"], "producers": [row(one, "one"), row(two, "two")]}
        assert list(found["producers"][0]) == list(row(one))
        lookupd.post("/topic/tombstone?topic=t&node=two:4151")
        assert lookupd.get("/lookup?topic=t")["producers"] == [row(one, "one")]
        nodes = lookupd.get("/nodes")["producers"]
        assert nodes[0] == {**row(one, "one"), "tombstones": [False], "topics": ["t"]}
        assert nodes[1] == {
            **row(two, "two"), "tombstones": [False, True], "topics": ["a", "t"]
        }  # fmt: skip
    eventually(lambda: lookupd.get("/nodes") == {"producers": []})
    assert lookupd.get("/lookup?topic=t") == {"channels": ["b", "c"], "producers": []}


def test_debug_names_everything(lookupd: Running) -> None:
    with lookupd.nsqd("t c") as client:
        lookupd.post("/topic/create?topic=nobody")
        before_ns = time.time_ns()
        lookupd.post("/topic/tombstone?topic=t&node=node:4151")
        found = lookupd.get("/debug")
        assert list(found) == ["channel:t:c", "client::", "topic:t:"]
        (entry,) = found["topic:t:"]
        assert list(entry) == sorted(entry)
        assert (entry["id"], entry["tombstoned"]) == (client.address, True)
        assert before_ns <= entry["tombstoned_at"] <= time.time_ns()
        (other,) = found["channel:t:c"]
        assert (other["tombstoned"], other["tombstoned_at"]) == (False, GO_ZERO_TIME_NS)
        assert abs(other["last_update"] - time.time_ns()) < 60e9


def test_deleting(lookupd: Running) -> None:
    with lookupd.nsqd("t c", "t d", "u"):
        lookupd.post("/channel/delete?topic=t&channel=c")
        assert lookupd.get("/channels?topic=t") == {"channels": ["d"]}
        lookupd.post("/topic/delete?topic=t")
        assert lookupd.get("/topics") == {"topics": ["u"]}
        assert lookupd.get("/channels?topic=t") == {"channels": []}
        assert lookupd.get("/nodes")["producers"][0]["topics"] == ["u"]


def test_metrics(lookupd: Running) -> None:
    with lookupd.nsqd("t c", "t d"), lookupd.client():
        wanted = {"producers 1", "topics 1", "channels 2", "connections 2", "producers_active 1"}

        def all_there() -> bool:
            text = lookupd.request("GET", "/metrics")[1].decode()
            return {f"nsqlookupd_{line}" for line in wanted} <= set(text.splitlines())

        eventually(all_there)
