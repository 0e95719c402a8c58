"""Options from four places: command line, environment, TOML file, default; the first one wins.

The command line is Go's: `-flag` and `--flag` are the same, a value follows after `=` or as the
next word, a boolean is true when bare and takes a value only after `=`, `--` ends the flags. List
flags may be repeated. In the file and the environment a flag goes by its key, which is the flag
with underscores unless the table says otherwise; the variable is `PENSTOCK_<KEY>`. An unknown key
or variable is refused: somebody would believe in the setting.

A mistake on the command line is a `UsageError` (exit code 2); one in the file or the environment
is a `ConfigError` (exit code 1).
"""

import math
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from penstock import limits
from penstock.command.environment import PREFIX, check_names, nearest, unknown
from penstock.durations import format_duration, parse_duration
from penstock.errors import ConfigError, PenstockError

LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class UsageError(PenstockError):
    """The command line cannot be understood."""


class HelpWanted(PenstockError):
    """`-h` or `--help`."""


class Kind(Enum):
    STRING = "string"
    INT = "int"
    FLOAT = "float"
    DURATION = "duration"
    BOOL = ""
    STRINGS = "value"  # a list: repeatable, and comma separated
    FLOATS = "value "  # the same, of numbers
    REPEATED = "value  "  # a list whose members may hold commas: repeatable only


@dataclass(frozen=True)
class Flag:
    name: str
    kind: Kind
    default: Any
    help: str
    key: str = ""
    has_effect: bool = True  # else it is accepted, and the log says once that it has none
    choices: tuple[str, ...] = ()
    bare: str = ""  # what the flag means without a value, where that is allowed
    bounds: tuple[int, int | None] | None = None  # lowest and highest; None: there is none

    @property
    def file_key(self) -> str:
        return self.key or self.name.replace("-", "_")

    @property
    def attribute(self) -> str:
        base = self.name.replace("-", "_")
        return base + "_ns" if self.kind is Kind.DURATION else base

    def check(self, value: Any) -> None:
        """Raises ConfigError when it is out of the bounds."""
        lowest, highest = self.bounds or (None, None)
        if (lowest is not None and value < lowest) or (highest is not None and value > highest):
            least, most, shown = map(self._shown, (lowest, highest, value))
            rule = f"{least} at least" if highest is None else f"{least} to {most}"
            raise ConfigError(self.name, shown, rule)

    def _shown(self, value: Any) -> Any:
        return format_duration(value) if self.kind is Kind.DURATION and value else value


# --- a daemon's options: a dataclass whose fields are the flags ---

Options = TypeVar("Options")
_KINDS = {
    str: Kind.STRING, int: Kind.INT, float: Kind.FLOAT, bool: Kind.BOOL,
    tuple[str, ...]: Kind.STRINGS, tuple[float, ...]: Kind.FLOATS,
}  # fmt: skip


def flag(default: Any, help: str, **more: Any) -> Any:
    """A field that is a flag of the same name and kind; of a duration the name ends in `_ns`, which
    the flag omits. `more` as in `Flag`."""
    return field(metadata={"flag": (default, help), "more": more})


def flags_of(options: type) -> tuple[Flag, ...]:
    found = []
    for one in fields(options):
        if "flag" in one.metadata:
            is_duration = one.type is int and one.name.endswith("_ns")
            kind = Kind.DURATION if is_duration else _KINDS[one.type]  # type: ignore[index]
            name = one.name.removesuffix("_ns") if is_duration else one.name
            flag = Flag(name.replace("_", "-"), kind, *one.metadata["flag"], **one.metadata["more"])
            found.append(flag)
    return tuple(found)


def options_of(kind: type[Options], values: Mapping[str, Any], **more: Any) -> Options:
    """`values`: by attribute. `more`: of fields that are no flags."""
    return kind(**{flag.attribute: values[flag.attribute] for flag in flags_of(kind)}, **more)


