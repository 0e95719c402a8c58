"""Which stored messages are looked for: a text somewhere in them, and terms such as

    status=paid total>100 customer.name="van Gogh" header.source=web key=4711 size>1000

all of which must hold. A term is a name, one of = != < <= > >=, and a value; quotes hold blanks
together. `key`, `id`, `attempts`, `size`, `trace` and `header.NAME` are the message's own, any
other name is a field of a JSON body, with dots on the way into it (`items.0.price`). Two numbers
are compared as numbers, other values as text; what is not there is only unequal.

Nothing is evaluated: a term is taken apart here and compared. Messages come masked, so what is not
shown can't be found out by asking for it either.
"""

import json
import operator
import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import limits
from penstock.nsqadmin.messages import MASK, InputInvalid, Message

_TERM = re.compile(r"([^\s=<>!]+)(!=|[<>]=?+(?=.)|=)(.*)", re.DOTALL)  # = "" is a value
_EXAMPLES = "status=paid, total>100 or header.source=web"
_MISSING = object()
_NONE: Any = object()


class Term(NamedTuple):
    name: str
    sign: str
    value: str

    def holds(self, found: Any) -> bool:
        if found is _MISSING or found == MASK:
            return self.sign == "!="
        left, right = _number(found), _number(self.value)
        if left is not None and right is not None:
            return _SIGNS[self.sign](left, right)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        if self.sign in ("=", "!=") or isinstance(found, str):
            return _SIGNS[self.sign](text, self.value)
        return False


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def _number(value: Any) -> float | None:
    """Whole numbers stay exact, however large."""
    if isinstance(value, str) and len(value) > limits.ADMIN_DIGITS_MAX:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value) if isinstance(value, int | str) else value
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


class Criteria(NamedTuple):
    """Holds for every message when it is empty."""

    contains: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.contains or self.terms)

    def hold(self, message: Message) -> bool:
        if not has_text(message, self.contains):
            return False
        body: Any = _NONE
        for term in self.terms:
            found = _own(message, term.name)
            if found is _NONE:
                body = _document(message) if body is _NONE else body
                found = _field(body, term.name)
            if not term.holds(found):
                return False
        return True


EVERYTHING = Criteria()


def read(contains: str, where: str = "") -> Criteria:
    """The text of both fields. Raises InputInvalid."""
    if len(contains) + len(where) > limits.ADMIN_CRITERIA_CHARS:
        raise InputInvalid(f"{where[:50]!r} is longer than {limits.ADMIN_CRITERIA_CHARS}")
    try:
        parts = shlex.split(where)
    except ValueError as error:
        raise InputInvalid(f"{where!r} has a quote without its other one") from error
    terms = []
    for part in parts:
        matched = _TERM.fullmatch(part)
        if matched is None:
            raise InputInvalid(f"{part!r} is no term such as {_EXAMPLES}")
        terms.append(Term(matched[1], matched[2], matched[3]))
    return Criteria(contains, tuple(terms))


def has_text(message: Message, text: str) -> bool:
    if not text:
        return True
    raw = text.encode("utf-8", "replace")
    return (
        raw in message.body
        or raw in (message.key or b"")
        or text.lower() == message.id
        or any(text in f"{name}{value}" for name, value in message.headers.items())
    )


def _own(message: Message, name: str) -> Any:
    """The message's own value of that name; _NONE: it may be a field of its body."""
    if name.startswith(("header.", "header:")):
        return message.headers.get(name[7:], _MISSING)
    if name == "key":
        return _MISSING if message.key is None else message.key.decode("utf-8", "replace")
    if name in ("id", "attempts"):
        return getattr(message, name)
    if name == "size":
        return len(message.body)
    if name == "trace":
        return message.trace_id or _MISSING
    return _NONE


def _document(message: Message) -> Any:
    try:
        return json.loads(message.body)
    except (ValueError, RecursionError):
        return _MISSING


def _field(document: Any, name: str) -> Any:
    if isinstance(document, dict) and name in document:
        return document[name]
    found = document
    for part in name.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return _MISSING
    return found
