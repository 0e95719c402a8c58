"""Avro, resolved against the reader's schema by fastavro. Logical types are the reader's."""

import io
import json
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa

from penstock.errors import ConfigError
from penstock.formats.decoder import Convert, Decoder, OnError, Registry, Undecodable, same, words


class AvroDecoder(Decoder):
    """`schema`: the reader's, of a record. With a registry bodies are framed; without, each is the
    bare encoding by that schema."""

    def __init__(
        self,
        schema: str | dict[str, Any],
        registry: Registry | None = None,
        *,
        on_error: OnError = "null",
    ) -> None:
        super().__init__(registry, on_error, schema=schema)
        try:
            document = json.loads(schema) if isinstance(schema, str) else schema
            expanded = fastavro.schema.expand_schema(document)
            self._reader = fastavro.parse_schema(_without_logical(document))
        except Exception as error:  # of many kinds
            raise ConfigError("schema", schema, f"is no schema of Avro: {error}") from error
        if not isinstance(expanded, dict) or expanded.get("type") != "record":
            raise ConfigError("schema", schema, "must be of a record")
        self.type, self._convert = _avro(expanded)

    def _decoded(self, body: bytes) -> Any:
        writer = self._reader
        if self._registry is not None:
            schema_id, body = self._opened(body)
            writer = self._writer(self._registry, schema_id)
        file = io.BytesIO(body)
        try:
            value = self._convert(fastavro.schemaless_reader(file, writer, self._reader))
        except Exception as error:  # of many kinds, for bytes that were never Avro
            raise Undecodable(f"not Avro of this schema: {words(error)}") from error
        if file.tell() != len(body):
            raise Undecodable(f"{len(body) - file.tell()} bytes are left behind the record")
        return value

    def _parsed(self, text: str) -> Any:
        try:
            return fastavro.parse_schema(_without_logical(json.loads(text)))
        except Exception as error:  # of many kinds
            raise Undecodable(f"no schema of Avro: {error}") from error


_AVRO: Mapping[str, pa.DataType] = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    "fixed": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL: Mapping[str, tuple[pa.DataType, int]] = {  # and how many of its units one is
    "date": (pa.date32(), 1),
    "time-millis": (pa.time32("ms"), 1),
    "time-micros": (pa.time64("us"), 1),
    "timestamp-millis": (pa.timestamp("us", "UTC"), 1000),  # Spark has no other unit
    "timestamp-micros": (pa.timestamp("us", "UTC"), 1),
    "timestamp-nanos": (pa.timestamp("ns", "UTC"), 1),
    "local-timestamp-millis": (pa.timestamp("us"), 1000),
    "local-timestamp-micros": (pa.timestamp("us"), 1),
    "local-timestamp-nanos": (pa.timestamp("ns"), 1),
}
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def _avro(schema: Any) -> tuple[pa.DataType, Convert]:
    """The Arrow type, and how a value becomes one of it."""
    if isinstance(schema, list):
        return _union(schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _avro(kind)
    if kind == "record":
        return _record(schema["fields"])
    if kind == "array":
        type, convert = _avro(schema["items"])
        return pa.list_(type), _each(convert, lambda items: [convert(item) for item in items])
    if kind == "map":
        type, convert = _avro(schema["values"])
        return pa.map_(pa.string(), type), _each(
            convert, lambda pairs: {key: convert(value) for key, value in pairs.items()}
        )
    if kind not in _AVRO:
        raise ConfigError("schema", kind, "Arrow has no type for a record that holds itself")
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical == "decimal" and "precision" in schema:
        return _decimal(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        type, units = _LOGICAL[logical]
        return type, lambda number: number * units
    return _AVRO[kind], _bytes if kind in ("bytes", "fixed") else same


def _each(of_one: Convert, of_all: Convert) -> Convert:
    """Values that need no conversion are not visited."""
    return same if of_one is same else of_all


def _record(fields: Sequence[Mapping[str, Any]]) -> tuple[pa.DataType, Convert]:
    made = {field["name"]: _avro(field["type"]) for field in fields}
    type = pa.struct([(name, type) for name, (type, _) in made.items()])
    converts = {name: convert for name, (_, convert) in made.items() if convert is not same}
    if not converts:
        return type, same
    return type, lambda row: row | {name: convert(row[name]) for name, convert in converts.items()}


def _union(branches: Sequence[Any]) -> tuple[pa.DataType, Convert]:
    others = [branch for branch in branches if branch != "null"]
    names = {branch for branch in others if isinstance(branch, str)}
    wider = _WIDER.get(frozenset(names)) if len(names) == len(others) else None
    if len(others) > 1 and wider is None:
        raise ConfigError("schema", branches, "of a union Arrow has one type, and null")
    type, convert = _avro(wider or (others[0] if others else "null"))
    return type, _each(convert, lambda value: None if value is None else convert(value))


def _bytes(value: bytes | str) -> bytes:
    """A field's default is the text in the schema."""
    return value if isinstance(value, bytes) else value.encode("latin-1")


_EXACT = Context(prec=100)  # the default one rounds to 28 digits


def _decimal(precision: int, scale: int) -> tuple[pa.DataType, Convert]:
    def convert(value: bytes | str) -> Decimal:
        unscaled = int.from_bytes(_bytes(value), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale, _EXACT)

    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale), convert


def _without_logical(schema: Any) -> Any:
    """The reader's schema gives values their meaning, whatever the writer's library called it."""
    if isinstance(schema, list):
        return [_without_logical(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values", "fields"):
        if name in kept:
            kept[name] = _without_logical(kept[name])
    return kept
