"""`penstock id`: what is written in an id.

16 hex digits are a message id: time, node, sequence. 32 or 56 are a client's unique id (address,
process, time, counter) or a broker's offset id (address, port, position); they look alike, so both
readings are shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock import limits
from penstock.errors import PenstockError
from penstock.ids import guid, unique
from penstock.kernel import hex_to_id
from penstock.tools.verbs import DONE, VerbParser, add_json, print_json, run_verb

Row = dict[str, Any]


class NoId(PenstockError):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no id: 16, 32 or 56 hex digits are wanted")
        self.text = text


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock id", description="Read ids.", examples=["penstock id 0d2c6bf1a4c02000"]
    )
    parser.add_argument("id", nargs="*", metavar="ID", help="none: a line of the input each")
    add_json(parser, "for programs: a line each")
    return parser


def id_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    now_ms = time.time_ns() // limits.MS
    ids = arguments.id or (line.strip() for line in sys.stdin)
    for text in ids:
        if not text:
            continue
        row = read(text, now_ms)
        if arguments.json:
            print_json(row, indent=None)
        else:
            print("\n".join(_lines(row)))
    return DONE


def read(text: str, now_ms: int) -> Row:
    """Raises NoId."""
    if len(text) == 16:
        number = hex_to_id(text.encode("ascii", "replace"))
        if number >= 0:
            return _message_id(text, number)
    elif len(text) in (32, 56):
        try:
            return _long_id(text, now_ms)
        except PenstockError as error:
            raise NoId(text) from error
    raise NoId(text)


def _message_id(text: str, number: int) -> Row:
    parts = guid.parse(number)
    return {
        "id": text,
        "kind": "message",
        "number": number,
        "time": _time(parts.time_ns / limits.SECOND),
        "node": parts.node,
        "sequence": parts.sequence,
    }


def _long_id(text: str, now_ms: int) -> Row:
    client, broker = unique.decode(text), unique.decode_offset_id(text)
    made_s = unique.time_ms(client, now_ms) / 1000
    return {
        "id": text,
        "kind": "unique or offset",
        "unique": {
            "time": _time(made_s),
            "ip": client.ip_text,
            "pid": client.pid,
            "hash": f"{client.hash:08X}",
            "counter": client.counter,
        },
        "offset": {"ip": str(broker.ip), "port": broker.port, "offset": broker.offset},
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _lines(row: Row) -> list[str]:
    if row["kind"] == "message":
        shown = {name: row[name] for name in ("time", "node", "sequence", "number")}
        return [f"{row['id']}  message id", *_fields(shown)]
    return [
        f"{row['id']}  as a client's unique id (right within a month)",
        *_fields(row["unique"]),
        f"{'':{len(row['id'])}}  as a broker's offset id",
        *_fields(row["offset"]),
    ]


def _fields(row: Row) -> list[str]:
    return [f"  {name:<9} {value}" for name, value in row.items()]
