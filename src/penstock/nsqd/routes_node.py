"""What Youzan's nsqd lets an operator set on a node while it runs: whether it takes publishes, and
how much it logs. Both hold until the next start.
"""

from __future__ import annotations

from penstock.broker.settings import WritesDisabledFor
from penstock.command import logs
from penstock.command.flags import LOG_LEVELS
from penstock.net.api import EMPTY, POST, HttpError, Parameters, Route
from penstock.net.exchange import Response
from penstock.nsqd.ground import Ground, changing

_LEVEL_OF = ("error", "warn", "info", "debug")  # by Youzan's numbers: more says more


def table(ground: Ground) -> dict[str, Route]:
    node = _Node(ground)
    return {
        "/disable/write": Route(POST, changing(ground, node.disable_write)),
        "/loglevel/set": Route(POST, changing(ground, node.set_log_level)),
    }


class _Node:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def disable_write(self, parameters: Parameters) -> Response:
        kind = parameters.get("type", "")
        known = [member.value for member in WritesDisabledFor]
        if kind not in known:
            raise _invalid("TYPE", kind, f"one of {', '.join(known)}")
        self._ground.broker.writes_disabled = WritesDisabledFor(kind)
        return EMPTY

    def set_log_level(self, parameters: Parameters) -> Response:
        text = parameters.get("loglevel", "").lower()
        level = _LEVEL_OF[min(int(text), len(_LEVEL_OF) - 1)] if _is_number(text) else text
        if level not in LOG_LEVELS:
            rule = f"one of {', '.join(LOG_LEVELS)}, or a number from 0 (error) to 3 (debug)"
            raise _invalid("LOGLEVEL", text, rule)
        logs.set_level(level)
        self._ground.config["log-level"] = level
        return EMPTY


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 4


def _invalid(name: str, text: str, rule: str) -> HttpError:
    return HttpError(400, f"INVALID_ARG_{name} {text[:100]!r}: {rule}")
