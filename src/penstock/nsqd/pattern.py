"""Regular expressions of auth servers and of `/log/positions`, in Go's syntax.

They are written for Go's `regexp`, whose matcher takes time in proportion to the text, whatever the
pattern. RE2 is where that comes from, so RE2 itself matches here: Python's `re` would take for ever
on some patterns, and knows a few other rules. RE2 takes two things that Go refuses: two groups of
one name, which makes no difference here, and `\\C`, a byte of what may be half a character, which
is refused.
"""

from __future__ import annotations

import re

import re2  # type: ignore[import-untyped]

from penstock import limits
from penstock.errors import PenstockError

_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # it would write to stderr
    options.max_mem = limits.AUTH_PATTERN_MEMORY_BYTES_MAX
    return options


_OPTIONS = _options()


class PatternInvalid(PenstockError):
    pass


class Pattern:
    """Raises PatternInvalid for what Go would not compile, or what is too large."""

    def __init__(self, text: str) -> None:
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
