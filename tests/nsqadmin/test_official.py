"""What an installation of the official nsqadmin relies on beside `/api`: graphite, the webhook of
actions, and the network that may configure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import Installation
from .elsewhere import Elsewhere
from .running import Admin

PICTURE = b"\x89PNG not really"


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    found = Elsewhere()
    yield found
    found.close()


def test_the_rate_of_a_counter_is_asked_of_graphite(
    installation: Installation, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    flags = (installation.of_nsqd, f"-graphite-url={elsewhere.url}/", "-statsd-interval=30s")
    with Admin(tmp_path / "admin", *flags) as admin:
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
        assert status == 502
        assert json.loads(body)["message"].startswith("UPSTREAM_ERROR: ")
        assert admin.request("GET", "/render?target=x")[0] == 404  # not proxied unless asked for
        assert admin.json("GET", "/config/statsd_interval") == 30 * 10**9


def test_pictures_of_graphite_come_through_our_address(
    installation: Installation, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    flags = (
        installation.of_nsqd,
        f"-graphite-url={elsewhere.url}",
        "-proxy-graphite",
        "-base-path=/nsq",
    )
    elsewhere.answer = PICTURE
    with Admin(tmp_path / "admin", *flags) as admin:
        query = "target=a.b&target=sumSeries(c.*)&width=500&from=-2h"
        status, body, headers = admin.request("GET", f"/nsq/render?{query}")
        assert (status, body, headers["content-type"]) == (200, PICTURE, "image/png")
        assert elsewhere.next()[:2] == ("GET", f"/render?{query}")
        # Whatever graphite gives out is no page of ours.
        assert headers["x-content-type-options"] == "nosniff"
        assert admin.request("GET", "/render?target=x")[0] == 404
        assert admin.request("POST", "/nsq/render?target=x")[0] in (404, 405)


def test_every_action_is_told_to_the_endpoint(
    installation: Installation, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """With what the official one tells, in order, and not when it was refused or has failed."""
    flags = (installation.of_lookupd, f"-notification-http-endpoint={elsewhere.url}/hook?secret=1")
    node = f"127.0.0.1:{installation.nsqd.http_port}"
    pair, one = "/api/topics/told/c", "/api/topics/told"
    done: list[tuple[str, str, Any, list[str]]] = [
        ("POST", "/api/topics", {"topic": "told", "channel": "c"},
         ["create_topic", "create_channel"]),
        ("POST", pair, {"action": "pause"}, ["pause_channel"]),
        ("POST", pair, {"action": "unpause"}, ["unpause_channel"]),
        ("POST", pair, {"action": "empty"}, ["empty_channel"]),
        ("POST", one, {"action": "pause"}, ["pause_topic"]),
        ("POST", one, {"action": "unpause"}, ["unpause_topic"]),
        ("POST", one, {"action": "empty"}, ["empty_topic"]),
        ("DELETE", pair, None, ["delete_channel"]),
        ("DELETE", f"/api/nodes/{node}", {"topic": "told"}, ["tombstone_topic_producer"]),
        ("DELETE", one, None, ["delete_topic"]),
    ]  # fmt: skip
    headers = {"Authorization": "Basic YW5uOnNlY3JldA==", "User-Agent": "a test/1.0"}
    with Admin(tmp_path / "admin", *flags) as admin:
        installation.nsqd.post("/topic/create?topic=told")
        installation.wait_for_topic("told")
        assert admin.request("POST", one, {"action": "explode"}, headers)[0] == 400
        refused = headers | {"Origin": "http://evil.example"}
        assert admin.request("POST", one, {"action": "pause"}, refused)[0] == 403
        for method, path, document, actions in done:
            status, body, _ = admin.request(method, path, document, headers)
            assert (status, json.loads(body)) == (200, {"message": ""}), (method, path)
            for action in actions:
                asked, at, told = elsewhere.next()
                assert (asked, at) == ("POST", "/hook?secret=1")
                said = json.loads(told)
                assert (said["action"], said["topic"]) == (action, "told")
                assert ("channel" in said) is action.endswith("_channel")
                assert said.get("node") == (node if action.startswith("tombstone") else None)
                assert (said["user"], said["user_agent"]) == ("ann", "a test/1.0")
                assert said["remote_ip"].startswith("127.0.0.1:")
                assert said["url"].endswith(path)
                assert said["timestamp"] > 0
                assert said["via"]
        assert elsewhere.asked.empty()
        assert "secret" not in admin.stderr()


@pytest.mark.parametrize(
    ("network", "status"),
    [("127.0.0.1/8", 200), ("10.0.0.0/8", 403), ("127.0.0.2/32", 403), ("", 200)],
)
def test_who_may_configure(
    installation: Installation, tmp_path: Path, network: str, status: int
) -> None:
    flags = (installation.of_nsqd, f"-allow-config-from-cidr={network}")
    spoofed = {"X-Forwarded-For": "127.0.0.1" if status == 403 else "10.0.0.1"}
    with Admin(tmp_path / "admin", *flags) as admin:
        for headers in ({}, spoofed):
            assert admin.request("GET", "/config/log_level", headers=headers)[0] == status
            put = admin.request("PUT", "/config/log_level", b"info", headers)
            assert put[0] == status
