"""A real HTTP server that knows some secrets."""

import json
import ssl
from typing import Any
from urllib.parse import parse_qs, urlsplit

from e2e.answering import Answer, Answering

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
}


class AuthServer(Answering):
    def __init__(self, tls: ssl.SSLContext | None = None, https_port: int = 0) -> None:
        """With `https_port` it only says where to ask."""
        super().__init__(tls)
        self.asked: list[tuple[str, str, Any]] = []  # method, path, parameters
        self.fails = False
        self._https_port = https_port

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        parts = urlsplit(path)
        in_query = parse_qs(parts.query, keep_blank_values=True)
        asked = in_query if method == "GET" else json.loads(body)
        self.asked.append((method, parts.path, asked))
        if self._https_port:
            answer = {"message": "TLS_REQUIRED", "https_port": self._https_port}
            return 403, json.dumps(answer).encode(), {}
        answer = SECRETS.get(asked["secret"][0])
        refused = answer is None or self.fails
        return 403 if refused else 200, json.dumps(answer).encode(), {}
