"""What an installation of the official nsqadmin relies on beside `/api`: graphite, and the webhook
of actions."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.answering import served

from .conftest import Installation
from .elsewhere import Elsewhere
from .running import Admin

elsewhere = served(Elsewhere, scope="module")


@pytest.fixture(scope="module")
def admin(
    installation: Installation, elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    flags = (
        installation.of_lookupd, f"-graphite-url={elsewhere.url}/", "-statsd-interval=30s",
        f"-notification-http-endpoint={elsewhere.url}/hook?secret=1",
    )  # fmt: skip
    with Admin(tmp_path_factory.mktemp("official") / "admin", *flags) as admin:
        yield admin


def test_the_rate_of_a_counter_is_asked_of_graphite(admin: Admin, elsewhere: Elsewhere) -> None:
    path = "/api/graphite?metric=rate&target=stats.counters.nsq.x.count"
    for answer, rate in (
        ([{"target": "x", "datapoints": [[60.0, 1], [90.0, 2]]}], "2.00"),
        ([{"target": "x", "datapoints": [[None, 1]]}], "N/A"),
        ([], "N/A"),
    ):
        elsewhere.answer = answer
        assert admin.json("GET", path) == {"rate": rate}
        method, asked, _ = elsewhere.next()
        parts = urlsplit(asked)
        assert (method, parts.path) == ("GET", "/render")
        assert parse_qs(parts.query) == {
            "target": ["stats.counters.nsq.x.count"], "format": ["json"],
            "from": ["-60s"], "until": ["-30s"],
        }  # fmt: skip
    elsewhere.status = 500
    status, body, _ = admin.request("GET", path)
    elsewhere.next()
    elsewhere.status = 200
    assert status == 502
    assert json.loads(body)["message"].startswith("UPSTREAM_ERROR: ")
    assert admin.request("GET", "/render?target=x")[0] == 404  # not proxied unless asked for
    assert admin.json("GET", "/config/statsd_interval") == 30 * 10**9


def test_every_action_is_reported_to_the_endpoint(
    installation: Installation, admin: Admin, elsewhere: Elsewhere
) -> None:
    """With what the official one tells, in order, and not when it was refused or has failed."""
    node = f"127.0.0.1:{installation.nsqd.http_port}"
    pair, one = "/api/topics/told/c", "/api/topics/told"
    done: list[tuple[str, str, Any, list[str]]] = [
        ("POST", "/api/topics", {"topic": "told", "channel": "c"},
         ["create_topic", "create_channel"]),
        ("POST", pair, {"action": "pause"}, ["pause_channel"]),
        ("DELETE", f"/api/nodes/{node}", {"topic": "told"}, ["tombstone_topic_producer"]),
        ("DELETE", one, None, ["delete_topic"]),
    ]  # fmt: skip
    headers = {"Authorization": "Basic YW5uOnNlY3JldA==", "User-Agent": "a test/1.0"}
    installation.nsqd.post("/topic/create?topic=told")
    installation.wait_for_topic("told")
    assert admin.request("POST", one, {"action": "explode"}, headers)[0] == 400
    refused = headers | {"Origin": "http://evil.example"}
    assert admin.request("POST", one, {"action": "pause"}, refused)[0] == 403
    for method, path, document, actions in done:
        status, body, _ = admin.request(method, path, document, headers)
        assert (status, json.loads(body)) == (200, {"message": ""}), (method, path)
        for action in actions:
            asked, at, notice = elsewhere.next()
            assert (asked, at) == ("POST", "/hook?secret=1")
            text = json.loads(notice)
            assert (text["action"], text["topic"]) == (action, "told")
            assert ("channel" in text) is action.endswith("_channel")
            assert text.get("node") == (node if action.startswith("tombstone") else None)
            assert (text["user"], text["user_agent"]) == ("ann", "a test/1.0")
            assert text["remote_ip"].startswith("127.0.0.1:")
            assert text["url"].endswith(path)
            assert text["timestamp"] > 0
            assert text["via"]
    assert elsewhere.asked.empty()
    assert "secret" not in admin.stderr()
