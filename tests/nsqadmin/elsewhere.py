"""Another service that nsqadmin talks to: graphite, or the receiver of its notifications."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

WAIT_S = 30


class Elsewhere:
    """Another service: what it was asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: Queue[tuple[str, str, bytes]] = Queue()
        self.answer: Any = []
        self.status = 200
        elsewhere = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                elsewhere.asked.put((self.command, self.path, self.rfile.read(length)))
                plain = isinstance(elsewhere.answer, bytes)
                body = elsewhere.answer if plain else json.dumps(elsewhere.answer).encode()
                self.send_response(elsewhere.status)
                self.send_header("Content-Type", "image/png" if plain else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def next(self) -> tuple[str, str, bytes]:
        return self.asked.get(timeout=WAIT_S)