def resolve(
    flags: Sequence[Flag], arguments: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Values by attribute name. Raises UsageError, ConfigError and HelpWanted."""
    given = parse_command_line(flags, arguments)
    if not given.get("version"):
        check_names({variable(flag) for flag in flags}, environment)
    from_environment = read_environment(flags, environment)
    config_path = given.get("config", from_environment.get("config", ""))
    from_file = read_file(flags, config_path) if config_path else {}
    explicit = ChainMap(given, from_environment, from_file)
    values = {flag.attribute: explicit.get(flag.name, flag.default) for flag in flags}
    for flag in flags if not explicit.get("version") else ():
        flag.check(values[flag.attribute])
    return values


# --- the command line ---


def parse_command_line(flags: Sequence[Flag], arguments: Sequence[str]) -> dict[str, Any]:
    by_name = {flag.name: flag for flag in flags}
    values: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if len(word) < 2 or not word.startswith("-"):
            raise UsageError(f"unexpected argument: {word}")
        if word == "--":
            rest = next(words, None)
            if rest is not None:
                raise UsageError(f"unexpected argument: {rest}")
            break
        name, equals, text = word[2 if word.startswith("--") else 1 :].partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"bad flag syntax: {word}")
        flag = by_name.get(name)
        if flag is None:
            if name in ("help", "h"):
                raise HelpWanted
            near = nearest(name, by_name)
            meant = f"; is it -{near}?" if near else ""
            raise UsageError(f"flag provided but not defined: -{name}{meant}")
        _take(values, flag, text if equals else _implied_text(flag, words))
    return values


def _implied_text(flag: Flag, words: Iterator[str]) -> str:
    if flag.kind is Kind.BOOL:
        return "true"
    if flag.bare:
        return flag.bare
    text = next(words, None)
    if text is None:
        raise UsageError(f"flag needs an argument: -{flag.name}")
    return text


def _take(values: dict[str, Any], flag: Flag, text: str) -> None:
    try:
        value = value_from_text(flag, text)
    except ValueError as error:
        raise UsageError(f'invalid value "{text}" for flag -{flag.name}: {error}') from error
    if flag.kind in (Kind.STRINGS, Kind.FLOATS, Kind.REPEATED):
        values[flag.name] = values.get(flag.name, ()) + value
    else:
        values[flag.name] = value


# --- values ---


def value_from_text(flag: Flag, text: str) -> Any:
    """Raises ValueError with the rule."""
    return _chosen(flag, _FROM_TEXT[flag.kind](text))


def _chosen(flag: Flag, value: Any) -> Any:
    if not flag.choices:
        return value
    lowered = value.lower()
    if lowered not in flag.choices:
        known = ", ".join(choice or "''" for choice in flag.choices)
        raise ValueError(f"one of {known}")
    return lowered


def _int_from_text(text: str) -> int:
    try:
        number = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise ValueError("a whole number is wanted") from None
    return _within_64_bits(number)


def _within_64_bits(number: int) -> int:
    """As in Go's flags, and in the kernel."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("a number of 64 bits is wanted")
    return number


def _float_from_text(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number is wanted") from None
    if not math.isfinite(value):
        raise ValueError("a number is wanted")
    return value


def _bool_from_text(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("true or false is wanted")
    return _BOOLEANS[text]


def _strings_from_text(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _floats_from_text(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _strings_from_text(text))
    except ValueError:
        raise ValueError("numbers separated by commas are wanted") from None


_FROM_TEXT: dict[Kind, Callable[[str], Any]] = {
    Kind.STRING: str,
    Kind.INT: _int_from_text,
    Kind.FLOAT: _float_from_text,
    Kind.DURATION: parse_duration,
    Kind.BOOL: _bool_from_text,
    Kind.STRINGS: _strings_from_text,
    Kind.FLOATS: _floats_from_text,
    Kind.REPEATED: lambda text: (text,),
}


def value_from_toml(flag: Flag, value: Any) -> Any:
    """A value of the file: of its own type if that fits, or text as on the command line."""
    if isinstance(value, bool):
        if flag.kind is Kind.BOOL:
            return value
        if flag.kind is Kind.STRING:
            return _chosen(flag, str(value).lower())
    elif isinstance(value, str):
        return value_from_text(flag, value)
    elif isinstance(value, int | float) and flag.kind is Kind.FLOAT:
        return _float_from_text(str(value))
    elif isinstance(value, int):
        if flag.kind is Kind.INT:
            return _within_64_bits(value)
        if flag.kind is Kind.DURATION:
            return _within_64_bits(value * limits.MS)
        if flag.kind is Kind.BOOL and value in (0, 1):
            return bool(value)
    elif isinstance(value, list) and flag.kind in (Kind.STRINGS, Kind.FLOATS, Kind.REPEATED):
        return tuple(part for item in value for part in value_from_text(flag, str(item)))
    raise ValueError(f"the type {type(value).__name__} does not fit")


# --- environment and file ---


def read_environment(
    flags: Sequence[Flag], environment: Mapping[str, str], prefix: str = PREFIX
) -> dict[str, Any]:
    values = {}
    for flag in flags:
        name = variable(flag, prefix)
        text = environment.get(name)
        if text is not None:
            try:
                values[flag.name] = value_from_text(flag, text)
            except ValueError as error:
                raise ConfigError(name, text, str(error)) from error
    return values


def variable(flag: Flag, prefix: str = PREFIX) -> str:
    return prefix + flag.file_key.upper()


def read_file(flags: Sequence[Flag], path: str) -> dict[str, Any]:
    document = read_document(path)
    _check_keys(flags, path, document)
    return values_of_document(flags, document, f"{path}: ")


def read_document(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("config", path, f"failed to load the file: {error}") from error


def values_of_document(
    flags: Iterable[Flag], document: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """By flag, where the document has its key. In an error `where` precedes the key."""
    values = {}
    for flag in flags:
        if flag.file_key in document:
            value = document[flag.file_key]
            try:
                values[flag.name] = value_from_toml(flag, value)
            except ValueError as error:
                raise ConfigError(f"{where}{flag.file_key}", value, str(error)) from error
    return values


def _check_keys(flags: Sequence[Flag], path: str, document: Mapping[str, Any]) -> None:
    """An unknown key is an option that its author believes to be set."""
    keys = {flag.file_key for flag in flags}
    for key in document:
        if key not in keys:
            names = {flag.name.replace("-", "_"): flag.file_key for flag in flags}
            rule = unknown("key", key, keys)
            if key in names:  # worker_id is one, node_id is not: NSQ calls it id
                rule = f"the key of -{key.replace('_', '-')} is {names[key]}"
            raise ConfigError(path, key, rule)


# --- help ---


def usage(program: str, flags: Sequence[Flag]) -> str:
    lines = [f"Usage of {program}:"]
    for flag in flags:
        kind = f" {flag.kind.value.strip()}" if flag.kind.value else ""
        lines.append(f"  -{flag.name}{kind}")
        lines.append(f"    \t{_help_text(flag)}")
    return "\n".join(lines) + "\n"


def _help_text(flag: Flag) -> str:
    notes = []
    if not flag.has_effect:
        notes.append("no effect")
    if flag.default not in ("", (), False):
        notes.append(f"default {_default_text(flag)}")
    return flag.help + (f" ({'; '.join(notes)})" if notes else "")


def _default_text(flag: Flag) -> str:
    if flag.kind is Kind.DURATION:
        return format_duration(flag.default)
    return "true" if flag.default is True else str(flag.default)
