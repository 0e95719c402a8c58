"""DuckDB in this process, and the events of a trace table in it.

The position of an event is one number. It follows `_trace`; where a table has several nodes of a
cluster, it follows their clocks, and `_trace` within a microsecond: a partition has one leader at a
time.

What does not fit into its memory goes into a directory of its own, which is gone at the end.
"""

import shutil
import tempfile
from typing import Any, Self

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from penstock import limits

INDEX_BITS = 14  # of TRACE_CHUNK_EVENTS
_OF_ONE = f"body * {1 << INDEX_BITS} + index"
_SINCE_US = 1_767_225_600_000_000  # 2026: good for 17 years before and after it
_OF_SEVERAL = f"(us - {_SINCE_US}) * {1 << INDEX_BITS} + index"
POSITION = "position_of(epoch_us(time), trace_offset, trace_index)"
EVENT = f"""event, epoch_us(time) AS us, topic, channel, partition, "offset",
    coalesce(messages, 0) AS messages, message_id, nullif(trace_id, 0) AS trace_id,
    coalesce(attempts, 0) AS attempts, client, {POSITION} AS position"""


def text(value: str) -> str:
    """In the form of an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


class Engine:
    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="penstock-duckdb-")
        self._connection = duckdb.connect(config={"python_enable_replacements": "false"})
        for setting in (
            f"temp_directory = {text(self._directory)}",
            f"memory_limit = {text(limits.AUDIT_MEMORY)}",
            "TimeZone = 'UTC'",
            "preserve_insertion_order = false",
            "enable_progress_bar = false",
        ):
            self._connection.execute(f"SET {setting}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, sql: str) -> None:
        self._connection.execute(sql)

    def make(self, name: str, sql: str) -> bool:
        """A table of its rows. Whether there are any."""
        self.run(f"CREATE TEMP TABLE {name} AS {sql}")
        return bool(self.rows(f"SELECT 1 FROM {name} LIMIT 1"))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found = self._connection.execute(sql)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def arrow(self, sql: str) -> pa.Table:
        return self._connection.sql(sql).to_arrow_table()

    def reader(self, sql: str) -> pa.RecordBatchReader:
        """Its rows a batch at a time; nothing else may be asked meanwhile."""
        return pa.RecordBatchReader.from_stream(self._connection.sql(sql))

    def view(self, name: str, source: ds.Dataset | pa.Table) -> None:
        self._connection.register(name, source)

    def trace(self, name: str, source: ds.Dataset | pa.Table) -> None:
        """A view of a whole trace table, which says what a position is."""
        self.view(name, source)
        (row,) = self.rows(
            f"SELECT min(trace_partition) < max(trace_partition) AS found FROM {name}"
        )
        order = _OF_SEVERAL if row["found"] else _OF_ONE
        self.run(f"CREATE MACRO position_of(us, body, index) AS {order}")
