"""The JSON headers of PUB_EXT: an object of strings, with a few known members.

    {"key": "order-7", "##trace_id": "42", "zan_test": true, "any": "other"}

Only what every reader understands alike is let in: no depth, no numbers, UTF-8 throughout, no half
of a surrogate pair. The one member that may be a boolean is `zan_test`. A name may come twice: the
last one counts, as in the JSON of Go and of Python.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from penstock.kernel.traceparent import MEMBER, parse_traceparent
from penstock.kernel.types import Headers

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RIGHT = -1
_TRACE_ID_MAX = (1 << 64) - 1
_KEY = b"key"
_TRACE_ID = b"##trace_id"
_TRACEPARENT = MEMBER.encode()
_MAY_BE_BOOLEAN = b"zan_test"
_blanks = re.compile(rb"[ \t\n\r]*").match
_plain = re.compile(rb'[^"\\\x00-\x1f]*').match
_escape = re.compile(
    rb'\\(?:["\\/bfnrt]'
    rb"|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
).match
_boolean = re.compile(rb"true|false").match
_trace_digits = re.compile(rb"[0-9]{1,20}").fullmatch


class _Wrong(ValueError):
    def __init__(self, at: int) -> None:
        super().__init__(f"wrong at {at}")
        self.at = at


class _Scan:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._key: bytes | None = None
        self._trace_id: int | None = None
        self._has_others = False
        self._context_id = 0

    def headers(self) -> Headers:
        if not self._take(b"{"):
            raise _Wrong(self._at)
        if not self._take(b"}"):
            self._member()
            while not self._take(b"}"):
                if not self._take(b","):
                    raise _Wrong(self._at)
                self._member()
        self._skip_blanks()
        if self._at < len(self._data):
            raise _Wrong(self._at)
        return Headers(_RIGHT, self._key, self._trace_id, self._has_others, self._context_id)

    def _member(self) -> None:
        self._skip_blanks()
        name = self._text()
        if not self._take(b":"):
            raise _Wrong(self._at)
        self._skip_blanks()
        value_at = self._at
        if name == _MAY_BE_BOOLEAN and (word := _boolean(self._data, value_at)):
            self._at = word.end()
            self._has_others = True
            return
        value = self._text()
        if name == _KEY:
            self._key = value
        elif name != _TRACE_ID:
            self._has_others = True
            if name == _TRACEPARENT:
                found = parse_traceparent(value)
                self._context_id = found.context_id if found else 0
        elif _trace_digits(value) and int(value) <= _TRACE_ID_MAX:
            self._trace_id = int(value)
        else:
            raise _Wrong(value_at)

    def _text(self) -> bytes:
        """The content of a string, from its opening quote to behind the closing one."""
        data = self._data
        if data[self._at : self._at + 1] != b'"':
            raise _Wrong(self._at)
        self._at += 1
        parts = []
        while True:
            run = self._plain_run()
            parts.append(run)
            if data[self._at : self._at + 1] == b'"':
                self._at += 1
                return b"".join(parts)
            escape = _escape(data, self._at)
            if escape is None:
                raise _Wrong(self._at)
            parts.append(json.loads(b'"' + escape.group() + b'"').encode("utf-8"))
            self._at = escape.end()

    def _plain_run(self) -> bytes:
        found = _plain(self._data, self._at)
        run = found.group() if found else b""
        try:
            run.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Wrong(self._at + error.start) from error
        self._at += len(run)
        return run

    def _skip_blanks(self) -> None:
        found = _blanks(self._data, self._at)
        self._at = found.end() if found else self._at

    def _take(self, wanted: bytes) -> bool:
        self._skip_blanks()
        if self._data[self._at : self._at + 1] != wanted:
            return False
        self._at += 1
        return True


def parse_headers(data: Buffer) -> Headers:
    """The headers of a PUB_EXT: a flat JSON object of strings, as docs/formats.md has it."""
    try:
        return _Scan(bytes(data)).headers()
    except _Wrong as wrong:
        return Headers(wrong.at, None, None, False)
