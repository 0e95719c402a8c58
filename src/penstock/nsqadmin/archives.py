"""A topic in SQL: its archive, and of its log what is before and behind the archived offsets.

An archive is a Delta table of the lake that notes which logs its rows of a topic are from
(`pipelines/topic_logs.py`). So its rows and those of the live log meet at an offset: no message
comes twice, and none is missing while retention has not passed the archive. The rows of an earlier
log, of a topic that was made again, are in the archive alone. An archive may have begun at the end
of a log (`--from latest`): what came before is in the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import DataLost, LakeFailed, QueryRefused

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from penstock.pipelines.delta_reader import LakeTable

_FOLDER = "_penstock_topics"  # of every archive on this machine
Spans = Mapping[tuple[str, int], range]  # archived offsets, by identity and partition of a log


class Archive(NamedTuple):
    table: str  # its name
    dataset: ds.Dataset
    spans: Spans


def archive_of(
    topic: str, tables: Mapping[str, str], storage: Mapping[str, str], notes: list[str]
) -> Archive | None:
    """The first of the tables that has messages of the topic. A table that cannot be read is noted:
    the log still gives an answer. Raises QueryRefused where the rows may be of several logs."""
    from penstock.pipelines import topic_logs

    found = {}
    for name in sorted(tables):
        try:
            table = _opened(tables[name], storage)
            noted = topic_logs.known(table.location).get(topic) if table is not None else None
        except LakeFailed as error:
            notes.append(f"{topic}: without what {name} may have of it: {error}")
            continue
        if table is not None and noted is not None and noted.noted:
            found[name] = table, noted
    if not found:
        return None
    chosen, *others = found
    if others:
        notes.append(f"{topic}: archived rows of {chosen}, not of {', '.join(others)}")
    table, noted = found[chosen]
    by_broker = any("@" in each for each in noted.noted)
    reached = topic_logs.archived_spans(table, {topic}, by_broker)
    spans: dict[tuple[str, int], range] = {}
    for (_, broker, partition), span in reached.items():
        try:
            has_unnamed = (topic, "", partition) in reached
            log = topic_logs.identity_of(noted, topic, broker, has_unnamed), partition
        except DataLost as error:
            rule = f"{topic} is in {chosen} with rows of several logs: name the table instead"
            raise QueryRefused(rule) from error
        spans[log] = topic_logs.joined(span, spans.get(log, span))
    return Archive(chosen, table.dataset(), spans)


def _opened(path: str, storage: Mapping[str, str]) -> LakeTable | None:
    """None for a table that cannot be an archive."""
    from penstock.pipelines.delta_reader import LakeTable, is_delta
    from penstock.spark.delta_table import TableLocation

    local = TableLocation(path, storage).local_path
    if local is not None and not (local / _FOLDER).is_dir():
        return None
    return LakeTable(path, storage) if is_delta(path, storage) else None
