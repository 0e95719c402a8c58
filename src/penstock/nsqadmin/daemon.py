"""nsqadmin put together: its parts, the web server around them, and how they start and stop.

`OfficialPaths` has the official paths as Go's router has them: a slash too many or a wrong letter
case leads to the right address, another method is named as such, and answers say which form of the
API they have.

| request                                    | answer                                         |
|--------------------------------------------|------------------------------------------------|
| `/topics/`, `/API/topics`, `/base/`        | 301 to the path itself (308 unless it is GET)  |
| OPTIONS                                    | 200 and Allow                                  |
| a method that the path has not, HEAD too   | 405 `METHOD_NOT_ALLOWED` and Allow             |
| `/static/...`, `/fonts/...`                | 404 `NOT_FOUND`: pages bring their files along |
| `/api/...`, `/config/...`                  | whatever it is, with X-NSQ-Content-Type        |

Our own paths are the pages' business.
"""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Request
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import __version__, limits
from penstock.command.program import version_line
from penstock.net.listener import bound_address, close_listener, listen
from penstock.nsqadmin import api, routes
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.pages import guard, site
from penstock.nsqadmin.store import lock

_PAGES = ("topics", "topics/*", "topics/*/*", "nodes", "nodes/*", "counter", "lookup",
          "static/*", "fonts/*")  # fmt: skip
_API_FORM = "nsq; version=1.0"


class OfficialPaths:
    """Around the application, which serves them below `base`."""

    def __init__(self, app: ASGIApp, deps: Deps) -> None:
        self._app = app
        self._base = deps.base
        paths: dict[str, tuple[str, ...]] = dict.fromkeys(_PAGES, ("GET",))
        for one in routes.routes_of(deps):
            if one.is_official:
                path = re.sub(r"\{\w+\}", "*", one.path[1:])  # "*" is any one part
                paths[path] = (*paths.get(path, ()), one.method)
        self._paths = [(tuple(path.split("/")), methods) for path, methods in paths.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, base = str(scope.get("path", "")), self._base
        if base and path == base:
            path = f"{base}/"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        elif base and path == f"{base}/" and scope["type"] == "http":
            await RedirectResponse(base, 301)(scope, receive, send)
            return
        if scope["type"] != "http" or not path.startswith(f"{base}/"):
            await self._app(scope, receive, send)
            return
        inner = path[len(self._base) + 1 :]
        if inner.startswith(("api/", "config/")):
            send = _naming_the_form(send)
        found = self._find(inner)
        answer = self._instead(*found, inner, scope) if found else None
        await (answer or self._app)(scope, receive, send)

    def _find(self, inner: str) -> tuple[str, tuple[str, ...]] | None:
        """The path as it should be, and its methods."""
        parts = inner.removesuffix("/").split("/")
        for wanted, methods in self._paths:
            if len(wanted) == len(parts) and all(map(_is_like, wanted, parts)):
                right = [part if name == "*" else name
                         for name, part in zip(wanted, parts, strict=True)]  # fmt: skip
                return "/".join(right), methods
        return None

    def _instead(
        self, right: str, methods: tuple[str, ...], inner: str, scope: Scope
    ) -> Response | None:
        """An answer without the application."""
        method = scope["method"]
        allowed = {"Allow": ", ".join(sorted((*methods, "OPTIONS")))}
        if right != inner:
            query = scope.get("query_string", b"").decode("latin-1")
            target = f"{self._base}/{quote(right)}" + (f"?{query}" if query else "")
            return RedirectResponse(target, 301 if method == "GET" else 308)
        if method == "OPTIONS":
            return Response(headers=allowed)
        if method not in methods:
            return JSONResponse({"message": "METHOD_NOT_ALLOWED"}, 405, allowed)
        if inner.startswith(("static/", "fonts/")):
            return PlainTextResponse("NOT_FOUND", 404)
        return None


def _is_like(wanted: str, part: str) -> bool:
    return bool(part) if wanted == "*" else part.lower() == wanted


def _naming_the_form(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-NSQ-Content-Type"] = _API_FORM
            if headers.get("content-type") == "application/json":
                headers["content-type"] = "application/json; charset=utf-8"
        await send(message)

    return add


log = logging.getLogger("penstock.nsqadmin")


class Daemon:
    def __init__(self, options: Options) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.broken = False
        self._options = options
        self._started = AsyncExitStack()  # how what was started is stopped, the last one first

    async def start(self) -> None:
        options = self._options
        log.info("%s", version_line("nsqadmin"))
        self._started.callback(lock(options.data_path).release)
        deps = Deps(options)
        self._started.push_async_callback(deps.stop)
        app = make_app(deps)
        socket = listen(options.http_address, "http-address")
        log.info("HTTP: listening on %s", bound_address(socket))
        deps.start()
        server = Server(uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=2, ws="websockets-sansio",
        ))  # fmt: skip
        ending = asyncio.create_task(guard.end_with_rights())
        self._started.callback(ending.cancel)
        serving = asyncio.create_task(server.serve([socket.dup()]))  # it closes what it is given
        serving.add_done_callback(self._on_served)
        self._started.callback(close_listener, socket)
        self._started.push_async_callback(_end, server, serving)

    def _on_served(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.critical("the web server failed", exc_info=error)
            self.broken = True
        if not self.ended.done():
            self.ended.set_result(0)

    async def stop(self) -> None:
        await self._started.aclose()
        log.info("bye")


class Server(uvicorn.Server):
    """The daemon handles signals: uvicorn would raise them again after its stop, and the second one
    ends the process at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _end(server: Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await asyncio.wait([serving], timeout=limits.SHUTDOWN_NS / limits.SECOND)


def make_app(deps: Deps) -> FastAPI:
    app = FastAPI(
        title="nsqadmin", version=__version__, redirect_slashes=False,
        docs_url=None, redoc_url=None, openapi_url=f"{deps.base}/api/openapi.json",
    )  # fmt: skip
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=limits.ADMIN_GZIP)
    app.add_middleware(OfficialPaths, deps=deps)
    app.include_router(routes.router(deps, site.FILES))

    async def refuse(request: Request, error: Exception) -> Response:
        return api.error_response(error)

    for kind in api.ANSWERS:
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(HTTPException, _not_routed)
    site.add(app, deps)
    app.add_exception_handler(Exception, _broken)
    return app


async def _not_routed(request: Request, error: Exception) -> Response:
    """There is no such path, or no such method for it."""
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, str(error.detail))
    return JSONResponse({"message": code}, error.status_code, error.headers)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"message": "INTERNAL_ERROR"}, 500)
