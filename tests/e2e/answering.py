"""Other services that products talk to over HTTP, each in a thread of its own."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

Answer = tuple[int, bytes, Mapping[str, str]]  # status, body, headers


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # a hundred connections come at once

    def handle_error(self, request: Any, address: Any) -> None:
        """Who is killed hangs up."""


class Answering:
    """A subclass says what is answered. None: nothing, and it hangs up."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        answering = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = self.command, self.path, sent, dict(self.headers)
                answer = answering.reply_to(self.client_address[1], *asked)
                if answer is None:
                    self.close_connection = True
                    return
                status, body, headers = answer
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                """Tests are silent."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def reply_to(self, port: int, *asked: Any) -> Answer | None:
        """To a client that has this port."""
        return self.reply(*asked)

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer | None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def served(make: Callable[[], Any], scope: Any = "function") -> Any:
    """A fixture: one of these, for each test, or for the tests of a module."""

    @pytest.fixture(scope=scope)
    def one() -> Iterator[Any]:
        with make() as running:
            yield running

    return one
