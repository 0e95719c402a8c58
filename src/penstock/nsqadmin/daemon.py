"""nsqadmin put together: its parts, the web server around them, and how they start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from penstock import __version__, limits
from penstock.command.program import version_line
from penstock.net.listener import bound_address, close_listener, listen, parse_address
from penstock.nsqadmin import api, paths, routes
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.options import Options
from penstock.nsqadmin.pages import guard, site
from penstock.nsqadmin.store import DataPathLock

log = logging.getLogger("penstock.nsqadmin")


class Daemon:
    def __init__(self, options: Options) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.broken = False
        self._options = options
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None  # of pages whose callers may not look
        self._deps: Deps | None = None
        self._lock: DataPathLock | None = None

    async def start(self) -> None:
        options = self._options
        log.info("%s", version_line("nsqadmin"))
        address = parse_address(options.http_address, "http-address")
        self._lock = DataPathLock(Path(options.data_path))
        deps = self._deps = Deps(options)
        app = make_app(deps)
        self._socket = listen(address)
        log.info("HTTP: listening on %s", bound_address(self._socket))
        deps.start()
        self._server = Server(uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=2, ws="websockets-sansio",
        ))  # fmt: skip
        # It closes what it is given.
        self._serving = asyncio.create_task(self._server.serve([self._socket.dup()]))
        self._serving.add_done_callback(self._on_served)
        self._ending = asyncio.create_task(guard.end_with_rights())

    def _on_served(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.critical("the web server failed", exc_info=error)
            self.broken = True
        if not self.ended.done():
            self.ended.set_result(0)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving], timeout=limits.SHUTDOWN_NS / limits.SECOND)
            close_listener(self._socket)
        if self._ending is not None:
            self._ending.cancel()
        if self._deps is not None:
            await self._deps.stop()
        if self._lock is not None:
            self._lock.close()
        log.info("bye")


class Server(uvicorn.Server):
    """Signals are the daemon's business: uvicorn would send them once more when it has stopped,
    and the second one ends the process at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_app(deps: Deps) -> FastAPI:
    app = FastAPI(
        title="nsqadmin", version=__version__, redirect_slashes=False,
        docs_url=None, redoc_url=None, openapi_url=f"{deps.base}/api/openapi.json",
    )  # fmt: skip
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=limits.ADMIN_GZIP)
    app.add_middleware(paths.OfficialPaths, deps=deps)
    app.include_router(routes.router(deps))

    async def refuse(request: Request, error: Exception) -> Response:
        return api.error_response(error)

    for kind in api.HANDLED:
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(HTTPException, _not_routed)
    site.add(app, deps)
    app.add_exception_handler(Exception, _broken)
    return app


async def _not_routed(request: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, str(error.detail))
    return JSONResponse({"message": code}, error.status_code, error.headers)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"message": "INTERNAL_ERROR"}, 500)
