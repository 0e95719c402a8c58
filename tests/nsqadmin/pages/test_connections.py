"""Every connection in a table: found, narrowed by the address, moving, and quick with thousands."""

from __future__ import annotations

import functools
import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from ..conftest import Installation

THOUSANDS = 5000


def url(installation: Installation, query: str = "") -> str:
    return installation.admin.url(f"/connections{query}")


def row(page: Page, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text)


def cell(page: Page, text: str, column: str) -> Any:
    """Of the first row with this text: the grid is wide, and draws only what is near."""
    return row(page, text).first.locator(f"[col-id={column}]")


def test_a_consumer_and_a_producer_live(page: Page, installation: Installation) -> None:
    nsqd = installation.nsqd
    page.set_viewport_size({"width": 2200, "height": 900})
    with nsqd.client() as consumer, nsqd.client() as producer:
        consumer.identify(client_id="reader", hostname="till-7", user_agent="test/1")
        producer.identify(client_id="writer", hostname="till-8", user_agent="test/2")
        consumer.sub("wired", "mail")
        producer.pub("wired", b"one")
        page.goto(url(installation, "?topic=wired"))
        expect(cell(page, "reader (till-7)", "reads")).to_have_text("wired/mail")
        expect(cell(page, "writer (till-8)", "published")).to_have_text("1")
        expect(cell(page, "reader (till-7)", "in_flight")).to_have_text("0")
        consumer.rdy(5)
        expect(cell(page, "reader (till-7)", "in_flight")).to_have_text("1")
        expect(cell(page, "reader (till-7)", "ready")).to_have_text("5")
        producer.close()
        expect(row(page, "writer (till-8)")).to_have_count(0)
        page.get_by_label("Kind of connection").click()
        page.get_by_role("option", name="Idle").click()
        expect(row(page, "reader (till-7)")).to_have_count(0)
        page.wait_for_url("**kind=idle*")
        assert parse_qs(urlsplit(page.url).query) == {"topic": ["wired"], "kind": ["idle"]}
    nsqd.post("/topic/delete?topic=wired")


class _Nsqd(BaseHTTPRequestHandler):
    """An nsqd with thousands of connections, one of which moves with each look."""

    protocol_version = "HTTP/1.1"
    looks = 0

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/info":
            document: Any = {"hostname": "h", "broadcast_address": "127.0.0.1", "version": "1",
                             "http_port": self.server.server_address[1]}  # fmt: skip
        elif path == "/stats":
            document = {"version": "1", "health": "OK", "start_time": 1, "topics": []}
        else:
            type(self).looks += 1
            document = None
        body = _connections() if document is None else json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        return


@functools.cache
def _quiet() -> str:
    return ",".join(
        json.dumps(_connection(number)) for number in range(THOUSANDS) if number != 4321
    )


def _connections() -> bytes:
    return f'{{"connections":[{json.dumps(_connection(4321))},{_quiet()}]}}'.encode()


def _connection(number: int) -> dict[str, Any]:
    return {
        "serial": number, "client_id": f"client-{number:04d}", "hostname": f"host-{number % 40}",
        "remote_address": f"10.0.0.1:{number}", "user_agent": "test/1", "connect_ts": 1_700_000_000,
        "topic": f"topic_{number % 50}", "channel": "mail", "ready_count": 10,
        "in_flight_count": 0, "message_count": 0, "requeue_count": 0,
        "finish_count": _Nsqd.looks if number == 4321 else 0,
    }  # fmt: skip
