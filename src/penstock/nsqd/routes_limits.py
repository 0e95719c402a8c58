"""How fast a channel is sent, and how much its consumers may have in flight, as Youzan's nsqd lets
an operator say it. Both hold until the next start, the second for the connections that there are.
"""

from __future__ import annotations

from typing import Any

from penstock import limits
from penstock.net.api import POST, HttpError, Parameters, Route, json_response
from penstock.net.exchange import Response
from penstock.nsqd.ground import Ground, changing
from penstock.nsqd.routes_channels import find_channel, read_number


def table(ground: Ground) -> dict[str, Route]:
    bounds = _Limits(ground)
    return {
        "/channel/ratelimit": Route(POST, changing(ground, bounds.rate)),
        "/channel/setclientlimit": Route(POST, changing(ground, bounds.clients)),
    }


class _Limits:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def rate(self, parameters: Parameters) -> Response:
        channel = find_channel(self._ground.broker, parameters)
        kilobytes = _needed("ratekilobytes", parameters, limits.RATE_KILOBYTES_MAX)
        channel.rate.set(kilobytes * limits.KIB, self._ground.clock.mono_ns())
        return json_response({**_names(parameters), "bytes_per_second": kilobytes * limits.KIB})

    def clients(self, parameters: Parameters) -> Response:
        """Those whose client id or address begins so; without a prefix all."""
        channel = find_channel(self._ground.broker, parameters)
        ready = _needed("ready", parameters, self._ground.options.max_rdy_count)
        prefix = parameters.get("client_prefix", "")
        count = 0
        for conn in channel.consumers:
            session = conn.owner
            if session.settings.client_id.startswith(prefix) or session.remote.startswith(prefix):
                conn.rdy_limit = ready
                count += 1
        return json_response({**_names(parameters), "clients": count})


def _names(parameters: Parameters) -> dict[str, Any]:
    return {"topic_name": parameters["topic"], "channel_name": parameters["channel"]}


def _needed(name: str, parameters: Parameters, highest: int) -> int:
    """0 takes the bound away."""
    if not parameters.get(name):
        raise HttpError(400, f"MISSING_ARG_{name.upper()}")
    return read_number(name, parameters[name], highest)
