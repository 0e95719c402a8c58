"""A page's websocket by hand: what a browser's script, or an attacker's, may send."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import socketio

from .running import Admin


class Button(NamedTuple):
    element: int
    listener: str
    hidden: bool  # then its events are ignored
    label: str = ""


class Drawn:
    """A page as a browser gets it."""

    def __init__(self, html: str) -> None:
        self._html = html
        found = re.search(r"'client_id': '([^']+)'", html)
        assert found, html[:2000]
        self.id = found[1]

    def button(self, label: str) -> Button | None:
        """Also one that is hidden for now."""
        pattern = r'"(\d+)":\{"tag":"q-btn",(?:"class":\[([^\]]*)\],)?'
        pattern += r'"props":\{[^{}]*"label":"LABEL"[^{}]*\},'
        pattern += r'"events":\[\{"listener_id":"([^"]+)"'
        found = re.search(pattern.replace("LABEL", re.escape(label)), self._html)
        if found is None:
            return None
        return Button(int(found[1]), found[3], '"hidden"' in (found[2] or ""), label)

    def press(self, button: Button) -> dict[str, Any]:
        """The event of a click."""
        return {
            "client_id": self.id,
            "id": button.element,
            "listener_id": button.listener,
            "args": [json.dumps(button.label)],
        }


def drawn(admin: Admin, path: str, headers: Mapping[str, str] | None = None) -> Drawn:
    status, body, _ = admin.request("GET", path, headers=dict(headers or {}))
    assert status == 200, (status, body[:500])
    return Drawn(body.decode())


def query(page: Drawn | None) -> str:
    named: dict[str, str] = {"document_id": "d", "tab_id": "t", "next_message_id": "0"}
    if page is not None:
        named |= {"client_id": page.id, "implicit_handshake": "true"}
    return urlencode(named)


@asynccontextmanager
async def socket(
    admin: Admin, page: Drawn | None, headers: Mapping[str, str] | None = None, base: str = ""
) -> AsyncIterator[socketio.AsyncClient]:
    """Opened for a page, or for none. socketio's ConnectionError when it is refused."""
    client = socketio.AsyncClient(reconnection=False)
    try:
        await client.connect(
            f"http://127.0.0.1:{admin.http_port}?{query(page)}",
            headers=dict(headers or {}),
            socketio_path=f"{base}/_nicegui_ws/socket.io",
            transports=["websocket"],
            wait_timeout=60,
        )
        yield client
    finally:
        await client.disconnect()


async def settle(client: socketio.AsyncClient, page: Drawn) -> None:
    """Until the server has looked at everything that this socket has sent: it answers in turn."""
    await client.call("handshake", {"client_id": page.id, "tab_id": "t", "document_id": "d"},
                      timeout=60)  # fmt: skip
