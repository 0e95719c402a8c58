"""`penstock id`: decode an id.

16 hex digits are a message id: time, node, sequence. 32 or 56 are a client's unique id (address,
process, time, counter) or a broker's offset id (address, port, position); they look alike, so both
readings are shown.
"""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

from penstock import limits
from penstock.errors import PenstockError
from penstock.ids import guid, unique
from penstock.kernel import hex_to_id
from penstock.tools.app import Json, app, arg, verb
from penstock.tools.output import DONE, Output, Row


@verb(app, "id 0d2c6bf1a4c02000", name="id")
def read_ids(
    ids: Annotated[list[str] | None, arg("ID", "none: a line of the input each")] = None,
    as_json: Json = False,
) -> int:
    """Decode message ids, unique ids and offset ids."""
    now_ms = time.time_ns() // limits.MS
    for text in filter(None, ids or map(str.strip, sys.stdin)):
        row = read(text, now_ms)
        Output(row, _lines(row), one_line=True).print(as_json)
    return DONE


def read(text: str, now_ms: int) -> Row:
    """Raises PenstockError."""
    number = hex_to_id(text.encode("ascii", "replace")) if len(text) == 16 else -1
    if number >= 0:
        parts = guid.parse(number)
        when = _time(parts.time_ns / limits.SECOND)
        return {"id": text, "kind": "message", "number": number, "time": when,
                "node": parts.node, "sequence": parts.sequence}  # fmt: skip
    rule = f"{text!r} is no id: 16, 32 or 56 hex digits are wanted"
    if len(text) not in (32, 56):
        raise PenstockError(rule)
    try:
        return _long_id(text, now_ms)
    except PenstockError as error:
        raise PenstockError(rule) from error


def _long_id(text: str, now_ms: int) -> Row:
    client, broker = unique.decode(text), unique.decode_offset_id(text)
    made = _time(unique.time_ms(client, now_ms) / 1000)
    return {
        "id": text,
        "kind": "unique or offset",
        "unique": {"time": made, "ip": client.ip_text, "pid": client.pid,
                   "hash": f"{client.hash:08X}", "counter": client.counter},
        "offset": {"ip": str(broker.ip), "port": broker.port, "offset": broker.offset},
    }  # fmt: skip


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _lines(row: Row) -> Iterator[str]:
    if row["kind"] == "message":
        parts = {"message id": {name: row[name] for name in ("time", "node", "sequence", "number")}}
    else:
        parts = {"as a client's unique id (right within a month)": row["unique"],
                 "as a broker's offset id": row["offset"]}  # fmt: skip
    shown = row["id"]
    for title, part in parts.items():
        yield f"{shown}  {title}"
        yield from (f"  {name:<9} {value}" for name, value in part.items())
        shown = " " * len(shown)
