"""SQL over frames by name, for several queries over one that is kept in memory.

`spark.sql(text, lives=frame)` does the same, but makes a view for that one text and drops it, and
dropping a view drops what was kept of the frames in it: the next query would begin at the files
again, without a word. Here views live until all queries are done.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Views:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._names):
            self._spark.catalog.dropTempView(name)
        for frame in self._kept:
            frame.unpersist()

    def sql(
        self, text: str, arguments: Mapping[str, Any] | None = None, **frames: DataFrame
    ) -> DataFrame:
        """`{lives}` in the text is the frame of that name, `:since` an argument."""
        names = {name: self._add(frame) for name, frame in frames.items()}
        return self._spark.sql(text.format(**names), dict(arguments or {}))

    def keep(self, frame: DataFrame) -> DataFrame:
        """Computed once, and kept until the end."""
        self._kept.append(frame.persist())
        return frame

    def _add(self, frame: DataFrame) -> str:
        name = f"penstock_{uuid.uuid4().hex}"
        frame.createTempView(name)
        self._names.append(name)
        return name
