"""`replay`: messages of a table, or of a topic itself, into a topic once more, exactly once.

What is wanted is said by topic, time, offset, id or a condition in SQL. One look at the source
makes the plan (`replay_plan`): how many messages, in which chunks. Each chunk is then one write of
the sink under (name, number of the chunk), which nsqd does once; a replay that is started again
under its name goes on behind the last chunk that nsqd has.

Inside a partition the order of the offsets is kept (`replay_plan`). Messages of several topics or
partitions come one partition after the other within a chunk, and topic after topic. Several tasks
write a chunk, each a part of that order, and the commit names what they have staged in the order of
the parts: so it costs nothing of the promise, and a partition is no slower than many.
"""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import limits
from penstock.command import terminal
from penstock.command.flags import Kind
from penstock.errors import ConfigError, DataLost
from penstock.nsqdapi import calls
from penstock.pipelines import topic_logs
from penstock.pipelines.delta_frames import frame_of, require_one_broker
from penstock.pipelines.delta_reader import Among, ColumnSpan, Condition, LakeTable
from penstock.pipelines.progress import Progress
from penstock.pipelines.replay_plan import (
    Bucket,
    Cut,
    Kept,
    Plan,
    ReplayRequest,
    chunks_of,
    cuts_of,
    target_partition,
)
from penstock.pipelines.runner import DONE, Pipeline
from penstock.pipelines.runs import Report
from penstock.pipelines.settings import (
    STORAGE_OPTION,
    Setting,
    Settings,
    nsqd_of,
    storage_options,
    tls_options,
)
from penstock.pipelines.times import check_moments, read_moment, say_moments
from penstock.spark import register
from penstock.spark.delta_table import TableLocation, local_path
from penstock.spark.session import bound_batches
from penstock.times import at, micros
from penstock.wire.names import is_ephemeral, is_valid_name

_NONE = -1  # an offset or a partition that is not given
_ID = re.compile(r"[0-9a-fA-F]{16}")
_PAUSE_S = 5  # with a rate, a chunk is what may be sent in so long
_CHUNK_MIN = 1000
_OFFSETS = ("from-offset", "to-offset")
_OPTIONAL = ("key", "headers")
_LEAN = "topic string, partition int, offset bigint, timestamp timestamp, id string"
_LEAN_COLUMNS = ("topic", "partition", "offset", "timestamp", "id", "broker")
_NEEDED = ("topic", "partition", "offset", "timestamp", "id", "body")

SETTINGS = (
    Setting("to", Kind.STRING, "", "the topic that gets the messages", required=True),
    Setting("name", Kind.STRING, "", "of this replay: again with the same name goes on"),
    Setting("topics", Kind.STRINGS, (), "topics to replay (default, with a table: all in it)"),
    Setting("table", Kind.STRING, "", "the archive's Delta table (default: the topic's own log)"),
    STORAGE_OPTION,
    Setting("broker", Kind.STRING, "", "only of this nsqd (host:port), in a table of several"),
    Setting("since", Kind.STRING, "", "from this time on: 2026-11-21T06:00:00Z, or 24h: ago"),
    Setting("until", Kind.STRING, "", "before this time"),
    Setting("partition", Kind.INT, _NONE, "only of this partition (default: all)",
         bounds=(_NONE, None)),
    Setting("from-offset", Kind.INT, _NONE, "from this offset on, of one topic",
         bounds=(_NONE, None)),
    Setting("to-offset", Kind.INT, _NONE, "before this offset", bounds=(_NONE, None)),
    Setting("ids", Kind.STRINGS, (), "only messages with these ids"),
    Setting("where", Kind.STRING, "", "only messages that meet this, in SQL, over the columns"),
    Setting("timestamps", Kind.STRING, "keep", "the messages' own times, or new ones of the replay",
         choices=("keep", "new")),
    Setting("rate", Kind.INT, 0, "messages a second at most, on average; 0: no bound",
         bounds=(0, None)),
    Setting("chunk", Kind.INT, 500_000, "messages that are committed in one step",
         bounds=(1, None)),
    Setting("plans", Kind.STRING, "", "directory of plans (default: in the table,"
         " _penstock/replay, or ~/.local/state/penstock)"),
    Setting("rejected-table", Kind.STRING, "", "a Delta table for messages that nsqd refuses;"
         " without it they end the replay"),
    Setting("dry-run", Kind.BOOL, False, "say what would be replayed, and write nothing"),
)  # fmt: skip


