"""Which paths lead to an installation, and which only look so."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

from cases import each
from penstock.nsqadmin.ground import INSTALLATION, place_in
from penstock.nsqadmin.ways import Way, Ways, is_api, way

NAMES = ["staging", "eu-1"]


def _led(path: str, base: str = "", kind: str = "http", **more: Any) -> tuple[str, str]:
    """The installation and the path that the application gets to see."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    scope = {"type": kind, "path": unquote(path), "raw_path": path.encode(), **more}
    asyncio.run(Ways(app, NAMES, base)(scope, None, None))
    assert unquote(seen[0]["raw_path"].decode()) == seen[0]["path"]
    return seen[0].get(INSTALLATION, ""), seen[0]["path"]


@each(
    ("path", "rest"),
    [
        ("/i/staging", "/"),
        ("/i/staging/", "/"),
        ("/i/staging/topics", "/topics"),
        ("/i/staging/topics/", "/topics/"),
        ("/i/staging/topics/a%2Fb", "/topics/a/b"),  # as the server has it without the prefix
        ("/i/staging//topics", "//topics"),
        ("/i/staging/../eu-1/topics", "/../eu-1/topics"),
        ("/i/staging/i/eu-1/topics", "/i/eu-1/topics"),
        ("/i/staging/api/topics", "/api/topics"),
    ],
)
def test_the_prefix_is_taken_off_once(path: str, rest: str) -> None:
    assert _led(path) == ("staging", rest)
    assert _led(f"/some/where{path}", "/some/where") == (
        "staging", "/some/where" + rest.rstrip("/") if rest == "/" else f"/some/where{rest}"
    )  # fmt: skip


@each(
    "path",
    [
        "/", "/topics", "/i", "/i/", "/i//topics", "/i/other", "/i/other/topics", "/i/STAGING",
        "/i/staging%2ftopics", "/i/staging%2Fapi/topics", "/i/stagin%67/topics",
        "/%69/staging/topics", "//i/staging/topics", "/x/i/staging", "/I/staging",
        "/i/%2e%2e/topics", "/i/../staging/topics",
        "/i/staging;x/topics", "/i/staging./topics", "/i/ staging/topics",
    ],
)  # fmt: skip
def test_what_only_looks_so_stays_as_it_is(path: str) -> None:
    assert _led(path) == ("", unquote(path))
    assert _led(path, "/some/where") == ("", unquote(path))


@each(
    "rest", ["login", "logout", "login/oidc/callback", "_nicegui_ws/socket.io/", "_nicegui/3/x.js",
             "%5fnicegui_ws/", "log%69n"]
)  # fmt: skip
@each("kind", ["http", "websocket"])
def test_what_belongs_to_all_is_not_below_one(kind: str, rest: str) -> None:
    path = f"/i/staging/{rest}"
    assert _led(path, kind=kind) == ("", unquote(path))


def test_a_scope_brings_no_installation_along() -> None:
    assert _led("/topics", **{INSTALLATION: "staging"}) == ("", "/topics")


def test_the_lifespan_passes() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    asyncio.run(Ways(app, NAMES, "")({"type": "lifespan"}, None, None))
    assert seen == [{"type": "lifespan"}]


def test_a_way() -> None:
    assert way("", "/i/eu-1/api/topics") == Way("eu-1", "/api/topics")
    assert way("/a b", "/a%20b/i/eu-1") == Way("eu-1", "")
    assert way("/a", "/i/eu-1/topics") is None
    assert [is_api(Way("x", rest)) for rest in ("/api", "/api/topics", "/apis")] == [
        True, True, False
    ]  # fmt: skip
    assert (place_in({INSTALLATION: "eu-1"}), place_in({})) == ("/i/eu-1", "")
