"""`/api/trace`: one message's life, or that of all with a trace id, as the page Trace shows it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from penstock.nsqadmin import traces
from penstock.nsqadmin.api import ERRORS, ApiError, viewed
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.traces import IdInvalid, Seeker, contexts
from penstock.nsqadmin.tracetable import Found
from penstock.trace.search import row_of


class TracesApi:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def router(self) -> APIRouter:
        router = APIRouter(
            prefix=f"{self._ground.base}/api/trace",
            responses=ERRORS,
            default_response_class=JSONResponse,
        )
        router.add_api_route("", self.find, methods=["GET"])
        return router

    async def find(
        self, request: Request, id: str = "", topic: str = "", partition: str = "", since: str = ""
    ) -> dict[str, Any]:
        """Events of a message id, or of trace:N; of one topic, of one partition."""
        ground = viewed(self._ground, request)
        try:
            ask, only = traces.wanted(id, since), traces.only_in(topic, partition)
        except IdInvalid as error:
            raise ApiError(400, f"INVALID_ARG: {error}") from error
        await ground.watch.ready()
        nodes = [one.address for one in ground.watch.latest.nodes.values() if one.is_up]
        seeker = Seeker(ground.upstream, nodes, ground.options.trace_table, ask, only)
        await seeker.look_in_log()
        await seeker.look_in_tables()
        life = seeker.life()
        known = await contexts(ground.upstream, life.found, ground.options.mask_field)
        rows = [_row(one, known.get(one.event.message_id, "")) for one in life.found]
        return {"events": rows, "message": "; ".join(life.notes)}


def _row(found: Found, context: str) -> dict[str, Any]:
    return row_of(found.event, found.node, context) | {"sources": found.sources}