def check(settings: Settings) -> None:
    to, name = settings.text("to"), settings.text("name")
    if not is_valid_name(to) or is_ephemeral(to):
        raise ConfigError("to", to, "a topic: 1 to 64 of . a-z A-Z 0-9 _ -")
    if not settings.flag("dry-run") and not name:
        raise ConfigError("name", name, "it is needed: under it the replay can go on, once")
    if name and (not is_valid_name(name) or name.startswith(".")):
        raise ConfigError("name", name, "1 to 64 of . a-z A-Z 0-9 _ -, and no dot at first")
    topics = settings.texts("topics")
    if settings.text("broker") and not settings.text("table"):
        raise ConfigError("broker", settings.text("broker"), "it is of a table; a log is of url")
    if not settings.text("table") and not topics:
        raise ConfigError("topics", topics, "they are needed without a table")
    start, end = (settings.number(name) for name in _OFFSETS)
    if (start != _NONE or end != _NONE) and len(topics) != 1:
        raise ConfigError("from-offset, to-offset", f"{start}, {end}", "they are of one topic")
    for message_id in settings.texts("ids"):
        if not _ID.fullmatch(message_id):
            raise ConfigError("ids", message_id, "16 hexadecimal digits")
    check_moments(settings, "since", "until")
    if settings.text("table"):
        there = _table(settings).columns
        if settings.text("broker") and "broker" not in there:
            raise ConfigError("broker", settings.text("broker"), "the table has no column broker")
        missing = [name for name in _NEEDED if name not in there]
        if missing:
            rule = f"it has no column {', '.join(missing)}, so it is no archive of topics"
            raise ConfigError("table", settings.text("table"), rule)


