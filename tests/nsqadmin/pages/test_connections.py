"""Every connection in a table: found, narrowed by the address, moving, and quick with thousands."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, WebSocket, expect

from ..conftest import Installation
from ..running import Admin

THOUSANDS = 5000


def url(installation: Installation, query: str = "") -> str:
    return f"http://127.0.0.1:{installation.admin.http_port}/connections{query}"


def row(page: Page, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text)


def cell(page: Page, text: str, column: str) -> Any:
    """Of the first row with this text: the grid is wide, and draws only what is near."""
    return row(page, text).first.locator(f"[col-id={column}]")


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


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
        assert query_of(page) == {"topic": ["wired"], "kind": ["idle"]}
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


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Admin]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Nsqd)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with Admin(tmp_path, f"-nsqd-http-address=127.0.0.1:{server.server_address[1]}") as admin:
            yield admin
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_of_thousands_only_those_that_changed_are_sent(page: Page, crowded: Admin) -> None:
    frames: list[int] = []

    def on_websocket(socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: frames.append(len(data)))

    page.on("websocket", on_websocket)
    page.set_viewport_size({"width": 2200, "height": 900})
    address = f"http://127.0.0.1:{crowded.http_port}/connections"
    page.goto(f"{address}?q=client-4321&sort=-finished")
    expect(page.get_by_text(f"{THOUSANDS:,} connections: {THOUSANDS:,} consumers")).to_be_visible()
    expect(row(page, "client-4321")).to_be_visible()
    expect(row(page, "client-0001")).to_have_count(0)
    looks = _Nsqd.looks
    page.wait_for_function(  # an update after the page is there
        "looks => [...document.querySelectorAll('.ag-row [col-id=finished]')]"
        ".some(one => Number(one.textContent) > looks)",
        arg=looks,
    )
    assert max(frames) < 200_000  # all rows would be two million
    page.get_by_label("Search connections").fill("")
    expect(row(page, "client-4321")).to_be_visible()  # the one with the most finished comes first
    page.locator(".ag-header-cell[col-id=client]").click()
    page.wait_for_url("**sort=client*")
    assert query_of(page) == {"sort": ["client"]}
