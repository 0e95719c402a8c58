"""What helps to write a statement: what there is to ask about, with its columns, and examples that
run as they stand.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import console
from penstock.nsqadmin.console import Question
from penstock.nsqadmin.ground import Ground
from penstock.pipelines.lakeread import tables_below

# What the engine makes of a topic (`sqlengine.py`).
TOPIC_COLUMNS = (
    ("topic", "VARCHAR"), ("partition", "INTEGER"), ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP WITH TIME ZONE"), ("id", "VARCHAR"), ("attempts", "SMALLINT"),
    ("body", "BLOB"), ("key", "BLOB"), ("headers", "MAP(VARCHAR, VARCHAR)"),
)  # fmt: skip
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(("offset", "order", "group", "table", "user", "select", "from", "where"))


class Example(NamedTuple):
    words: str
    sql: str


def quoted(name: str) -> str:
    """As a statement needs it."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def topics(ground: Ground) -> list[str]:
    """Those with messages first, the busiest before the others; Penstock's own last."""
    found = ground.watch.latest.topics.values()
    asked = sorted(found, key=lambda one: (one.is_internal, -one.stored_bytes, one.name))
    return [one.name for one in asked if one.nodes]


async def tables(ground: Ground) -> list[str]:
    """The names of the tables that -lake leads to. Looking for them takes a disk."""
    names: set[str] = set()
    for lake in ground.options.lake:
        names |= set(await asyncio.to_thread(_below, lake))
    return sorted(names)


def _below(lake: str) -> list[str]:
    try:
        return list(tables_below(lake))
    except (OSError, PenstockError):
        return []  # it is not there yet; a statement that names a table says more


async def columns(ground: Ground, table: str) -> tuple[tuple[str, str], ...]:
    """Of a table, asked of the process that answers statements; () when it can't be read."""
    sql = f"SELECT * FROM {quoted(table)} LIMIT 0"
    question = Question(sql, [], list(ground.options.lake), rows_max=1)
    reply = await console.ask(question)
    return tuple(zip(reply.columns, reply.types, strict=True))


def examples(topic: str) -> list[Example]:
    if not topic:
        return [Example("What day is it", "SELECT current_date AS today")]
    name = quoted(topic)
    return [
        Example(
            "Newest messages",
            f'SELECT "offset", timestamp, try(decode(body)) AS body\nFROM {name}\n'
            'ORDER BY "offset" DESC\nLIMIT 50',
        ),
        Example(
            "Messages a minute",
            "SELECT date_trunc('minute', timestamp) AS minute, count(*) AS messages,\n"
            f"  sum(octet_length(body)) AS bytes\nFROM {name}\n"
            "GROUP BY minute\nORDER BY minute DESC",
        ),
        Example(
            "By a field of JSON",
            "SELECT json_extract_string(try(decode(body)), '$.status') AS status,"
            f" count(*) AS messages\nFROM {name}\nWHERE json_valid(try(decode(body)))\n"
            "GROUP BY status\nORDER BY messages DESC",
        ),
        Example(
            "The same body twice",
            'SELECT md5(body) AS body_md5, count(*) AS times, min("offset") AS first,'
            f' max("offset") AS last\nFROM {name}\nGROUP BY body_md5\nHAVING count(*) > 1\n'
            "ORDER BY times DESC",
        ),
        Example(
            "Largest bodies",
            'SELECT "offset", timestamp, octet_length(body) AS bytes\n'
            f"FROM {name}\nORDER BY bytes DESC\nLIMIT 20",
        ),
    ]


def first_example(topic: str) -> str:
    """What stands on the page when it opens."""
    if not topic:
        return "SELECT current_date AS today"
    return (
        "SELECT count(*) AS messages, min(timestamp) AS oldest, max(timestamp) AS newest\n"
        f"FROM {quoted(topic)}"
    )


LISTED_MAX = 200  # topics beside the statement: more is a search, which Ctrl+K does
ROWS_NOTE = f"the first {limits.ADMIN_SQL_ROWS:,} rows are shown"
