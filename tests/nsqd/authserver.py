"""A real HTTP server that knows some secrets."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ALL = {"permissions": ["subscribe", "publish"], "topic": ".*", "channels": [".*"]}
IDENTITY = {"identity": "u", "identity_url": "http://id"}
SECRETS: dict[str, Any] = {
    "all": {"ttl": 3600, **IDENTITY, "authorizations": [ALL]},
    "none": {"ttl": 3600, **IDENTITY, "authorizations": []},
    "mine": {"ttl": 3600, "authorizations": [ALL | {"topic": "^mine"}]},
    "reads": {"ttl": 3600, "authorizations": [ALL | {"permissions": ["subscribe"]}]},
    "channel": {"ttl": 3600, "authorizations": [ALL | {"channels": ["^c$"]}]},
    "short": {"ttl": 1, **IDENTITY, "authorizations": [ALL]},
    "ttl": {"ttl": 0, "authorizations": [ALL]},
    "admin": {"ttl": 1, "authorizations": [ALL | {"permissions": ["admin"]}]},
    "regexp": {"ttl": 1, "authorizations": [ALL | {"topic": "("}]},
}


class AuthServer:
    def __init__(self, tls: ssl.SSLContext | None = None, https_port: int = 0) -> None:
        """With `https_port` it only says where to ask."""
        self.asked: list[tuple[str, str, Any]] = []  # method, path, parameters
        self.headers: dict[str, str] = {}
        self.fails = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                asked = parse_qs(parts.query, keep_blank_values=True)
                outer.asked.append(("GET", parts.path, asked))
                self._answer(asked)

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(("POST", self.path, asked))
                self._answer(asked)

            def _answer(self, asked: dict[str, list[str]]) -> None:
                outer.headers = dict(self.headers.items())
                answer = SECRETS.get(asked["secret"][0])
                if https_port:
                    answer = {"message": "TLS_REQUIRED", "https_port": https_port}
                body = json.dumps(answer).encode()
                self.send_response(403 if answer is None or outer.fails or https_port else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> AuthServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
