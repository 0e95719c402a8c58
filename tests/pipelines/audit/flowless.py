"""Spark's part of an audit, played in this process: tasks, the shuffle, and rows that come back.

Batches are cut at random, and tasks take their blobs in any order, as they do with Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from penstock.pipelines.audit import passes
from penstock.pipelines.audit.findings import Audit, Tables
from penstock.pipelines.audit.passes import Source
from penstock.pipelines.audit.report import Report
from penstock.pipelines.audit.rules import Rules
from penstock.pipelines.lifecycles.events import COLUMNS, Wanted

Part = list[dict[str, Any]]
EVER = 1 << 62


class Tag:
    def isin(self, *tags: int) -> set[int]:
        return set(tags)

    def __eq__(self, tag: object) -> Any:
        return {tag}

    __hash__ = None  # type: ignore[assignment]


class Frame:
    """Blobs by partition."""

    def __init__(self, parts: list[Part], dice: random.Random) -> None:
        self._parts, self._dice = parts, dice
        self.tag = Tag()

    def mapInArrow(self, act: Any, schema: str) -> Frame:
        made = (act(self._batches(part)) for part in self._parts)
        return Frame([[row for b in part for row in b.to_pylist()] for part in made], self._dice)

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        while part:
            count = self._dice.randrange(1, 5)
            yield pa.RecordBatch.from_pylist(part[:count], schema=passes.BLOB)
            part = part[count:]

    def repartitionById(self, count: int, column: str) -> Frame:
        rows = [row for part in self._parts for row in part]
        self._dice.shuffle(rows)
        parts = [[row for row in rows if row[column] % count == n] for n in range(count)]
        return Frame(parts, self._dice)

    def where(self, tags: set[int]) -> Frame:
        return Frame([[row for row in part if row["tag"] in tags] for part in self._parts],
                     self._dice)  # fmt: skip

    def union(self, other: Frame) -> Frame:
        return Frame(self._parts + other._parts, self._dice)

    def persist(self) -> Frame:
        return self

    unpersist = persist

    def select(self, *columns: str) -> Frame:
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for part in self._parts for row in part]


@dataclass(frozen=True)
class Rows(Source):
    table: pa.Table | None = None
    dice: random.Random | None = None

    def packed(self, spark: Any, wanted: Wanted, buckets: int) -> Any:
        assert self.table is not None
        assert self.dice is not None
        table, pieces = self.table.select(COLUMNS), []
        while table.num_rows:
            count = self.dice.randrange(1, table.num_rows + 1)
            pieces.append(table.slice(0, count))
            table = table.slice(count)
        self.dice.shuffle(pieces)
        act: Callable[..., Any] = passes.packing(passes.as_they_come, wanted, buckets)
        made = [act(iter(piece.to_batches())) for piece in pieces]
        parts = [[row for b in part for row in b.to_pylist()] for part in made]
        return Frame(parts, self.dice)


class PlainAudit(Audit):
    def _check_ids(self, rows: Any, place: str) -> None:
        """That is a question to Spark alone."""

    def _publishes(self) -> Any:
        return None


def audited(
    table: pa.Table, rules: Rules, seed: int, topic: str = "orders", examples: int = 1000
) -> Report:
    dice = random.Random(seed)
    source = Rows(rows=dice.randrange(1, 4) * 128_000, table=table, dice=dice)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    wanted = Wanted(topic, -EVER, EVER)
    return PlainAudit(spark, Tables(source, wanted, None), rules, topic, examples).run()
