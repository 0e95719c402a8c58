"""`/config/:opt`: reading every option, and changing two while nsqadmin runs."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from penstock import limits
from penstock.command import logs
from penstock.command.flags import LOG_LEVELS, Kind
from penstock.errors import ConfigError
from penstock.net.fetch import without_password
from penstock.net.listener import parse_address
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import ERRORS, ApiError, caller_of
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.options import FLAGS, UNTOLD

_WRITABLE = ("log_level", "nsqlookupd_http_addresses")

_ANSWERS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {
        "description": "a text as it is, everything else as JSON",
        "content": {"application/json": {}, "text/plain": {}},
    },
}


class ConfigApi:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._values = _values(ground)
        self._kinds = {flag.file_key: flag.kind for flag in FLAGS}

    def router(self) -> APIRouter:
        router = APIRouter(prefix=f"{self._ground.base}/config", responses=_ANSWERS)
        router.add_api_route("/{option}", self.get, methods=["GET"])
        router.add_api_route("/{option}", self.put, methods=["PUT"])
        return router

    async def get(self, request: Request, option: str) -> Response:
        """The value of an option."""
        ground, _ = self._check(request)
        if option not in self._values:
            raise ApiError(400, "INVALID_OPTION")
        return self._show(ground, option)

    async def put(self, request: Request, option: str) -> Response:
        """Change nsqlookupd_http_addresses or log_level."""
        ground, caller = self._check(request)
        ground.gate.check_change(caller, Role.DESTROY, request.headers, request.cookies)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > limits.ADMIN_BODY_BYTES_MAX:
                raise ApiError(413, "INVALID_VALUE")
        if not body:
            raise ApiError(413, "INVALID_VALUE")
        if option not in _WRITABLE:
            raise ApiError(400, "INVALID_OPTION")

        async def run() -> str:
            self._set(ground, option, body)
            return ""

        about, text = {"option": option}, body.decode("utf-8", "replace")
        await ground.audit.perform(caller, ("config",), about, run, text)
        return self._show(ground, option)

    def _set(self, ground: Ground, option: str, body: bytes) -> None:
        value: Any = _set_log_level(body) if option == "log_level" else _set_lookupds(ground, body)
        self._values[option] = value

    def _check(self, request: Request) -> tuple[Ground, Caller]:
        """The network is asked first, as official; then the caller."""
        ground = self._ground
        remote = request.client.host if request.client else ""
        if not ground.gate.may_configure(remote):
            raise ApiError(403, "FORBIDDEN")
        caller = caller_of(ground, request)
        ground.gate.check(caller, Role.VIEW)
        return ground, caller

    def _show(self, ground: Ground, option: str) -> Response:
        value = self._values[option]
        if option == "log_level":
            return JSONResponse(LOG_LEVELS.index(value) + 1)
        if isinstance(value, str):
            return PlainTextResponse(without_password(value))
        if self._kinds[option] is Kind.STRINGS:
            return JSONResponse([without_password(one) for one in value])
        return JSONResponse(value)


def _values(ground: Ground) -> dict[str, Any]:
    return {
        flag.file_key: getattr(ground.options, flag.attribute)
        for flag in FLAGS
        if flag.name not in UNTOLD
    }


def _set_lookupds(ground: Ground, body: bytes) -> list[str]:
    upstream = ground.upstream
    if not upstream.lookupds:
        raise ApiError(400, "INVALID_VALUE")  # it was told of nsqds
    try:
        found = json.loads(body)
        if not isinstance(found, list) or not found:
            raise ValueError
        for one in found:
            parse_address(one if isinstance(one, str) else "")
    except (ValueError, RecursionError, ConfigError) as error:
        raise ApiError(400, "INVALID_VALUE") from error
    upstream.lookupds = tuple(found)
    return found


def _set_log_level(body: bytes) -> str:
    level = body.decode("utf-8", "replace").lower()
    if level not in LOG_LEVELS:
        raise ApiError(400, "INVALID_VALUE")
    logs.set_level(level)
    return level
