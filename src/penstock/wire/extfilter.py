"""IDENTIFY's `ext_filter`: the messages of an extended topic that a consumer wants.

    {"type": 1, "filter_ext_key": "color", "filter_data": "red", "inverse": false}
    {"type": 4, "filter_ext_key": "all", "filter_data_list":
        [{"filter_ext_key": "color", "filter_data": "red"}, ...]}

Types 1, 2 and 3 compare one header with a text, a regular expression of Go or a glob; type 4 has
several texts, of which any or all must be equal. `inverse` turns the answer round. Type 0, or none,
is no filter. As everywhere in IDENTIFY a value of the wrong type makes the body unreadable; values
that say nothing are refused by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

from penstock import limits
from penstock.wire.errors import Fault, WireFault
from penstock.wire.names import quote


class FilterType(IntEnum):
    NONE = 0
    EXACT = 1
    REGEXP = 2
    GLOB = 3
    MULTI = 4


@dataclass(frozen=True, slots=True)
class ExtFilter:
    type: FilterType
    rules: tuple[tuple[str, str], ...]  # name of a header, what it is compared with
    every: bool = False  # MULTI: all of them must match
    inverse: bool = False


Pairs = Sequence[tuple[str, Any]]  # a JSON object as it was sent
_KINDS: dict[str, type] = {
    "type": int,
    "inverse": bool,
    "filter_ext_key": str,
    "filter_data": str,
    "filter_data_list": list,
}
_RELATIONS = ("any", "all")


def refuse(reason: str) -> NoReturn:
    raise WireFault(Fault.BAD_FILTER, reason.encode("utf-8", "replace"))


def parse_filter(pairs: Pairs) -> ExtFilter | None:
    """Raises WireFault."""
    fields = _fields(pairs)
    number = fields.get("type", 0)
    if number == FilterType.NONE:
        return None
    if number not in FilterType.__members__.values():
        refuse(f"type {number} is none of 1, 2, 3, 4")
    type_ = FilterType(number)
    inverse = fields.get("inverse", False)
    if type_ is FilterType.MULTI:
        return ExtFilter(type_, every=_is_all(fields), rules=_rules(fields), inverse=inverse)
    return ExtFilter(type_, (_rule(fields),), False, inverse)


def _fields(pairs: Pairs) -> dict[str, Any]:
    """Keys match in any case, and the last one counts."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = key.casefold()
        kind = _KINDS.get(name)
        if kind is None or value is None:
            continue
        # an object is a list of pairs by now
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise WireFault(Fault.IDENTIFY_JSON)
        found[name] = value
    return found


def _rule(fields: dict[str, Any]) -> tuple[str, str]:
    for name in ("filter_ext_key", "filter_data"):
        text = fields.get(name, "")
        if not text:
            refuse(f"{name} is missing")
        if len(text) > limits.IDENTIFY_TEXT_CHARS_MAX:
            refuse(f"{name} has {len(text)} characters, at most {limits.IDENTIFY_TEXT_CHARS_MAX}")
    return fields["filter_ext_key"], fields["filter_data"]


def _is_all(fields: dict[str, Any]) -> bool:
    relation = fields.get("filter_ext_key", "")
    if relation not in _RELATIONS:
        named = quote(relation.encode("utf-8", "replace")).decode()
        refuse(f"filter_ext_key {named} of type 4 is neither any nor all")
    return bool(relation == "all")


def _rules(fields: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    entries = fields.get("filter_data_list", [])
    if not entries:
        refuse("filter_data_list is missing")
    if len(entries) > limits.FILTER_RULES_MAX:
        refuse(f"filter_data_list has {len(entries)} entries, at most {limits.FILTER_RULES_MAX}")
    for entry in entries:
        if not isinstance(entry, list) or not all(isinstance(pair, tuple) for pair in entry):
            raise WireFault(Fault.IDENTIFY_JSON)
    return tuple(_rule(_fields(entry)) for entry in entries)
