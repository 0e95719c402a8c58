"""Documents as JSON: each field's rules, used for reading and for writing.

A document is an object with its form's version, `v`, and exactly the fields of the form; one that
is OPTIONAL is left out where it has its default. A field that is not known is refused, not skipped:
whoever puts a document back would lose it. A cluster writes a newer form only when all its nodes
read it (its feature level says so).
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from penstock.errors import DocumentBroken
from penstock.limits import DOCUMENT_BYTES_MAX, DOCUMENT_SETTINGS_MAX, DOCUMENT_TEXT_CHARS_MAX

_T = TypeVar("_T")


class Unfit(Exception):
    """A value breaks a rule. It becomes a DocumentBroken that also names field and key."""

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(rule)
        self.value = value
        self.rule = rule


class FieldKind(NamedTuple):
    read: Callable[[Any], Any]  # raises Unfit
    write: Callable[[Any], Any]


OPTIONAL = object()  # annotates a field that came later: earlier builds neither write nor read it
_NEEDED = object()  # the default of all others


class Field(NamedTuple):
    name: str  # in JSON
    kind: FieldKind
    attribute: str  # of the document
    default: Any = _NEEDED


class Form(NamedTuple, Generic[_T]):
    make: Callable[..., _T]
    version: int
    fields: tuple[Field, ...]

    def encode(self, document: _T) -> bytes:
        shaped: dict[str, Any] = {"v": self.version}
        shaped.update(_write_fields(self.fields, document))
        return json.dumps(shaped, separators=(",", ":"), allow_nan=False).encode()

    def decode(self, key: str, data: bytes) -> _T:
        """Raises DocumentBroken."""
        found = _parsed(key, data)
        version = found.pop("v", None)
        if type(version) is not int or version != self.version:
            raise DocumentBroken(key, "v", version, f"this release reads version {self.version}")
        values = {}
        for name, kind, attribute, default in self.fields:
            if name not in found and default is not _NEEDED:
                values[attribute] = default
                continue
            if name not in found:
                raise DocumentBroken(key, name, None, "the field is missing")
            try:
                values[attribute] = kind.read(found.pop(name))
            except Unfit as error:
                raise DocumentBroken(key, name, error.value, error.rule) from None
        if found:
            raise DocumentBroken(key, min(found), found[min(found)], "no such field is known")
        return self.make(**values)


def form_of(make: type[_T]) -> Form[_T]:
    """Derived from the types of the fields, `Annotated` with their kinds."""
    hints = get_type_hints(make, include_extras=True)
    defaults: dict[str, Any] = make._field_defaults  # type: ignore[attr-defined]
    fields = []
    for name, hint in hints.items():
        kind, *more = hint.__metadata__
        fields.append(Field(name, kind, name, defaults[name] if OPTIONAL in more else _NEEDED))
    return Form(make, 1, tuple(fields))


def _write_fields(fields: Iterable[Field], document: Any) -> dict[str, Any]:
    return {
        name: kind.write(value)
        for name, kind, attribute, default in fields
        if (value := getattr(document, attribute)) != default
    }


def _parsed(key: str, data: bytes) -> dict[str, Any]:
    if len(data) > DOCUMENT_BYTES_MAX:
        rule = f"at most {DOCUMENT_BYTES_MAX} bytes are read"
        raise DocumentBroken(key, "", f"{len(data)} bytes", rule)
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentBroken(key, "", data, f"it is no JSON document ({error})") from None
    if not isinstance(found, dict):
        raise DocumentBroken(key, "", found, "a document is an object")
    return found


# --- kinds ---


def _as_it_is(is_fit: Callable[[Any], bool], rule: str) -> FieldKind:
    def read(value: Any) -> Any:
        if not is_fit(value):
            raise Unfit(value, rule)
        return value

    return FieldKind(read, lambda value: value)


def integer(least: int, most: int) -> FieldKind:
    return _as_it_is(
        lambda value: type(value) is int and least <= value <= most,
        f"it is a whole number from {least} to {most}",
    )


def hexadecimal(digits: int) -> FieldKind:
    """Random numbers are text: many readers of JSON keep only 53 bits of a number."""
    is_hex = re.compile(f"[0-9a-f]{{{digits}}}").fullmatch

    def read(value: Any) -> int:
        if type(value) is not str or not is_hex(value):
            raise Unfit(value, f"it is a text of {digits} digits, 0 to 9 and a to f")
        return int(value, 16)

    return FieldKind(read, lambda number: f"{number:0{digits}x}")


FLAG = _as_it_is(lambda value: type(value) is bool, "it is true or false")


def text(chars_max: int = DOCUMENT_TEXT_CHARS_MAX) -> FieldKind:
    return _as_it_is(
        lambda value: type(value) is str and len(value) <= chars_max,
        f"it is a text of at most {chars_max} characters",
    )


def one_of(*choices: str) -> FieldKind:
    return _as_it_is(
        lambda value: type(value) is str and value in choices, f"it is one of {', '.join(choices)}"
    )


def list_of(kind: FieldKind, count_max: int) -> FieldKind:
    """A list; a tuple in the program."""

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > count_max:
            raise Unfit(value, f"it is a list of at most {count_max}")
        return tuple(kind.read(one) for one in value)

    return FieldKind(read, lambda values: [kind.write(one) for one in values])


def optional(kind: FieldKind) -> FieldKind:
    return FieldKind(
        lambda value: None if value is None else kind.read(value),
        lambda value: None if value is None else kind.write(value),
    )


def parts(make: Callable[..., Any], **kinds: FieldKind) -> FieldKind:
    """An object inside the document."""

    def read(value: Any) -> Any:
        if type(value) is not dict or value.keys() != kinds.keys():
            raise Unfit(value, f"it is an object with the fields {', '.join(kinds)}")
        return make(**{name: kind.read(value[name]) for name, kind in kinds.items()})

    fields = [Field(name, kind, name) for name, kind in kinds.items()]
    return FieldKind(read, lambda document: _write_fields(fields, document))


_TEXT = text()


def _read_settings(value: Any) -> tuple[tuple[str, Any], ...]:
    if type(value) is not dict or len(value) > DOCUMENT_SETTINGS_MAX:
        raise Unfit(value, f"it is an object of at most {DOCUMENT_SETTINGS_MAX} settings")
    for one in value.values():
        if type(one) is str:
            _TEXT.read(one)
        elif type(one) not in (int, float, bool):
            raise Unfit(one, "a setting is a text, a number, true or false")
    return tuple(sorted(value.items()))


# Pairs: documents are values.
SETTINGS = FieldKind(_read_settings, lambda pairs: dict(sorted(pairs)))
