"""Regular expressions of auth servers, of `/log/positions` and of filters, in Go's syntax.

They are written for Go's `regexp`, whose matcher takes time in proportion to the text, whatever the
pattern. RE2 is where that comes from, so RE2 itself matches here: Python's `re` would take for ever
on some patterns, and knows a few other rules. RE2 takes two things that Go refuses: two groups of
one name, which makes no difference here, and `\\C`, a byte of what may be half a character, which
is refused.

A filter over headers that has globs gets such patterns from them: `*` is any text, `?` one
character, `[a-z]` one of a class (`[!a-z]` one of none), `{a,b}` one of several, and a backslash
takes the meaning from what follows.
"""

import re

from penstock import limits
from penstock.command.extras import how_to_install
from penstock.errors import PenstockError
from penstock.kernel import Filter, Rule
from penstock.wire.extfilter import ExtFilter, FilterType, refuse

try:
    import re2  # type: ignore[import-untyped]
except ModuleNotFoundError:
    re2 = None
else:
    _OPTIONS = re2.Options()
    _OPTIONS.log_errors = False  # it would write to stderr
    _OPTIONS.max_mem = limits.AUTH_PATTERN_MEMORY_BYTES_MAX

_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_CLASS = re.compile(r"\[(!?)((?:\\.|[^\]\\])+)\]", re.DOTALL)


class PatternInvalid(PenstockError):
    pass


def need_patterns(what: str) -> None:
    """Raises PenstockError where nothing can match them."""
    if re2 is None:
        raise PenstockError(f"{what} needs the extra `auth`: {how_to_install('auth')}")


class Pattern:
    """Raises PatternInvalid for patterns that Go would not compile, or that are too large."""

    def __init__(self, text: str) -> None:
        if re2 is None:
            raise PatternInvalid("this nsqd lacks the extra `auth`, which matches patterns")
        if len(text) > limits.AUTH_PATTERN_BYTES_MAX:
            raise PatternInvalid("it is too long")
        if _BYTE.search(text):
            raise PatternInvalid("\\C is not allowed")
        self.text = text
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except UnicodeEncodeError as error:
            raise PatternInvalid("it is no UTF-8") from error
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise PatternInvalid(text) from error

    def matches(self, name: str) -> bool:
        """Somewhere in `name`."""
        return self._compiled.search(name) is not None

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def kernel_filter(wanted: ExtFilter) -> Filter:
    """In the form of the kernel. Raises WireFault."""
    rules = tuple(_rule(wanted.type, name, data) for name, data in wanted.rules)
    return Filter(rules, wanted.every, wanted.inverse)


def _rule(type_: FilterType, name: str, data: str) -> Rule:
    header = name.encode("utf-8", "replace")
    if type_ is FilterType.REGEXP:
        return Rule(header, b"", _compiled(data, "regular expression").matches)
    if type_ is FilterType.GLOB:
        return Rule(header, b"", _compiled(glob_pattern(data), "glob").matches)
    return Rule(header, data.encode("utf-8", "replace"))


def _compiled(pattern: str, kind: str) -> Pattern:
    try:
        return Pattern(pattern)
    except PatternInvalid as error:
        refuse(f"filter_data is no {kind}: {error}")


def glob_pattern(glob: str) -> str:
    """Raises WireFault."""
    parts = []
    depth = at = 0
    while at < len(glob):
        char = glob[at]
        found = _CLASS.match(glob, at) if char == "[" else None
        at += 1
        if found is not None:
            members = found[2].replace("^", "\\^")
            parts.append(f"[^{members}]" if found[1] else f"[{members}]")
            at = found.end()
        elif char == "\\" and at < len(glob):
            parts.append(re.escape(glob[at]))
            at += 1
        elif char in "*?":
            parts.append(".*" if char == "*" else ".")
        elif char == "{":
            parts.append("(?:")
            depth += 1
        elif char == "}" and depth:
            parts.append(")")
            depth -= 1
        elif char == "," and depth:
            parts.append("|")
        else:
            parts.append(re.escape(char))
    if depth:
        refuse("filter_data is no glob: a { is not closed")
    return f"(?s)\\A(?:{''.join(parts)})\\z"
