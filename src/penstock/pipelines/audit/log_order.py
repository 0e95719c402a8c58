"""Whether the rows of a log are in order: offsets, ids, times beside those of the row before.

The same SQL for DuckDB and for Spark, which reads the archive and the log itself. Rows have
(partition, place, id, us): `place` is the offset, and ids are texts that sort as their numbers do.
One query counts; what is broken is looked at once more, as that is rare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.pipelines.audit.report import Example, message_example
from penstock.pipelines.times import at, moment

Row = dict[str, Any]
Query = Callable[[str], list[Row]]  # its text has {rows} for the rows

# Kind of finding: how much of it a row is, beside the row before.
_BREAKS = {
    "repeated_offset": "CASE WHEN place = place_before THEN 1 ELSE 0 END",
    "id_falls": "CASE WHEN place > place_before AND id < id_before THEN 1 ELSE 0 END",
    "gap": "CASE WHEN place > place_before + 1 THEN place - place_before - 1 ELSE 0 END",
    "time_falls": "CASE WHEN place > place_before AND us < us_before THEN 1 ELSE 0 END",
}
_SAME_ID = "CASE WHEN place > place_before AND id = id_before THEN 1 ELSE 0 END"
_POINT_TO_IDS = ("repeated_offset", "id_falls", "neighbours")
_PAIRS = """(SELECT partition, place, id, us, lag(place) OVER log AS place_before,
        lag(id) OVER log AS id_before, lag(us) OVER log AS us_before
    FROM {rows} WINDOW log AS (PARTITION BY partition ORDER BY place, id))"""
_COUNTS = ", ".join(
    f"sum({amount}) AS {kind}" for kind, amount in {**_BREAKS, "neighbours": _SAME_ID}.items()
)
# An id in several places: the last of these, with the first.
_SAME_IDS = """(SELECT * FROM (
        SELECT partition, place, id, us, first_value(partition) OVER up AS partition_before,
            first_value(place) OVER up AS place_before,
            row_number() OVER (PARTITION BY id ORDER BY partition DESC, place DESC) AS back
        FROM {rows} WINDOW up AS (PARTITION BY id ORDER BY partition, place)) AS ids
    WHERE back = 1 AND (partition <> partition_before OR place <> place_before))"""


class Broken(NamedTuple):
    counts: dict[int, int]  # by partition
    examples: list[Example]


class Log(NamedTuple):
    spans: dict[int, tuple[int, int, int]]  # by partition: least and greatest offset, rows
    broken: dict[str, Broken]  # by kind of finding


def checked(query: Query, kinds: tuple[str, ...], shown: int) -> Log:
    """`kinds` of breaks; ids that stand twice are found in any case."""
    counts = query(
        "SELECT partition, count(*) AS amount, min(place) AS least, max(place) AS most,"
        f" {_COUNTS} FROM {_PAIRS} AS pairs GROUP BY partition ORDER BY partition"
    )
    found = {}
    for kind in kinds:
        amounts = {row["partition"]: int(row[kind]) for row in counts if row[kind]}
        if amounts:
            rows = query(
                f"SELECT *, {_BREAKS[kind]} AS amount FROM {_PAIRS} AS pairs"
                f" WHERE {_BREAKS[kind]} > 0 ORDER BY partition, place LIMIT {shown}"
            )
            found[kind] = Broken(amounts, [_example(row, kind) for row in rows])
    if any(row[kind] for row in counts for kind in _POINT_TO_IDS):
        same = query(
            f"SELECT partition, count(*) AS amount FROM {_SAME_IDS} AS ids"
            " GROUP BY partition ORDER BY partition"
        )
        rows = query(f"SELECT * FROM {_SAME_IDS} AS ids ORDER BY partition, place LIMIT {shown}")
        if same:
            amounts = {row["partition"]: row["amount"] for row in same}
            found["same_id"] = Broken(amounts, [_example(row, "same_id") for row in rows])
    spans = {row["partition"]: (row["least"], row["most"], row["amount"]) for row in counts}
    return Log(spans, found)


def _example(row: Row, kind: str) -> Example:
    """The fault between a row and its neighbour, in words."""
    place, before = int(row["place"]), int(row["place_before"])
    if kind == "repeated_offset":
        is_same = row["id"] == row["id_before"]
        note = "two rows; " + ("the same id" if is_same else f"also the id {row['id_before']}")
    elif kind == "gap":
        last = f" to {place - 1}" if row["amount"] > 1 else ""
        note = f"before it {before + 1}{last} is missing"
    elif kind == "id_falls":
        note = f"offset {before} has the higher id {row['id_before']}"
    elif kind == "time_falls":
        note = f"offset {before} was published at {moment(at(row['us_before']))}"
    elif row["partition_before"] == row["partition"]:
        note = f"also at {before}"
    else:
        note = f"also at offset {before} of partition {row['partition_before']}"
    return message_example(row["partition"], place, row["id"], row["us"], note)
