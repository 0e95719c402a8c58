"""Trace tables for tests, made by vector: a healthy life for each message, and then faults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from penstock.pipelines.trace_table import SCHEMA

T0_US = 1_790_000_000_000_000  # some day
NAMES = (
    "published", "sent", "finished", "requeued", "timed_out", "touched", "delayed", "released",
    "dead_lettered", "skipped", "filtered", "disconnected", "emptied",
    "corrupt",
)  # fmt: skip
KIND = {name: number for number, name in enumerate(NAMES)}
BODY_EVENTS = 500
Numbers = np.ndarray[Any, Any]


@dataclass
class Events:
    """Columns of numbers; `channel` is a place in `channels`, -1 is the topic itself."""

    kind: Numbers
    offset: Numbers
    time_us: Numbers
    channel: Numbers
    attempts: Numbers
    channels: tuple[str, ...] = ("billing",)
    topic: str = "orders"

    def at(self, name: str, offset: int) -> int:
        """The place of the first such event."""
        return int(np.flatnonzero((self.kind == KIND[name]) & (self.offset == offset))[0])

    def drop(self, name: str, offset: int) -> None:
        keep = np.ones(len(self.kind), bool)
        keep[self.at(name, offset)] = False
        for column in ("kind", "offset", "time_us", "channel", "attempts"):
            setattr(self, column, getattr(self, column)[keep])

    def add(self, name: str, offset: int, time_us: int, attempts: int = 1) -> None:
        new = (KIND[name], offset, time_us, 0, attempts)
        columns = ("kind", "offset", "time_us", "channel", "attempts")
        for column, value in zip(columns, new, strict=True):
            setattr(self, column, np.append(getattr(self, column), value))

    def swap(self, name: str, offset: int, other: int) -> None:
        one, two = self.at(name, offset), self.at(name, other)
        self.time_us[[one, two]] = self.time_us[[two, one]]

    def table(self, trace_ids: dict[int, int] | None = None) -> pa.Table:
        order = np.lexsort((self.kind, self.time_us))
        kind, offset, channel = self.kind[order], self.offset[order], self.channel[order]
        rows = len(order)
        position = np.arange(rows)
        traces, untraced = np.zeros(rows, np.int64), np.ones(rows, bool)
        for at, trace_id in (trace_ids or {}).items():
            traces[offset == at], untraced[offset == at] = trace_id, False
        time = pa.array(self.time_us[order]).cast(pa.timestamp("us", tz="UTC"))
        columns = {
            "date": time.cast(pa.timestamp("us")).cast(pa.date32()),
            "event": _named(kind, NAMES),
            "time": time,
            "topic": pa.repeat(pa.scalar(self.topic), rows),
            "channel": _named(channel, self.channels, channel < 0),
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(offset),
            "messages": pa.array(np.ones(rows, np.int64)),
            "message_id": pa.array([f"{id:016x}" for id in (offset + (1 << 40)).tolist()]),
            "trace_id": pa.array(traces, mask=untraced),
            "attempts": pa.array(self.attempts[order].astype(np.int16)),
            "client": pa.nulls(rows, pa.string()),
            "trace_partition": pa.array(np.zeros(rows, np.int32)),
            "trace_offset": pa.array(position // BODY_EVENTS),
            "trace_index": pa.array((position % BODY_EVENTS).astype(np.int32)),
        }
        return pa.table(columns, schema=SCHEMA)


def _named(numbers: Numbers, names: tuple[str, ...], absent: Numbers | None = None) -> pa.Array:
    return pa.array(names).take(pa.array(numbers.astype(np.int32), mask=absent))


def healthy(count: int, channels: tuple[str, ...] = ("billing",)) -> Events:
    """Published every 100 us, sent in order, finished; one of a hundred times out once."""
    dice = np.random.default_rng(1)
    offsets = np.arange(count)
    published = T0_US + offsets * 100
    parts = [(KIND["published"], -1, published, offsets, 0)]
    for channel in range(len(channels)):
        sent = published + 500 + dice.integers(0, 90, count)  # rising, as a channel sends
        finished = sent + 50 + dice.exponential(3000, count).astype(np.int64)
        again = offsets[dice.random(count) < 0.01]
        parts += [
            (KIND["sent"], channel, sent, offsets, 1),
            (KIND["timed_out"], channel, finished[again], again, 1),
            (KIND["sent"], channel, finished[again] + 10, again, 2),
        ]
        finished[again] += 2000
        parts.append((KIND["finished"], channel, finished, offsets, 1))
    sizes = [len(part[3]) for part in parts]

    def spread(position: int) -> Numbers:
        return np.repeat([part[position] for part in parts], sizes)

    times = np.concatenate([part[2] for part in parts])
    positions = np.concatenate([part[3] for part in parts])
    return Events(spread(0), positions, times, spread(1), spread(4), channels)


def write(path: Path, table: pa.Table) -> Path:
    write_deltalake(path, table, partition_by=["date"])
    return path
