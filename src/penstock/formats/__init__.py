"""Bodies in Avro or Protobuf as Arrow structs, with the frame of Confluent's serializers: a zero
byte, the id of the writer's schema in four bytes, for Protobuf the index of the message, and the
message. Needs the extra `formats`.

    registry = SchemaRegistry("http://registry:8081")
    decode = AvroDecoder(schema, registry)
    values = decode(table["body"])  # a StructArray of the type decode.type

A decoder is made once, for one schema of the reader's, so that all batches have one Arrow type;
what was written with another schema is resolved against it. It is a function of an Arrow array, and
can be pickled: for `arrow_udf` and `mapInArrow` of Spark, or for DuckDB. A registry is any function
from an id to the text of a schema, such as `{7: text}.__getitem__`; one that has no such schema
raises a LookupError.

A body that can't be decoded is null, and `with_reasons` tells why; or, with `on_error="raise"`, it
is a BodyUndecodable. A registry that can't be asked is an error in either case.
"""

from penstock.command.extras import lacks_extra

try:
    from penstock.formats.avro import AvroDecoder
    from penstock.formats.decoder import BodyUndecodable, SchemaRegistry
    from penstock.formats.protobuf import ProtobufDecoder
except ModuleNotFoundError as error:
    raise ImportError(lacks_extra("penstock.formats", "formats", error)) from error

__all__ = ["AvroDecoder", "BodyUndecodable", "ProtobufDecoder", "SchemaRegistry"]
