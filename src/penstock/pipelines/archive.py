"""`archive`: topics into a Delta table, every message exactly once.

Spark reads ranges of the log, writes them to files, and commits each batch in one transaction of
the table (`lake`). Its checkpoint says which ranges a batch has, the table says which batches it
has. The two are tied by a name that is made once for a checkpoint (`archivestate`), and a run
refuses to start where they do not belong together.

Columns, in this order: the source's, with `date` behind `topic`; `value` and `bad` where bodies are
decoded. The table is partitioned by `topic` and `date`, the day of the message's time in UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import StreamingQueryException

from penstock import limits
from penstock.command.flags import Kind
from penstock.errors import ConfigError
from penstock.pipelines import archivestate, jsonbody
from penstock.pipelines.archivestate import Identity, Starting, State
from penstock.pipelines.frame import DONE, Pipeline
from penstock.pipelines.lake import Place, Shape, check_fits
from penstock.pipelines.lakecare import Care, care_settings, configuration
from penstock.pipelines.lakesink import FORMAT, LakeSink
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Setting, Settings
from penstock.pipelines.streams import Pauses, Watch, follow
from penstock.pipelines.trouble import cause_line, is_crash, is_passing
from penstock.spark.brokerapi import BrokerApi, TopicSpans
from penstock.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITION_BY = ("topic", "date")
EARLIEST = -2  # as Kafka writes it
STATISTICS = ("partition", "offset", "timestamp")
_OPTIONAL = tuple(name for name, column in COLUMNS.items() if not column.always)

SETTINGS = (
    Setting("topics", Kind.STRINGS, (), "topics to archive"),
    Setting("pattern", Kind.STRING, "", "or a regular expression; topics made later are found"),
    Setting(
        "table",
        Kind.STRING,
        "",
        "the Delta table, made when it is not there: a path, or a URL as delta-rs takes it",
        required=True,
    ),
    Setting(
        "storage-option", Kind.REPEATED, (), "of delta-rs for that URL, as AWS_REGION=eu-west-1"
    ),
    Setting(
        "name", Kind.STRING, "archive", "of this archive; two of one table need different names"
    ),
    Setting(
        "checkpoint",
        Kind.STRING,
        "",
        "where Spark notes how far it is (default: in the table, _penstock/archive/NAME)",
    ),
    Setting(
        "from",
        Kind.STRING,
        "earliest",
        "where a new archive begins",
        choices=("earliest", "latest"),
    ),
    Setting(
        "recover",
        Kind.BOOL,
        False,
        "when the checkpoint is lost, go on behind the highest offsets of the table",
    ),
    Setting("columns", Kind.STRINGS, (), f"more columns: {', '.join(_OPTIONAL)}"),
    Setting(
        "schema",
        Kind.STRING,
        "",
        "decode JSON bodies into the column value: Spark's DDL, or @FILE that holds it",
    ),
    Setting("once", Kind.BOOL, False, "stop when all is archived that was there at the start"),
    Setting("trigger", Kind.DURATION, limits.SECOND, "time between batches", least=0),
    Setting("max-offsets-per-trigger", Kind.INT, 500_000, "messages of a batch at most", least=1),
    Setting(
        "fail-on-data-loss",
        Kind.BOOL,
        True,
        "stop when messages are gone before they were archived",
    ),
    *care_settings(),
)


def check(settings: Settings) -> None:
    if bool(settings.texts("topics")) == bool(settings.text("pattern")):
        raise ConfigError("topics, pattern", None, "exactly one of the two is needed")
    try:
        re.compile(settings.text("pattern"))
    except re.error as error:
        raise ConfigError("pattern", settings.text("pattern"), f"no regex: {error}") from error
    for name in settings.texts("columns"):
        if name not in _OPTIONAL:
            raise ConfigError("columns", name, f"one of {', '.join(_OPTIONAL)}")
    place = place_of(settings)
    if not settings.text("checkpoint") and place.local_path is None:
        rule = "it is needed with a table that is no local path: Spark has to reach it by itself"
        raise ConfigError("checkpoint", "", rule)
    jsonbody.read_schema(settings.text("schema"))
    table = place.open()
    if table is not None and not settings.text("schema"):
        check_fits(place, table, shape_of(settings, None))
    _topics(settings)  # a wrong address is told now, and not when Spark is up


def place_of(settings: Settings) -> Place:
    pairs = [text.partition("=") for text in settings.texts("storage-option")]
    for name, equals, _ in pairs:
        if not equals:
            raise ConfigError("storage-option", name, "as AWS_REGION=eu-west-1")
    return Place(settings.text("table"), {name: value for name, _, value in pairs})


def shape_of(settings: Settings, value: pa.DataType | None) -> Shape:
    """`value` is the type of decoded bodies."""
    fields: list[tuple[str, pa.DataType]] = []
    for name, column in COLUMNS.items():
        if column.always or name in settings.texts("columns"):
            fields.append((name, column.arrow_type))
        if name == "topic":
            fields.append(("date", pa.date32()))
    if value is not None:
        fields += [("value", value), ("bad", pa.string())]
    return Shape(pa.schema(fields), PARTITION_BY, STATISTICS)


def checkpoint_of(settings: Settings) -> str:
    given = settings.text("checkpoint")
    path = place_of(settings).local_path
    if given or path is None:
        return given
    return str(path.absolute() / "_penstock" / "archive" / settings.text("name"))


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    place = place_of(settings)
    ddl = jsonbody.read_schema(settings.text("schema"))
    shape = shape_of(settings, jsonbody.value_type(session, ddl) if ddl else None)
    table = place.open()
    if table is not None:
        check_fits(place, table, shape)
    session.dataSource.register(LakeSink)
    checkpoint = checkpoint_of(settings)
    progress.note(table=place.uri, version_of=place.version, checkpoint=checkpoint)
    care, watch = Care(place, settings, progress), Watch()
    pauses = Pauses()
    while True:
        query = _begin(session, settings, shape, ddl, progress)
        try:
            follow(query, progress, watch, care.after_batches)
            break
        except StreamingQueryException as error:
            pause_s = pauses.next(watch.batches)
            if settings.flag("once") or not _may_pass(error, pauses.failures):
                raise
            progress.say(f"{cause_line(error)}; trying again in {pause_s:g} s")
            if progress.wait(pause_s):
                break
    care.finish(settings.flag("once"))
    return DONE


def _may_pass(error: BaseException, failures: int) -> bool:
    """A process that dies again and again has a reason."""
    return is_passing(error) or (is_crash(error) and failures <= limits.PIPELINE_CRASHES_MAX)


def _begin(
    session: SparkSession, settings: Settings, shape: Shape, ddl: str, progress: Progress
) -> StreamingQuery:
    place, checkpoint, identity = place_of(settings), checkpoint_of(settings), _identity(settings)
    topics = _topics(settings)
    state = archivestate.load(session, checkpoint, identity)
    if state is None:
        starting = _starting(settings, place, topics, progress)
        state = archivestate.make(session, checkpoint, identity, starting)
    place.create(shape, configuration(settings))
    archivestate.note_logs(place, {topic: spans.identity for topic, spans in topics.items()})
    for topic in sorted(set(settings.texts("topics")) - set(topics)):
        progress.say(f"there is no topic {topic} yet")
    return _start(session, settings, state, ddl)


def _identity(settings: Settings) -> Identity:
    return Identity(settings.text("table"), settings.texts("topics"), settings.text("pattern"))


def _topics(settings: Settings) -> dict[str, TopicSpans]:
    with BrokerApi(settings.text("url"), ca_file=settings.text("ca-file") or None) as api:
        return api.positions(settings.texts("topics"), settings.text("pattern") or None).topics


def _starting(
    settings: Settings, place: Place, topics: Mapping[str, TopicSpans], progress: Progress
) -> Starting:
    """Where a checkpoint begins. A topic that is not there yet begins at 0 when it is."""
    highest = archivestate.highest_offsets(place, {*topics, *settings.texts("topics")})
    names = {topic for topic, _ in highest}
    if highest and not settings.flag("recover"):
        rule = (
            f"there is no checkpoint in {checkpoint_of(settings)}, but the table has messages of "
            f"{', '.join(sorted(names))}, which would come again: run with --recover to go on "
            "behind them"
        )
        raise ConfigError("table", settings.text("table"), rule)
    identities = {topic: spans.identity for topic, spans in topics.items()}
    archivestate.check_logs(place, identities, names)
    found: Starting = {topic: {"0": 0} for topic in settings.texts("topics")}
    for topic, spans in topics.items():
        for partition, span in spans.partitions.items():
            at = span.end if settings.text("from") == "latest" else span.earliest
            found.setdefault(topic, {})[str(partition)] = at
    for (topic, partition), offset in sorted(highest.items()):
        found.setdefault(topic, {})[str(partition)] = offset + 1
        progress.say(f"recovering: {topic} goes on at offset {offset + 1}")
    return found


def _start(session: SparkSession, settings: Settings, state: State, ddl: str) -> StreamingQuery:
    frame = _shaped(_source(session, settings, state.starting), ddl)
    writer = (
        frame.writeStream.format(FORMAT)
        .queryName(settings.text("name"))
        .option("path", settings.text("table"))
        .option("partitionBy", ",".join(PARTITION_BY))
        .option("statistics", ",".join(STATISTICS))
        .option("storageOptions", json.dumps(dict(place_of(settings).options)))
        .option("txnAppId", state.application)
        .option("checkpointLocation", checkpoint_of(settings))
    )
    if settings.flag("once"):
        return writer.trigger(availableNow=True).start()
    pause_ms = round(settings.seconds("trigger") * 1000)
    return writer.trigger(processingTime=f"{pause_ms} milliseconds").start()


def _source(session: SparkSession, settings: Settings, starting: Starting) -> DataFrame:
    later = {topic: {"0": EARLIEST} for topic in settings.texts("topics") if topic not in starting}
    most = settings.number("max-offsets-per-trigger")
    tasks = max(1, session.sparkContext.defaultParallelism)
    options = {
        "url": settings.text("url"),
        "subscribe": ",".join(settings.texts("topics")),
        "subscribePattern": settings.text("pattern"),
        "caFile": settings.text("ca-file"),
        "startingOffsets": json.dumps({**starting, **later}),
        "maxOffsetsPerTrigger": str(most),
        "maxRecordsPerPartition": str(max(limits.SPARK_ROWS_MAX, -(-most // tasks))),
        "fetchOffset.numRetries": str(limits.PIPELINE_RETRIES),
        "failOnDataLoss": str(settings.flag("fail-on-data-loss")).lower(),
    }
    names = [name for name, column in COLUMNS.items() if column.always]
    names += [name for name in _OPTIONAL if name in settings.texts("columns")]
    return (
        session.readStream.format("penstock")
        .schema(", ".join(f"{name} {COLUMNS[name].sql_type}" for name in names))
        .options(**{name: value for name, value in options.items() if value})
        .load()
    )


def _shaped(frame: DataFrame, ddl: str) -> DataFrame:
    names = frame.columns
    dated = frame.selectExpr(names[0], "to_date(timestamp) AS date", *names[1:])
    return jsonbody.decoded(dated, ddl) if ddl else dated


PIPELINE = Pipeline(
    "archive", "topics into a Delta table, every message exactly once", SETTINGS, run, check
)