def _table(settings: Settings) -> LakeTable:
    return LakeTable(settings.text("table"), storage_options(settings))


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    source = _Source(session, settings)
    if source.table is not None and not settings.text("broker"):  # each time: tables grow
        known = topic_logs.known(source.table.location)
        require_one_broker(settings.text("table"), source.wanted(lean=True), known)
    if settings.flag("dry-run"):
        say_moments(progress, settings, source.now, "since", "until")
        return _dry_run(source, progress)
    kept = Kept(plans_directory(settings), settings.text("name"))
    with nsqd_of(settings) as api:
        committed = api.ask(calls.last_version(application(settings)))
    progress.note(table=settings.text("table"), checkpoint=str(kept.path))
    plan = kept.read(source.request())
    if plan is not None and plan.made_ns:
        source.now = at(plan.made_ns // 1000)
    say_moments(progress, settings, source.now, "since", "until")
    plan = plan or _new_plan(source, kept, committed, progress)
    last = kept.last(plan, committed)
    _check_unchanged(source, plan)
    replayed = plan.done_by(last)
    if replayed:
        progress.say(f"{replayed:,} of {plan.messages:,} messages were replayed before")
    if settings.text("rejected-table"):
        register(session, storage_options(settings))
    _write(source, plan, 0 if last is None else last + 1, kept, progress)
    return DONE


def application(settings: Settings) -> str:
    """Under this name nsqd counts the chunks."""
    return f"replay-{settings.text('name')}"


# --- the source ---


class _Source:
    """The wanted messages, wherever they are."""

    def __init__(self, session: SparkSession, settings: Settings) -> None:
        self.session, self.settings = session, settings
        self.now = datetime.now(UTC)  # of a plan that is there, when it was made
        self.table = _table(settings) if settings.text("table") else None

    def request(self) -> ReplayRequest:
        settings, path = self.settings, self.settings.text("table")
        texts = ("to", "since", "until", "where", "timestamps", "broker")
        same: dict[str, Any] = {name: settings.text(name) for name in texts}
        same |= {n.replace("-", "_"): settings.number(n) for n in (*_OFFSETS, "partition")}
        return ReplayRequest(
            source=f"table {local_path(path)}" if path else "topics",
            topics=tuple(sorted(settings.texts("topics"))),
            ids=tuple(sorted(each.lower() for each in settings.texts("ids"))),
            **same,
        )

    def logs(self) -> dict[str, str]:
        """Identities: a plan is of no use for a source that was made again."""
        if self.table is not None:
            return {"table": self.table.identity}
        with nsqd_of(self.settings) as api:
            found = api.positions(self.settings.texts("topics"))
        if found.missing:
            raise DataLost(found.missing[0], 0, "there is no such topic")
        return {topic: spans.identity for topic, spans in found.topics.items()}

    def target(self) -> str:
        to = self.settings.text("to")
        with nsqd_of(self.settings) as api:
            spans = api.positions([to]).topics.get(to)
        return spans.identity if spans else ""

    def wanted(self, chunk: tuple[Bucket, ...] = (), lean: bool = False) -> DataFrame:
        """All selected messages, or those of this chunk; `lean` selects only their addresses."""
        where = self.settings.text("where")  # it may be about any column
        if self.table is None:
            frame = self._of_topics(chunk, lean and not where)
        else:
            columns = None if where else _LEAN_COLUMNS if lean else (*_NEEDED, *_OPTIONAL)
            frame = self._of_table(self.table, chunk, columns)
        frame = frame.where(where) if where else frame
        return frame.where(_within(chunk)) if chunk else frame

    def columns(self, frame: DataFrame) -> list[str]:
        """The columns to write again, besides the body."""
        kept = ["timestamp"] if self.settings.text("timestamps") == "keep" else []
        return [name for name in (*_OPTIONAL, *kept) if name in frame.columns]

    def _conditions(self) -> list[Condition]:
        settings = self.settings
        broker, partition = settings.text("broker"), settings.number("partition")
        among: dict[str, Sequence[Any]] = {
            "topic": settings.texts("topics"),
            "broker": (broker,) if broker else (),
            "partition": () if partition == _NONE else (partition,),
            "id": [each.lower() for each in settings.texts("ids")],
        }
        spans: dict[str, list[Any]] = {
            "timestamp": [read_moment(n, settings.text(n), self.now) for n in ("since", "until")],
            "offset": [None if n == _NONE else n for n in map(settings.number, _OFFSETS)],
        }
        found: list[Condition] = [Among(name, each) for name, each in among.items() if each]
        return found + [ColumnSpan(n, *each) for n, each in spans.items() if each != [None, None]]

    def _of_table(
        self, table: LakeTable, chunk: tuple[Bucket, ...], columns: Sequence[str] | None
    ) -> DataFrame:
        conditions = self._conditions()
        if chunk:
            conditions += [
                Among("topic", sorted({bucket.topic for bucket in chunk})),
                ColumnSpan("offset", min(b.start for b in chunk), max(b.end for b in chunk)),
            ]
        return frame_of(self.session, table.location, table.dataset(), conditions, columns)

    def _of_topics(self, chunk: tuple[Bucket, ...], is_lean: bool) -> DataFrame:
        settings = self.settings
        with nsqd_of(settings) as api:
            options = {"url": api.url, "includeHeaders": str(not is_lean).lower()}
        options |= tls_options(settings)
        options |= _offsets(chunk) if chunk else {"subscribe": ",".join(settings.texts("topics"))}
        reader = self.session.read.format("penstock").options(**options)
        frame = (reader.schema(_LEAN) if is_lean else reader).load()
        for condition in self._conditions():
            frame = frame.where(condition.met(F.col(condition.column)))
        return frame


def _offsets(chunk: tuple[Bucket, ...]) -> dict[str, str]:
    starts: defaultdict[str, dict[int, int]] = defaultdict(dict)
    ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for topic, partition, start, end, _ in chunk:
        starts[topic][partition], ends[topic][partition] = start, end
    assigned = {topic: list(partitions) for topic, partitions in starts.items()}
    named = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
    return {name: json.dumps(value) for name, value in named.items()}


def _within(chunk: tuple[Bucket, ...]) -> Column:
    topic, partition, offset = F.col("topic"), F.col("partition"), F.col("offset")
    parts = [
        (topic == one.topic) & (partition == one.partition) & (offset >= one.start)
        & (offset < one.end) for one in chunk
    ]  # fmt: skip
    while len(parts) > 1:  # by pairs: Spark walks down a condition as deep as it is nested
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [one | other for one, other in pairs] + parts[len(parts) & ~1 :]
    return parts[0]


# --- the plan ---


def _new_plan(source: _Source, kept: Kept, committed: int | None, progress: Progress) -> Plan:
    """The plan is kept from now on."""
    if committed is not None:
        rule = f"nsqd knows a replay of this name, but its plan is not in {kept.path}"
        raise ConfigError("name", source.settings.text("name"), f"{rule}: take another name")
    progress.say("counting what is wanted")
    chunks, partitions = _chunks(source), 1
    if chunks:
        with nsqd_of(source.settings) as api:
            partitions = api.shape(source.settings.text("to")).partitions  # made when not there
    made_ns = micros(source.now) * 1000
    plan = Plan(source.request(), source.logs(), source.target(), chunks, partitions, made_ns)
    kept.write(plan)
    return plan


def plans_directory(settings: Settings) -> str:
    given, table = settings.text("plans"), settings.text("table")
    if given:
        return given
    path = local_path(table) if table else ""
    if path and "://" not in path:
        return f"{path}/_penstock/replay"
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{state}/penstock/replay"


def _chunks(source: _Source) -> tuple[tuple[Bucket, ...], ...]:
    most, rate = source.settings.number("chunk"), source.settings.number("rate")
    most = min(most, max(_CHUNK_MIN, rate * _PAUSE_S)) if rate else most
    rows = (
        source.wanted(lean=True)
        .groupBy("topic", "partition", F.expr(f"offset div {most}").alias("bucket"))
        .agg(F.min("offset").alias("least"), F.max("offset").alias("most"), F.count("*").alias("n"))
        .collect()
    )
    return chunks_of((Bucket(r.topic, r.partition, r.least, r.most + 1, r.n) for r in rows), most)


def _check_unchanged(source: _Source, plan: Plan) -> None:
    for name, identity in source.logs().items():
        if plan.logs.get(name) != identity:
            what = "the table" if source.table is not None else f"topic {name}"
            rule = f"{what} was deleted and made again since this replay began"
            raise ConfigError("name", source.settings.text("name"), rule)
    if plan.target and source.target() != plan.target:
        rule = f"topic {plan.request.to} was deleted or made again since this replay began"
        raise ConfigError("name", source.settings.text("name"), rule)


# --- writing ---


def _write(source: _Source, plan: Plan, first: int, kept: Kept, progress: Progress) -> None:
    began_s, version = time.monotonic(), first - 1
    done = before = plan.done_by(version)
    rate_max = source.settings.number("rate")
    for number in range(first, len(plan.chunks)):
        if progress.stopping:
            progress.say(f"stopped after {done:,} of {plan.messages:,}: the same name goes on")
            break
        version = number
        _write_chunk(source, plan.chunks[version], version, plan.partitions)
        kept.note(version)
        progress.note(batch=version, committed_s=time.time(), logs=plan.logs_by(version))
        done = plan.done_by(version)
        if rate_max and done < plan.messages:
            progress.wait(max(0.0, (done - before) / rate_max - (time.monotonic() - began_s)))
        progress.report(_report(plan, version, done - before, time.monotonic() - began_s))
    report = _report(plan, version, done - before, time.monotonic() - began_s)
    progress.report(report, final=True)
    if rejected := _rejected(source.settings):
        where = source.settings.text("rejected-table")
        progress.say(f"{rejected:,} of {done:,} messages were refused, they are in {where}")
    elif done == plan.messages:
        progress.say(f"{plan.request.to} has all {done:,} messages of this replay")


def _rejected(settings: Settings) -> int:
    """The number of rejected messages of this replay in their table."""
    path = settings.text("rejected-table")
    table = TableLocation(path, storage_options(settings)).open() if path else None
    if table is None:
        return 0
    mine = pc.field("app") == application(settings)
    return int(table.to_pyarrow_dataset().count_rows(filter=mine))


def _write_chunk(source: _Source, chunk: tuple[Bucket, ...], version: int, partitions: int) -> None:
    """Each task has the rows between two cuts, in order. The sink commits their stages in the order
    of the tasks."""
    settings = source.settings
    frame = source.wanted(chunk)
    messages = sum(bucket.messages for bucket in chunk)
    at_once = source.session.sparkContext.defaultParallelism
    tasks = max(1, min(at_once, messages // limits.REPLAY_TASK_MESSAGES))
    cuts = cuts_of(chunk, tasks)
    apart = frame.repartitionById(len(cuts) + 1, _part(cuts))
    ordered = apart.sortWithinPartitions("topic", "partition", "offset")
    topic = F.lit(settings.text("to")).alias("topic")
    partition = target_partition(partitions, "key" in frame.columns)
    options = {
        "url": settings.text("url"),
        "txnAppId": application(settings),
        "txnVersion": str(version),
        **tls_options(settings),
        "httpSecretFile": settings.text("http-secret-file"),
        "rejectedTable": settings.text("rejected-table"),
    }
    rows = ordered.select("body", *source.columns(frame), topic, partition)
    bound_batches(rows)
    writer = rows.write.format("penstock").mode("append")
    writer.options(**{name: value for name, value in options.items() if value}).save()


def _part(cuts: tuple[Cut, ...]) -> Column:
    """The number of cuts before a row: the number of its part."""
    topic, partition, offset = F.col("topic"), F.col("partition"), F.col("offset")
    behind = [
        (topic > t) | (topic == t) & ((partition > p) | (partition == p) & (offset >= at))
        for t, p, at in cuts
    ]
    return reduce(lambda one, other: one + other, (b.cast("int") for b in behind), F.lit(0))


def _report(plan: Plan, version: int, rows: int, seconds: float) -> Report:
    """`rows` of this run, up to this version."""
    rate, left = rows / max(seconds, 1e-3), plan.messages - plan.done_by(version)
    logs, what = plan.logs_by(version), ""
    if any(partition for _, partition in logs):  # they come one after the other
        what = f"{sum(to == end for to, end in logs.values())} of {len(logs)} partitions"
    return Report(
        rows=rows,
        rows_per_second=round(rate, 1),
        total=rows + left,
        left_seconds=left / rate if rate else None,
        what=what,
    )


# --- the dry run ---


def _dry_run(source: _Source, progress: Progress) -> int:
    rows = source.session.sql(
        f"""SELECT topic, partition, to_date(timestamp) AS date, count(*) AS messages,
            sum(octet_length(body)) AS bytes, min(`offset`) AS first, max(`offset`) AS last,
            date_format(min(timestamp), "{_TIME}") AS since,
            date_format(max(timestamp), "{_TIME}") AS until
        FROM {{rows}} GROUP BY topic, partition, date ORDER BY topic, partition, date""",
        rows=source.wanted(),
    ).collect()
    cells = [[str(row[name]) for name in _HEADS] for row in rows]
    for line in terminal.table(_HEADS, cells) if cells else ():
        progress.say(line)
    messages, size = (sum(row[name] for row in rows) for name in ("messages", "bytes"))
    to = source.settings.text("to")
    progress.say(f"{messages:,} messages, {terminal.short(size)}B, would go to {to}")
    return DONE


_TIME = "yyyy-MM-dd'T'HH:mm:ss'Z'"
_HEADS = ("topic", "partition", "date", "messages", "bytes", "first", "last", "since", "until")


PIPELINE = Pipeline(
    "replay",
    "messages of a table or a topic into a topic once more, exactly once",
    SETTINGS,
    run,
    check,
)
