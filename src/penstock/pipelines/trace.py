"""`trace`: the topic `_trace` into a table of events, each of them once; and reports out of it.

The events come as the archive's messages do, and Spark's workers decode the bodies. One that cannot
be read stops the pipeline: what is left out would look like a fault of the broker in an audit.

With `--lifecycles` a second table is kept level with it, a row for each message and channel
(`lifecycles`). With `--report` it becomes latencies by topic, channel and hour, and a list of the
slowest messages.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock import limits
from penstock.command.flags import Kind
from penstock.command.terminal import BOLD, painted, table
from penstock.durations import rounded
from penstock.errors import ConfigError
from penstock.pipelines import checkpoints, topic_logs, trace_table
from penstock.pipelines.archive_offsets import nsqds
from penstock.pipelines.checkpoints import Checkpoint, checkpoint_of, location_of, wanted_record
from penstock.pipelines.delta_reader import LakeTable
from penstock.pipelines.delta_sink import Target, started
from penstock.pipelines.lifecycles.engine import Engine
from penstock.pipelines.lifecycles.lives import LifeKeeper, LifeTable, latencies, slowest
from penstock.pipelines.maintenance import Beside, Care, care_settings, configuration
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import DONE, Pipeline
from penstock.pipelines.settings import NSQDS, STORAGE_OPTION, Setting, Settings, storage_options
from penstock.pipelines.streams import follow
from penstock.pipelines.times import check_moments, say_moments
from penstock.spark.brokers import Brokers
from penstock.spark.delta_table import Shape, check_fits, local_path
from penstock.spark.options import read_options
from penstock.times import micros
from penstock.trace.events import TOPIC

SHAPE = Shape(trace_table.SCHEMA, ("date",), ("time", "trace_offset"))

SETTINGS = (
    *NSQDS,
    Setting("table", Kind.STRING, "", "the trace table, made when it is not there: a path, or a"
         " URL as delta-rs takes it", required=True),
    STORAGE_OPTION,
    Setting("checkpoint", Kind.STRING, "", "where Spark notes how far it is (default: in the"
         " table, _penstock/trace)"),
    Setting("once", Kind.BOOL, False, "stop when all is there that was traced at the start"),
    Setting("trigger", Kind.DURATION, limits.SECOND, "time between batches", bounds=(0, None)),
    Setting("max-bodies-per-trigger", Kind.INT, 20_000, "bodies of a batch at most",
         bounds=(1, None)),
    Setting("lifecycles", Kind.STRING, "", "keep a table there, a row for each message and channel"
         " (with report: TABLE_lives)"),
    Setting("report", Kind.BOOL, False, "at the end: latencies and the slowest messages"),
    Setting("from", Kind.STRING, "", "report on what was published since: a time, or this long ago"
         ),
    Setting("slowest", Kind.INT, 10, "messages in that list", bounds=(1, 10_000)),
    *care_settings(),
)  # fmt: skip


def check(settings: Settings) -> None:
    checkpoint_of(settings, "trace")
    check_moments(settings, "from")


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    location = location_of(settings)
    there = location.open()
    if there is not None:
        check_fits(location, there, SHAPE)
    _check_nsqds(settings, progress)
    path = checkpoint_of(settings, "trace")
    checkpoint = Checkpoint(session, path)
    wanted = wanted_record(location.root, (TOPIC,), "")
    record = checkpoint.load(wanted, location)
    if record is None and there is not None and there.file_uris():
        rule = (
            f"there is no checkpoint in {path}, but the table has events, which "
            "would come again: name the checkpoint, or another table"
        )
        raise ConfigError("table", settings.text("table"), rule)
    location.create(SHAPE, configuration(settings))
    if record is None:
        fresh = replace(wanted, application=checkpoints.new_application("trace"))
        record = checkpoint.begin(fresh, location, [TOPIC])
    topic_logs.claim(location, record.application, [TOPIC])
    progress.note(table=location.uri, version_of=location.version, checkpoint=path)
    beside: list[Beside] = [Care(location, settings, progress)]
    lives = _lifecycles(settings)
    if lives:
        table = LifeTable(settings.text("table"), lives, storage_options(settings))
        beside.insert(0, LifeKeeper(table, limits.LIVES_EVERY_S, progress))
    target = Target(location, SHAPE, record.application)
    query = started(_events(session, settings), settings, "trace", target, path)
    follow(query, progress, *beside)
    if settings.flag("report"):
        _report(settings, progress)
    return DONE


def _source(settings: Settings) -> dict[str, str]:
    return {**nsqds(settings, TOPIC), "startingOffsets": "earliest"}


def _check_nsqds(settings: Settings, progress: Progress) -> None:
    """Only nodes of a cluster share a topic's offsets."""
    with Brokers(read_options(_source(settings), streaming=True)) as brokers:
        found = brokers.found()
    names = ", ".join(sorted(found.answers)) or settings.text("url")
    if TOPIC not in found.topics:
        raise ConfigError("url", names, f"nothing was ever traced there: it has no topic {TOPIC}")
    if len(found.answers) > 1 and not found.are_nodes:
        rule = "they are not nodes of one cluster: each nsqd needs a trace table of its own"
        raise ConfigError("url", names, rule)
    if "" in found.answers and found.are_nodes:
        progress.say("this has the events of one node: --lookupd brings those of its whole cluster")


