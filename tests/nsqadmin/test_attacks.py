"""Requests by hand that must not get anywhere: spoofed headers, foreign names, frames, paths."""

import json
from pathlib import Path
from urllib.parse import quote

from cases import each
from penstock.nsqadmin.pages import bar

from .conftest import Installation
from .running import Admin

REBOUND = {"Host": "evil.example"}  # a name of theirs that means our address
PATHS = [path for path, _, _ in bar.SECTIONS]
READING = [*PATHS, "/topics/t", "/topics/t/c", "/messages/t", "/nodes/n", "/api/topics",
           "/api/topics/t", "/api/topics/t/c", "/api/nodes", "/api/nodes/n", "/api/counter",
           "/api/graphite?metric=rate&target=x", "/config/log_level",
           "/download/t?node=n&offset=0", "/definitions.json", "/pipelines/x",
           "/pipelines/x/report", "/pipelines/x/report.json"]  # fmt: skip
CHANGING = [
    ("POST", "/api/topics", {"topic": "attacked"}),
    ("POST", "/api/topics/kept", {"action": "pause"}),
    ("POST", "/api/topics/kept/c", {"action": "empty"}),
    ("DELETE", "/api/topics/kept", None),
    ("DELETE", "/api/topics/kept/c", None),
    ("DELETE", "/api/nodes/127.0.0.1:1", {"topic": "kept"}),
    ("PUT", "/config/log_level", b"debug"),
]


@each(("method", "path", "document"), [*(("GET", path, None) for path in READING), *CHANGING])
def test_requests_for_a_foreign_host_are_refused(
    installation: Installation, method: str, path: str, document: object
) -> None:
    """A page of evil.example, whose name is made to mean 127.0.0.1, is of the same origin to the
    browser: it may send any header and read any answer."""
    for headers in (REBOUND, REBOUND | {"X-Forwarded-User": "ann"}):
        status, body, _ = installation.admin.request(method, path, document, headers)
        assert status == 403
        assert b"evil.example" not in body


def test_every_route_requires_a_login(guarded: Admin) -> None:
    for path in READING:
        status, _, headers = guarded.request("GET", path)
        if path.startswith(("/api", "/config", "/download", "/definitions", "/pipelines/x/report")):
            assert status == 401, path
        else:
            wanted = f"/login?next={quote(path)}"
            assert (status, headers["location"]) == (303, wanted), path


@each(("method", "path", "document"), CHANGING)
def test_a_header_from_loopback_is_no_login(
    guarded: Admin, method: str, path: str, document: object
) -> None:
    """Every process of the machine may send it; who has a password asked for wants it asked for."""
    spoofed = {"X-Forwarded-User": "dora"}
    assert guarded.request(method, path, document, spoofed)[0] == 401
    assert guarded.request(method, path, document)[0] == 401


def test_a_proxy_that_is_named_is_believed(installation: Installation, tmp_path: Path) -> None:
    """With its own host name, and although others have to log in."""
    flags = (
        installation.of_nsqd,
        "-login=required",
        "-admin-user=ann",
        "-trusted-proxy-cidr=127.0.0.1/32",
    )
    through = {"Host": "admin.example.com", "Origin": "https://admin.example.com"}
    with Admin(tmp_path / "admin", *flags) as admin:
        made = {"topic": "by_proxy"}
        for name, status in (("ann", 200), ("bob", 403)):
            headers = through | {"X-Forwarded-User": name}
            assert admin.request("GET", "/topics", headers=headers)[0] == 200
            assert admin.request("POST", "/api/topics", made, headers)[0] == status
        assert admin.request("GET", "/api/topics", headers=through)[0] == 401
        assert admin.request("GET", "/login", headers=through)[0] == 200
    installation.nsqd.post("/topic/delete?topic=by_proxy")


@each("path", ["/", "/topics", "/login", "/api/topics", "/nothing", "/ping"])
def test_no_other_site_may_frame_us_or_load_into_us(installation: Installation, path: str) -> None:
    _, _, headers = installation.admin.request("GET", path)
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    for part in ("default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy


@each(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/_nicegui/../../../etc/passwd",
        "/_nicegui/{version}/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/_nicegui/{version}/resources/x/..%2f..%2fetc%2fpasswd",
        "/_nicegui/{version}/libraries/..%2f..%2fetc%2fpasswd",
        "/_nicegui/{version}/esm/x/..%2f..%2fetc%2fpasswd",
        "/_nicegui/auto/static/etc/passwd",
        "/static/../etc/passwd",
        "/download/..%2f..%2fetc%2fpasswd?node=n&offset=0",
        "/config/..%2fetc",
        "/docs",
        "/redoc",
    ],
)
def test_paths_lead_to_nothing(installation: Installation, path: str) -> None:
    import nicegui

    shown = path.replace("{version}", nicegui.__version__)
    status, body, _ = installation.admin.request("GET", shown)
    assert status in (400, 403, 404, 405), body[:200]
    assert b"root:" not in body


@each(
    ("topic", "node"),
    [("t", "127.0.0.1:1"), ("t", "169.254.169.254"), ("no such", ""), ("none", ""), ("a%22b", "")],
)
def test_a_download_is_of_a_known_node_and_topic(
    installation: Installation, topic: str, node: str
) -> None:
    """The node of the address is asked only when it is one of ours: no request goes elsewhere."""
    at = node or f"127.0.0.1:{installation.nsqd.http_port}"
    path = f"/download/{quote(topic, safe='%')}?node={at}&offset=0"
    status, body, _ = installation.admin.request("GET", path)
    assert status in (400, 404, 502), (status, body)
    assert json.loads(body)["message"]


def test_a_body_that_never_ends_is_cut(installation: Installation) -> None:
    for path in ("/api/topics", "/login"):
        status, _, _ = installation.admin.request("POST", path, b"x" * 200_000)
        assert status in (401, 413)
