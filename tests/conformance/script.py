r"""The notation of the tables in this directory, and the table itself as data.

What is said is bytes, written as text. Python's escapes stand for single bytes (`\n`, `\xff`), and
angle brackets for what nobody wants to read as bytes:

    <5>         a 4-byte number, as sizes and counts are sent; negative ones too
    <=text>     `text` behind its length
    <x*65>      `x`, 65 times
    <=x*65>     the same behind its length
    <t>         a topic of this case alone
    <held>      the id of the message that is in flight (state "holding")

What is heard is a list of frames. `E_...` is an error frame, `message 2 body` a delivery with its
attempts, `traced 42 0 17` the answer to a publish with trace id 42, stored at offset 0 in 17 bytes,
`IDENTIFIED {...}` the answer to IDENTIFY with what differs from the default answer, and everything
else a response.
"""

import json
import re
import struct
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.wire.trace_ids import encode_reply

HERE = Path(__file__).resolve().parent
NOT_FATAL = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED", "E_EXT_NOT_SUPPORT")
ENDS = ("open", "closed", "waiting")
STATES = ("init", "subscribed", "closing", "holding")
_KEYS = {"name", "say", "hear", "end", "states", "daemon", "first", "eof", "magic"}

_TOKEN = re.compile(r"<([^<>]*)>")
_REPEAT = re.compile(r"(.)\*(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Case:
    name: str
    say: str
    hear: tuple[str, ...] = ()
    end: str = ""  # open, closed, or waiting for the rest of a command
    states: tuple[str, ...] = ("init",)
    daemon: str = "default"
    first: str = ""  # said before, and answered with one response
    eof: bool = False  # the client ends its stream after what it said
    magic: bool = True

    @property
    def outcome(self) -> str:
        """Without a word about it: an error is the end, unless it is one of the soft ones."""
        if self.end:
            return self.end
        last = self.hear[-1] if self.hear else ""
        return "closed" if last.startswith("E_") and not last.startswith(NOT_FATAL) else "open"


@dataclass(frozen=True)
class Table:
    daemons: dict[str, list[str]]
    identified: dict[str, Any]
    cases: list[Case]


def read_table(path: Path) -> Table:
    document = tomllib.loads(path.read_text("utf-8"))
    cases = [read_case(row) for row in document["case"]]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path.name}: names that stand twice: {twice}")
    return Table(document["daemons"], document.get("identified", {}), cases)


def read_case(row: dict[str, Any]) -> Case:
    unknown = set(row) - _KEYS
    if unknown:
        raise ValueError(f"{row['name']}: unknown keys {sorted(unknown)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    case = Case(**values)
    if case.outcome not in ENDS or not set(case.states) <= set(STATES):
        raise ValueError(f"{case.name}: no such end or state")
    return case


def encode(text: str, names: dict[str, bytes]) -> bytes:
    """The bytes that `text` stands for. `names` gives <t> and <held>."""
    out = b""
    position = 0
    for match in _TOKEN.finditer(text):
        out += unescape(text[position : match.start()])
        out += _token(match[1], names)
        position = match.end()
    return out + unescape(text[position:])


def unescape(text: str) -> bytes:
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1")


def _token(token: str, names: dict[str, bytes]) -> bytes:
    if token in names:
        return names[token]
    if token.startswith("="):
        body = _text(token[1:])
        return struct.pack(">I", len(body)) + body
    if re.fullmatch(r"-?\d+", token):
        return struct.pack(">I", int(token) & 0xFFFF_FFFF)
    if _REPEAT.fullmatch(token):
        return _text(token)
    raise ValueError(f"<{token}> means nothing")


def _text(text: str) -> bytes:
    repeat = _REPEAT.fullmatch(text)
    if repeat is not None:
        return unescape(repeat[1]) * int(repeat[2])
    return unescape(text)


ANY_ID = 0  # in place of the message id of a traced answer, which no table can know


@dataclass(frozen=True)
class Expected:
    kind: int
    data: bytes
    attempts: int = 0


def expected(text: str, names: dict[str, bytes], identified: dict[str, Any]) -> Expected:
    if text.startswith("IDENTIFIED"):
        changed = json.loads(text.removeprefix("IDENTIFIED") or "{}")
        unknown = set(changed) - set(identified)
        if unknown:
            raise ValueError(f"the answer to IDENTIFY has no {sorted(unknown)}")
        answer = json.dumps(identified | changed, separators=(",", ":"), ensure_ascii=False)
        return Expected(0, answer.encode())
    if text.startswith("message "):
        _, attempts, body = text.split(" ", 2)
        return Expected(2, encode(body, names), int(attempts))
    if text.startswith("traced "):
        trace_id, offset, stored_bytes = map(int, text.split()[1:])
        return Expected(0, encode_reply(ANY_ID, trace_id, offset, stored_bytes))
    return Expected(1 if text.startswith("E_") else 0, encode(text, names))
