"""What a schema would drop of a JSON object, kept as JSON: the rescue column.

Spark's `from_json` leaves out members that the schema does not name, and gives null for a value
that is not of its type. Both are silent. Here the object is parsed a second time without a schema
(a variant), and what of it is not found in the first one's columns is what was dropped: a member
without a column; a value whose column is null although the value is not. Inside structs only the
members that are concerned are kept, arrays and maps are kept whole, so that the places of their
elements are not lost.

All of it is Spark's own expressions: no Python runs for a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, ByteType, DataType, DecimalType, MapType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXACT = "decimal(38,18)"  # to compare numbers of types that cut off digits without a word


def rescued(schema: StructType, parsed: Column, document: Column) -> Column:
    """JSON text, null where nothing is dropped. `document` is the variant of an object, `parsed`
    what from_json has made of it."""
    dropped = _dropped_members(schema, parsed, document)
    return F.when(F.size(dropped) > 0, F.to_json(F.to_variant_object(dropped)))


def _dropped_members(schema: StructType, parsed: Column, document: Column) -> Column:
    """A map of variants, by name."""
    members = F.try_variant_get(document, "$", "map<string,variant>")

    def dropped(name: Column, member: Column) -> Column:
        found = F.when(F.lit(False), member)
        for field in schema.fields:
            value = parsed.getField(field.name)
            found = found.when(name == field.name, _dropped(field.dataType, value, member))
        return found.otherwise(member)

    return F.map_filter(F.transform_values(members, dropped), lambda _, left: left.isNotNull())


def _dropped(kind: DataType, value: Column, original: Column) -> Column:
    """A variant, null where nothing is dropped."""
    if not isinstance(kind, StructType):
        return F.when(_is_dropped(kind, value, original), original)
    inside = _dropped_members(kind, value, original)
    return F.when(_is_nothing(value, original), original).when(
        F.size(inside) > 0, F.to_variant_object(inside)
    )


def _is_dropped(kind: DataType, value: Column, original: Column) -> Column:
    """Something of this value, wherever in it."""
    nothing = _is_nothing(value, original)
    if isinstance(kind, StructType):
        return nothing | F.coalesce(
            F.size(_dropped_members(kind, value, original)) > 0, F.lit(False)
        )
    if isinstance(kind, ArrayType):
        element = kind.elementType
        pairs = F.zip_with(
            value,
            F.try_variant_get(original, "$", "array<variant>"),
            lambda one, other: _is_dropped(element, one, other),
        )
        return nothing | F.coalesce(F.exists(pairs, lambda dropped: dropped), F.lit(False))
    if isinstance(kind, MapType):
        inner = kind.valueType
        entries = F.map_entries(F.try_variant_get(original, "$", "map<string,variant>"))
        lost = F.exists(
            entries, lambda entry: _is_dropped(inner, value[entry["key"]], entry["value"])
        )
        return nothing | F.coalesce(lost, F.lit(False))
    if isinstance(kind, ByteType | DecimalType):
        exact = F.try_variant_get(original, "$", _EXACT)
        return nothing | F.coalesce(value.try_cast(_EXACT) != exact, F.lit(False))
    return nothing


def _is_nothing(value: Column, original: Column) -> Column:
    """Null, although the original is not."""
    return value.isNull() & original.isNotNull() & ~F.is_variant_null(original)
