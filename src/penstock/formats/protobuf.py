"""Protobuf. A reader's message knows the fields of others by their numbers, so of the writer's
schema only the name of the message is looked at."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import Message

from penstock.errors import ConfigError
from penstock.formats.decoder import Convert, Decoder, OnError, Registry, Undecodable, same, words


class ProtobufDecoder(Decoder):
    """`message`: the reader's, a generated class, or its full name in `descriptors`, which is a
    FileDescriptorSet (`protoc --include_imports -o`). Bodies are framed; without a registry the
    index of a message is the one in the reader's own file. With `framed=False` each is bare."""

    def __init__(
        self,
        message: type[Message] | str,
        registry: Registry | None = None,
        *,
        descriptors: bytes = b"",
        framed: bool = True,
        on_error: OnError = "null",
    ) -> None:
        name = message if isinstance(message, str) else message.DESCRIPTOR.full_name
        if not isinstance(message, str):
            descriptors = _descriptor_set(message.DESCRIPTOR.file)
        super().__init__(registry, on_error, message=name, descriptors=descriptors, framed=framed)
        self._class = _message_class(name, descriptors)
        self._framed = framed
        own = descriptor_pb2.FileDescriptorProto()
        self._class.DESCRIPTOR.file.CopyToProto(own)
        self._own = dict(_messages(own.message_type, own.package))
        self.type, self._convert = _protobuf(self._class.DESCRIPTOR)

    def _decoded(self, body: bytes) -> Any:
        if self._framed:
            body = self._unframed(body)
        try:
            return self._convert(self._class.FromString(body))
        except Exception as error:  # of many kinds, for bytes that were never Protobuf
            raise Undecodable(f"not Protobuf: {words(error)}") from error

    def _unframed(self, body: bytes) -> bytes:
        schema_id, body = self._opened(body)
        numbers = _zigzag(body)
        try:
            count = next(numbers)[0]
            read = [next(numbers) for _ in range(count)] if count else [(0, 1)]
        except StopIteration:
            raise Undecodable("its frame ends within the index of the message") from None
        index = tuple(number for number, _ in read)
        names = self._own if self._registry is None else self._writer(self._registry, schema_id)
        if index not in names:
            raise Undecodable(f"schema {schema_id} has no message {index}")
        if names[index] != self._class.DESCRIPTOR.full_name:
            raise Undecodable(f"it is a {names[index]}")
        return body[read[-1][1] :]

    def _parsed(self, text: str) -> Any:
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
        except Exception as error:
            raise Undecodable(f"no serialized schema of Protobuf: {error}") from error
        return dict(_messages(file.message_type, file.package))


def _zigzag(data: bytes) -> Iterator[tuple[int, int]]:
    """Numbers, each with where it ends."""
    number = shift = 0
    for end, byte in enumerate(data, 1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield (number >> 1) ^ -(number & 1), end
            number = shift = 0


def _messages(
    listed: Sequence[descriptor_pb2.DescriptorProto], scope: str, above: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The full names of a file's messages, by index."""
    for number, message in enumerate(listed):
        name = f"{scope}.{message.name}" if scope else message.name
        yield (*above, number), name
        yield from _messages(message.nested_type, name, (*above, number))


def _descriptor_set(file: FileDescriptor) -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    names = set()

    def add(one: FileDescriptor) -> None:
        if one.name not in names:
            names.add(one.name)
            for dependency in one.dependencies:
                add(dependency)
            one.CopyToProto(found.file.add())

    add(file)
    return bytes(found.SerializeToString())


def _message_class(name: str, descriptors: bytes) -> Any:
    """In a pool of its own: another version of the same message may be loaded beside it."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except Exception as error:
        raise ConfigError("message", name, f"is not in the descriptors: {error}") from error


_PROTOBUF: Mapping[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),  # Spark has no unsigned types
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_GOOGLE = "google.protobuf."
_JSON = {_GOOGLE + name for name in ("Struct", "Value", "ListValue")}  # they hold themselves
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"{_GOOGLE}{name}Value" for name in _WRAPPED}


def _protobuf(message: Descriptor, within: tuple[str, ...] = ()) -> tuple[pa.DataType, Convert]:
    name = message.full_name
    if name in _JSON:
        return pa.string(), partial(json_format.MessageToJson, indent=None)
    if name in (_GOOGLE + "Timestamp", _GOOGLE + "Duration"):
        type = pa.timestamp("us", "UTC") if name.endswith("Timestamp") else pa.duration("us")
        return type, lambda time: time.seconds * 1_000_000 + time.nanos // 1000
    if name in within:
        raise ConfigError("message", name, "Arrow has no type for a message that holds itself")
    fields = [_field(field, (*within, name)) for field in message.fields]
    if name in _WRAPPERS:
        return fields[0][1:]
    type = pa.struct([(name, type) for name, type, _ in fields])
    return type, lambda value: {name: convert(value) for name, _, convert in fields}


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[str, pa.DataType, Convert]:
    """Its name, its type, and its getter."""
    name, nested = field.name, field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        (key_type, key), (type, one) = (_element(part, within) for part in nested.fields)
        return (
            name,
            pa.map_(key_type, type),
            lambda message: {key(k): one(v) for k, v in getattr(message, name).items()},
        )
    type, convert = _element(field, within)
    if field.is_repeated:
        return name, pa.list_(type), lambda message: [convert(v) for v in getattr(message, name)]
    if field.has_presence:
        return (
            name,
            type,
            lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
        )
    return name, type, lambda message: convert(getattr(message, name))


def _element(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    """One value of a field."""
    if field.message_type is not None:
        return _protobuf(field.message_type, within)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number, str(number))
    if field.type == field.TYPE_BYTES:
        return pa.binary(), same
    return _PROTOBUF[field.cpp_type], same
