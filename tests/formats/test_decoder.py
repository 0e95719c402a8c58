"""A registry over HTTP that answers as Confluent's does."""

import json

import pytest

from e2e.answering import Answer, Answering, served
from penstock.errors import ConfigError, FetchFailed
from penstock.formats import SchemaRegistry

ANSWERS = {
    "/base/schemas/ids/1": {"schema": "avro"},
    "/base/schemas/ids/2": {"schema": "with names", "references": [{"name": "x"}]},
    "/base/schemas/ids/2?format=resolved": {"schema": "with all"},
    "/base/schemas/ids/3": {"schema": "syntax", "schemaType": "PROTOBUF"},
    "/base/schemas/ids/3?format=serialized": {"schema": "CgA=", "schemaType": "PROTOBUF"},
    "/base/schemas/ids/4": [],
    "/base/schemas/ids/5": {"subject": "orders"},
    "/base/schemas/ids/6": {"error_code": 40403, "message": "Schema not found"},
}


class Registry(Answering):
    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        found = ANSWERS.get(path)
        is_known = found is not None and not path.endswith("6")
        status = 401 if headers.get("Authorization") != "Basic aDpo" else 200 if is_known else 404
        return status, json.dumps(found).encode(), {}


server = served(Registry)


def test_a_registry_over_http(server: Registry) -> None:
    url = f"{server.url}/base/"
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
    with pytest.raises(FetchFailed, match=r": Connection refused$"):
        SchemaRegistry("http://127.0.0.1:1")(1)
    with pytest.raises(ConfigError):
        SchemaRegistry("file:///etc/passwd")
