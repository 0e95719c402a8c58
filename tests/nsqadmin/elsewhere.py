"""Another service that nsqadmin talks to: graphite, or the receiver of its notifications."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from types import TracebackType
from typing import Any, Self

WAIT_S = 30


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, address: Any) -> None:
        """An nsqadmin that ends hangs up."""


class Answering:
    """An HTTP server in a thread of its own."""

    def __init__(self) -> None:
        answering = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body, headers = answering.reply(self.command, self.path, sent)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_GET

            def log_message(self, *args: Any) -> None:
                return None

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Elsewhere(Answering):
    """Another service: what it was asked, and what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Queue[tuple[str, str, bytes]] = Queue()
        self.answer: Any = []
        self.status = 200
        self.url = f"http://{self.address}"

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        self.asked.put((method, path, body))
        if isinstance(self.answer, bytes):
            return self.status, self.answer, {"Content-Type": "image/png"}
        headers = {"Content-Type": "application/json"}
        return self.status, json.dumps(self.answer).encode(), headers

    def next(self) -> tuple[str, str, bytes]:
        return self.asked.get(timeout=WAIT_S)
