"""`/api/diagnostics`: a bundle made at once, or one that was made on the page Diagnostics.

Both need the role operate, and a request that another site's page has made gets neither: gathering
costs the daemons something. A new bundle goes into the audit log.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from penstock import limits
from penstock.nsqadmin import access
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import ApiError, caller_of
from penstock.nsqadmin.diagnostics import DiagnosticsBusy, Kept
from penstock.nsqadmin.gate import Forbidden
from penstock.nsqadmin.ground import Ground

ACTION = "gather_diagnostics"  # in the audit log


class DiagnosticsApi:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def router(self) -> APIRouter:
        router = APIRouter(prefix=f"{self._ground.base}/api/diagnostics")
        router.add_api_route("", self.make, methods=["GET"], include_in_schema=False)
        router.add_api_route("/{id_}", self.fetch, methods=["GET"], include_in_schema=False)
        return router

    async def make(self, request: Request, seconds: str = "") -> StreamingResponse:
        ground, caller = self._check(request)
        count = _seconds(seconds)
        entries = ground.audit.begin(caller, (ACTION,), {}, f"{count} s")
        result = "interrupted"
        try:
            made = await ground.diagnostics.make(
                ground, caller.shown, count, lambda share, words: None
            )
            result = ""
        except DiagnosticsBusy as error:
            result = f"failed: {error}"
            raise ApiError(409, "DIAGNOSTICS_BUSY") from error
        except OSError as error:
            result = f"failed: {error}"
            raise ApiError(507, "NO_ROOM") from error
        finally:
            ground.audit.end(entries, result)
        return _download(made)

    async def fetch(self, request: Request, id_: str) -> StreamingResponse:
        ground, _ = self._check(request)
        found = ground.diagnostics.find(id_.removesuffix(".zip"))
        if found is None:
            raise ApiError(404, "BUNDLE_NOT_FOUND")
        return _download(found)

    def _check(self, request: Request) -> tuple[Ground, Caller]:
        ground = self._ground
        caller = caller_of(ground, request)
        ground.gate.check(caller, Role.OPERATE)
        if access.is_foreign(request.headers):
            raise Forbidden("another site's page has sent this request")
        return ground, caller


def _seconds(text: str) -> int:
    if not text:
        return limits.BUNDLE_SECONDS
    if text.isascii() and text.isdigit() and int(text[:9]) <= limits.BUNDLE_SECONDS_MAX:
        return int(text)
    raise ApiError(400, "INVALID_ARG_SECONDS")


def _download(kept: Kept) -> StreamingResponse:
    headers = {
        "Content-Disposition": f'attachment; filename="{kept.name}"',
        "Content-Length": str(kept.size),
        "Cache-Control": "no-store",
        "Content-Encoding": "identity",  # it is packed: nobody has to do it again
    }
    return StreamingResponse(kept.parts(), media_type="application/zip", headers=headers)