def _lifecycles(settings: Settings) -> str:
    """The path of that table; "" when it is off."""
    beside = f"{local_path(settings.text('table'))}_lives" if settings.flag("report") else ""
    return settings.text("lifecycles") or beside


def _events(session: SparkSession, settings: Settings) -> DataFrame:
    most = settings.number("max-bodies-per-trigger")
    tasks = max(1, session.sparkContext.defaultParallelism)
    options = {
        **_source(settings),
        "maxOffsetsPerTrigger": str(most),
        "maxRecordsPerPartition": str(-(-most // tasks)),
    }
    bodies = (
        session.readStream.format("penstock")
        .schema("offset bigint, id string, body binary")
        .options(**options)
        .load()
    )
    schema = from_arrow_schema(trace_table.SCHEMA, prefer_timestamp_ntz=False)
    return bodies.mapInArrow(trace_table.decode_bodies, schema)


# --- the report ---


def _report(settings: Settings, progress: Progress) -> None:
    (since,) = say_moments(progress, settings, datetime.now(UTC), "from")
    span = f"published >= make_timestamptz({micros(since)}::BIGINT)" if since else "true"
    options = storage_options(settings)
    with Engine() as engine:
        engine.view("lives", LakeTable(_lifecycles(settings), options=options).dataset())
        by_hour = engine.arrow(latencies(span)).to_pylist()
        slow = engine.arrow(slowest(span, settings.number("slowest"))).to_pylist()
    if settings.flag("json"):
        found = {"latency": by_hour, "slow": slow}
        sys.stdout.write(json.dumps(found, default=str) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(by_hour, slow)) + "\n")


def _lines(by_hour: list[dict[str, Any]], slow: list[dict[str, Any]]) -> Iterator[str]:
    times = ("first_sent_p50_us", "first_sent_p99_us", "total_p50_us", "total_p99_us")
    heads = ("topic", "channel", "hour", "messages", "sent p50", "p99", "finished p50", "p99")
    yield painted("Latency from publish to first delivery, and to finish", BOLD)
    cells = [
        [row["topic"], row["channel"], f"{row['hour']:%Y-%m-%d %H:00}", f"{row['messages']:,}",
         *(rounded(row[name]) for name in times)]
        for row in by_hour
    ]  # fmt: skip
    yield from table(heads, cells, left=3)
    yield ""
    yield painted("Slowest messages", BOLD)
    shown = ("topic", "channel", "message_id", "partition", "offset", "sends")
    names = (*shown[:2], "message id", *shown[3:5], "deliveries", "publish to finish")
    cells = [[*(str(row[name]) for name in shown), rounded(row["total_us"])] for row in slow]
    yield from table(names, cells, left=3)


PIPELINE = Pipeline(
    "trace",
    "the events of _trace into a table; latencies, slowest messages",
    SETTINGS,
    run,
    check,
    ends=lambda settings: settings.flag("once"),
)
