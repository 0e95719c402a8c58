"""The official paths as Go's router has them: a slash too many or a wrong letter case leads to the
right address, another method is named as such, and answers say which form of the API they have.

| request                                    | answer                                         |
|--------------------------------------------|------------------------------------------------|
| `/topics/`, `/API/topics`                  | 301 to the path itself (308 unless it is GET)  |
| OPTIONS                                    | 200 and Allow                                  |
| a method that the path has not, HEAD too   | 405 `METHOD_NOT_ALLOWED` and Allow             |
| `/static/...`, `/fonts/...`                | 404 `NOT_FOUND`: pages bring their files along |
| `/api/...`, `/config/...`                  | whatever it is, with X-NSQ-Content-Type        |

Our own paths are the pages' business.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.routes import routes_of

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

_PAGES = ("topics", "topics/*", "topics/*/*", "nodes", "nodes/*", "counter", "lookup",
          "static/*", "fonts/*")  # fmt: skip
_API_FORM = "nsq; version=1.0"


class _Found(NamedTuple):
    path: str  # as it should be
    methods: tuple[str, ...]


class OfficialPaths:
    """Around the application, which serves them below `base`."""

    def __init__(self, app: App, deps: Deps) -> None:
        self._app = app
        self._base = deps.base
        paths: dict[str, tuple[str, ...]] = dict.fromkeys(_PAGES, ("GET",))
        for one in routes_of(deps):
            if one.is_official:
                path = re.sub(r"\{\w+\}", "*", one.path[1:])  # "*" is any one part
                paths[path] = (*paths.get(path, ()), one.method)
        self._paths = [(tuple(path.split("/")), methods) for path, methods in paths.items()]

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(f"{self._base}/"):
            await self._app(scope, receive, send)
            return
        inner = path[len(self._base) + 1 :]
        if inner.startswith(("api/", "config/")):
            send = _naming_the_form(send)
        found = self._find(inner)
        answer = self._instead(found, inner, scope) if found else None
        await (answer or self._app)(scope, receive, send)

    def _find(self, inner: str) -> _Found | None:
        parts = inner.removesuffix("/").split("/")
        for wanted, methods in self._paths:
            if len(wanted) == len(parts) and all(map(_is_like, wanted, parts)):
                right = [part if name == "*" else name
                         for name, part in zip(wanted, parts, strict=True)]  # fmt: skip
                return _Found("/".join(right), methods)
        return None

    def _instead(self, found: _Found, inner: str, scope: Scope) -> Response | None:
        """What is answered without asking the application."""
        method = scope["method"]
        allowed = {"Allow": ", ".join(sorted((*found.methods, "OPTIONS")))}
        if found.path != inner:
            query = scope.get("query_string", b"").decode("latin-1")
            target = f"{self._base}/{quote(found.path)}" + (f"?{query}" if query else "")
            return RedirectResponse(target, 301 if method == "GET" else 308)
        if method == "OPTIONS":
            return Response(headers=allowed)
        if method not in found.methods:
            return JSONResponse({"message": "METHOD_NOT_ALLOWED"}, 405, allowed)
        if inner.startswith(("static/", "fonts/")):
            return PlainTextResponse("NOT_FOUND", 404)
        return None


def _is_like(wanted: str, part: str) -> bool:
    return bool(part) if wanted == "*" else part.lower() == wanted


def _naming_the_form(send: Any) -> Any:
    async def add(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-NSQ-Content-Type"] = _API_FORM
            if headers.get("content-type") == "application/json":
                headers["content-type"] = "application/json; charset=utf-8"
        await send(message)

    return add
