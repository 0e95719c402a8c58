"""A registry over HTTP that answers as Confluent's does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from penstock.errors import ConfigError, FetchFailed
from penstock.formats import SchemaRegistry


class Registry(BaseHTTPRequestHandler):
    answers: ClassVar = {
        "/base/schemas/ids/1": {"schema": "avro"},
        "/base/schemas/ids/2": {"schema": "with names", "references": [{"name": "x"}]},
        "/base/schemas/ids/2?format=resolved": {"schema": "with all"},
        "/base/schemas/ids/3": {"schema": "syntax", "schemaType": "PROTOBUF"},
        "/base/schemas/ids/3?format=serialized": {"schema": "CgA=", "schemaType": "PROTOBUF"},
        "/base/schemas/ids/4": [],
        "/base/schemas/ids/5": {"subject": "orders"},
    }

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Basic aDpo"
        found = self.answers.get(self.path)
        self.send_response(401 if not allowed else 200 if found is not None else 404)
        self.end_headers()
        unknown = {"error_code": 40403, "message": "Schema not found"}
        self.wfile.write(json.dumps(unknown if self.path.endswith("6") else found).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/base/"
        server.shutdown()
        thread.join()


def test_a_registry_over_http(url: str) -> None:
    registry = SchemaRegistry(url, headers={"Authorization": "Basic aDpo"})
    assert [registry(number) for number in (1, 2, 3)] == ["avro", "with all", "CgA="]
    with pytest.raises(LookupError):
        registry(6)
    for number in (4, 5):
        with pytest.raises(FetchFailed, match="is not a schema registry's"):
            registry(number)
    with pytest.raises(FetchFailed, match="got response 404"):
        registry(7)  # whoever answers has no such path
    with pytest.raises(FetchFailed, match="got response 401"):
        SchemaRegistry(url)(1)


def test_a_registry_that_is_not_there() -> None:
    with pytest.raises(FetchFailed, match="Connection refused"):
        SchemaRegistry("http://127.0.0.1:1")(1)
    with pytest.raises(ConfigError):
        SchemaRegistry("file:///etc/passwd")
