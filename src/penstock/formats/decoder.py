"""The common part of the decoders: the frame, the schemas of a registry, and undecodable bodies."""

import json
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from penstock.errors import ConfigError, FetchFailed, PenstockError
from penstock.net.fetch import public
from penstock.net.outgoing import words_of
from penstock.nsqdapi.blocking import FAILURES

Registry: TypeAlias = Callable[[int], str]
OnError: TypeAlias = Literal["null", "raise"]
Convert: TypeAlias = Callable[[Any], Any]  # what a library has decoded, as pyarrow takes it
_FRAME = struct.Struct(">bI")
_WORDS_CHARS = 200


class BodyUndecodable(PenstockError, ValueError):
    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"the body in row {row} can't be decoded: {reason}")
        self.row = row
        self.reason = reason


class Undecodable(Exception):
    """One body, or a schema of the registry, cannot be decoded."""


_UNFIT = (pa.ArrowException, ValueError, OverflowError)  # what pyarrow raises for a value


class Decoder:
    type: pa.StructType

    def __init__(self, registry: Registry | None, on_error: OnError, **arguments: object) -> None:
        if on_error not in ("null", "raise"):
            raise ConfigError("on_error", on_error, 'must be "null" or "raise"')
        self._arguments: dict[str, Any] = {"registry": registry, "on_error": on_error, **arguments}
        self._registry = registry
        self._raises = on_error == "raise"
        self._writers: dict[int, Any] = {}
        self._refused: dict[int, str] = {}  # asked for again in the next batch

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), ()

    def __call__(self, bodies: pa.Array) -> pa.Array:
        """A StructArray, also for a ChunkedArray. Spark's arrow_udf wants these annotations, and
        not as text."""
        return self.with_reasons(bodies)[0]

    def with_reasons(
        self, bodies: pa.Array | pa.ChunkedArray
    ) -> tuple[pa.StructArray, pa.StringArray]:
        """One of the two is null in each row; both are where there is no body."""
        self._refused.clear()
        found = [self._attempt(body) for body in bodies.to_pylist()]
        try:
            values = pa.array([value for value, _ in found], self.type)
        except _UNFIT:
            found = [self._fitting(value, reason) for value, reason in found]
            values = pa.array([value for value, _ in found], self.type)
        if self._raises:
            for row, (_, reason) in enumerate(found):
                if reason is not None:
                    raise BodyUndecodable(row, reason)
        return values, pa.array([reason for _, reason in found], pa.string())

    def _attempt(self, body: bytes | None) -> tuple[Any, str | None]:
        if body is None:
            return None, None
        try:
            return self._decoded(body), None
        except Undecodable as error:
            return None, str(error)

    def _fitting(self, value: Any, reason: str | None) -> tuple[Any, str | None]:
        """A number or a time may be valid, and beyond the range of Arrow's type."""
        try:
            pa.array([value], self.type)
        except _UNFIT as error:
            return None, f"it does not fit {self.type}: {error}"
        return value, reason

    def _opened(self, body: bytes) -> tuple[int, bytes]:
        if len(body) < _FRAME.size or body[0] != 0:
            raise Undecodable("it has no frame of a schema registry")
        return _FRAME.unpack_from(body)[1], body[_FRAME.size :]

    def _writer(self, registry: Registry, schema_id: int) -> Any:
        if schema_id not in self._writers and schema_id not in self._refused:
            try:
                self._writers[schema_id] = self._parsed(registry(schema_id))
            except LookupError:
                self._refused[schema_id] = f"the registry has no schema {schema_id}"
            except Undecodable as error:
                self._refused[schema_id] = f"schema {schema_id}: {error}"
        if schema_id in self._refused:
            raise Undecodable(self._refused[schema_id])
        return self._writers[schema_id]

    def _decoded(self, body: bytes) -> Any:
        """Raises Undecodable."""
        raise NotImplementedError

    def _parsed(self, text: str) -> Any:
        """A writer's schema. Raises Undecodable."""
        raise NotImplementedError


def same(value: Any) -> Any:
    return value


def words(error: Exception) -> str:
    """Cut, because fastavro names whole schemas, and a batch may have an error in each row."""
    text = words_of(error)
    return text if len(text) <= _WORDS_CHARS else f"{text[:_WORDS_CHARS]}..."


# --- Confluent's registry, and those that speak as it does ---


_UNKNOWN = b"40403"  # the code that goes with a 404, which may also be of a wrong address


class SchemaRegistry:
    """`headers` are sent along, such as an Authorization. An Avro schema comes with its references,
    one of Protobuf as the base64 text of its FileDescriptorProto."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError("url", public(url), "must be http://host:port or https://host:port")
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._ca_file = ca_file
        self._timeout_s = timeout_s

    def __call__(self, schema_id: int) -> str:
        """Raises LookupError for an unknown schema, else FetchFailed."""
        path = f"/schemas/ids/{schema_id}"
        document = self._document(path)
        if document.get("schemaType") == "PROTOBUF":
            document = self._document(f"{path}?format=serialized")
        elif document.get("references"):
            document = self._document(f"{path}?format=resolved")
        return str(document["schema"])

    def _document(self, path: str) -> dict[str, Any]:
        url = self._url + path
        request = urllib.request.Request(url, headers=self._headers)
        secure = url.startswith("https:")
        tls = ssl.create_default_context(cafile=self._ca_file) if secure else None
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=tls) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:  # it is an answer, too
                is_unknown = _UNKNOWN in error.read()
            if is_unknown:
                raise LookupError(public(url)) from None
            raise FetchFailed(public(url), f"got response {error.code}", error.code) from error
        except (*FAILURES, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = words_of(reason) if isinstance(reason, Exception) else str(reason)
            raise FetchFailed(public(url), text) from error
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            raise FetchFailed(public(url), "the answer is not a schema registry's", 200)
        return document
