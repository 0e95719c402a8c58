"""The official `/api` against a real nsqlookupd and a real nsqd."""

import json
from pathlib import Path

import pytest

from cases import each
from e2e.lookupd import eventually
from penstock import times
from penstock.trace.search import RULE

from .conftest import Installation
from .running import Admin


def test_a_trace_of_one_partition(installation: Installation) -> None:
    admin, nsqd = installation.admin, installation.nsqd
    nsqd.post("/topic/create?topic=traced&partition_num=3")
    for partition in (0, 2):
        nsqd.post(f"/pubtrace?topic=traced&partition={partition}&trace_id=123456", b"a")

    def rows(more: str = "") -> list[tuple[str, int]]:
        found = admin.json("GET", f"/api/trace?id=trace:123456{more}")
        return [(one["kind"], one["partition"]) for one in found["events"]]

    eventually(lambda: rows() == [("published", 0), ("published", 2)])
    assert rows("&partition=2") == rows("&topic=traced&partition=2") == [("published", 2)]
    assert rows("&topic=other") == rows("&partition=1") == []
    found = admin.json("GET", "/api/trace?id=trace:123456&partition=2")
    (event,), message = found["events"], found["message"]
    assert message == ""
    assert event["node"] == f"127.0.0.1:{nsqd.http_port}"
    assert (event["trace_id"], event["sources"]) == (123456, "log")
    again = admin.json("GET", f"/api/trace?id={event['message_id']}")["events"]
    assert again == [event]
    admin.request("DELETE", "/api/topics/traced")


def test_a_trace_names_the_trace_context(installation: Installation) -> None:
    admin, nsqd = installation.admin, installation.nsqd
    nsqd.post("/topic/create?topic=headed&extend=true")
    trace_id = "11112222333344445555666677778888"
    context = f"00-{trace_id}-00f067aa0ba902b7-01"
    nsqd.post(f"/pub_ext?topic=headed&ext=%7B%22traceparent%22:%22{context}%22%7D", b"a")

    def known() -> list[str | None]:
        found = admin.json("GET", f"/api/trace?id={trace_id}")["events"]
        return [one.get("traceparent") for one in found]

    eventually(lambda: known() == [context])
    admin.request("DELETE", "/api/topics/headed")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", f"'' is neither a message id (16 hex digits) nor trace:N, where N is {RULE}"),
        ("?id=trace:1&partition=255", "'255' is no partition: 0 to 254"),
        ("?id=trace:1&partition=x", "'x' is no partition: 0 to 254"),
        ("?id=trace:1&since=noon", f"'noon' is no time, {times.RULE}"),
    ],
)
def test_invalid_trace_queries(installation: Installation, query: str, text: str) -> None:
    status, body, _ = installation.admin.request("GET", f"/api/trace{query}")
    assert (status, json.loads(body)) == (400, {"message": f"INVALID_ARG: {text}"})


def test_a_topic_is_made_with_partitions_on_every_nsqd(installation: Installation) -> None:
    admin, nsqd = installation.admin, installation.nsqd
    made = {"topic": "wide", "channel": "here", "partitions": 3}
    assert admin.json("POST", "/api/topics", made) == {"message": ""}
    assert json.loads(nsqd.post("/topic/config?topic=wide"))["partitions"] == 3
    assert nsqd.channel_stats("wide", "here")["depth"] == 0
    again = {"topic": "wide", "partitions": 4}
    status, body, _ = admin.request("POST", "/api/topics", again)
    assert status == 502
    assert b"topic wide has 3" in body
    assert admin.json("DELETE", "/api/topics/wide") == {"message": ""}


@each(
    ("asked", "document", "text"),
    [
        ("POST /api/topics", {"topic": "bad name"}, "400 INVALID_TOPIC"),
        ("POST /api/topics", {"topic": "a", "channel": "b$"}, "400 INVALID_CHANNEL"),
        (
            "POST /api/topics",
            {"topic": "a", "partitions": 256},
            "400 partitions 256: from 1 to 255",
        ),
        ("POST /api/topics", {"topic": "a", "replicas": ""}, "400 replicas is not a whole number"),
        ("POST /api/topics/a", {"action": "explode"}, "400 INVALID_ACTION"),
        ("POST /api/topics/a/b", {}, "400 INVALID_ACTION"),
        ("DELETE /api/nodes/127.0.0.1:1", b"no json", "400 INVALID_BODY"),
        ("DELETE /api/nodes/127.0.0.1:1", {"topic": ""}, "400 INVALID_TOPIC"),
        ("DELETE /api/nodes/127.0.0.1:1", {"topic": "a"}, "404 NODE_NOT_FOUND"),
        ("GET /api/nodes/127.0.0.1:1", None, "404 NODE_NOT_FOUND"),
        ("GET /api/graphite", None, "400 INVALID_ARG_METRIC"),
        ("GET /api/graphite?metric=rate", None, "400 INVALID_ARG_TARGET"),
        ("GET /api/nothing", None, "404 NOT_FOUND"),
    ],
)
def test_bad_requests(installation: Installation, asked: str, document: object, text: str) -> None:
    status, body, _ = installation.admin.request(*asked.split(), document)
    assert f"{status} {json.loads(body)['message']}" == text


def test_the_page_of_an_unknown_topic_is_not_found(installation: Installation) -> None:
    for path in ("/topics/nowhere", "/topics/nowhere/c", "/messages/nowhere"):
        status, body, _ = installation.admin.request("GET", path)
        assert status == 404, path
        assert b"nsqlookupd that may have it says so" in body
    status, body, _ = installation.admin.request("GET", "/topics/no%20name")
    assert status == 404
    assert b"is not a valid name of a topic: 1 to 64 of" in body


def test_the_configuration_is_for_its_network(installation: Installation, tmp_path: Path) -> None:
    """Whoever a proxy names, and wherever it says that they are."""
    flags = (installation.of_nsqd, "-admin-user=ann", "-allow-config-from-cidr=10.0.0.0/8")
    headers = {"X-Forwarded-User": "ann", "X-Forwarded-For": "10.0.0.1"}
    with Admin(tmp_path / "admin", *flags) as admin:
        for asked in (("GET", "/config/log_level", None), ("PUT", "/config/log_level", b"info")):
            assert admin.request(*asked, headers)[0] == 403


def test_configuring_while_it_runs(installation: Installation, tmp_path: Path) -> None:
    lookupd = f"127.0.0.1:{installation.lookupd.http_port}"
    flags = ("-lookupd-http-address=127.0.0.1:1", "-allow-config-from-cidr=")
    with Admin(tmp_path / "admin", *flags) as admin:
        path = "/config/nsqlookupd_http_addresses"
        assert admin.json("GET", path) == ["127.0.0.1:1"]
        assert admin.request("GET", "/api/topics")[0] == 502
        assert admin.json("PUT", path, [lookupd]) == [lookupd]
        assert admin.request("GET", "/api/topics")[0] == 200
        assert admin.request("PUT", path, b"[1]")[0] == 400
        assert admin.request("PUT", "/config/graphite_url", b"x")[0] == 400
        assert admin.request("PUT", "/config/log_level", b"debug")[0] == 200
