"""The addresses of installations: `/i/NAME/...` is for NAME what `/...` is for the default one.

`Ways` stands around the whole application. It takes `/i/NAME` off a request's path, and writes NAME
into its scope, where `Grounds.of` finds it: everything inside is written for one installation, and
knows nothing of several.

What it takes off has to stand there literally. NAME is of letters, digits and dashes, so no way of
writing it with percent signs is another name for it, and a slash or a dot that came encoded never
ends it: the segments of the path are taken apart as they came (`raw_path`), before anything in them
is decoded. It is taken off once: what follows is a path like any other, and `/i/A/i/B` is none.
Log-ins and what NiceGUI's pages load belong to nsqadmin as a whole, and are not to be found there.
A request for an installation that there is not stays as it is: nothing of ours answers it, but the
page that lists those there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import unquote

from penstock.nsqadmin.ground import INSTALLATION, Scope

App = Callable[[Scope, Any, Any], Awaitable[None]]

_SEGMENT = "i"
_WHOLE = ("login", "logout")  # of nsqadmin as a whole
_NICEGUI = "_nicegui"  # what its pages load begins with this


class Way(NamedTuple):
    name: str
    rest: str  # "", or what comes after the name, with its slash, as it came


def way(base: str, path: str) -> Way | None:
    """Of a path as it came, where it leads below `/i/`. `base` is "" or "/some/where", decoded."""
    segments = path.split("/")
    at = base.count("/") + 1
    if len(segments) <= at + 1 or segments[at] != _SEGMENT:
        return None
    if unquote("/".join(segments[:at])) != base:
        return None
    rest = segments[at + 2 :]
    return Way(segments[at + 1], "/" + "/".join(rest) if rest else "")


class Ways:
    def __init__(self, app: App, names: Collection[str], base: str) -> None:
        self._app = app
        self._names = frozenset(names)
        self._base = base

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            scope.pop(INSTALLATION, None)
            found = asked(scope, self._base)
            if found is not None and found.name in self._names:
                scope = self._led(scope, found)
        await self._app(scope, receive, send)

    def _led(self, scope: Scope, found: Way) -> Scope:
        first = found.rest[1:].partition("/")[0]
        if unquote(first) in _WHOLE or unquote(first).startswith(_NICEGUI):
            return scope
        rest = "" if found.rest == "/" and self._base else found.rest
        raw_path = self._base + rest if self._base else rest or "/"
        path = unquote(rest)
        return {
            **scope,
            INSTALLATION: found.name,
            "path": self._base + path if self._base else path or "/",
            "raw_path": raw_path.encode("latin-1", "replace"),
        }


def asked(scope: Scope, base: str) -> Way | None:
    """The way that a request has gone, while its path is still as it came."""
    raw: bytes | None = scope.get("raw_path")
    return way(base, raw.decode("latin-1") if raw else str(scope["path"]))


def is_api(found: Way) -> bool:
    return found.rest == "/api" or found.rest.startswith(("/api/", "/config/"))
