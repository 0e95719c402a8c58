"""`archive`: topics into a Delta table, every message exactly once.

Spark reads ranges of the log, writes them to files, and commits each batch in one transaction of
the table. Its checkpoint says which ranges a batch has, the table says which batches it
has. The two are tied by a name that is made once for a checkpoint (`checkpoints`), and a run
refuses to start where they do not belong together.

Columns, in this order: the source's, with `date` behind `topic`; `value` and `bad` where bodies are
decoded. The table is partitioned by `topic` and `date`, the day of the message's time in UTC; or by
`date` alone, so that topics with few messages share files.
"""

import json
import re
from collections.abc import Collection

import pyarrow as pa
from deltalake import DeltaTable
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.query import StreamingQuery

from penstock import limits
from penstock.command.flags import Kind
from penstock.errors import ConfigError
from penstock.pipelines import checkpoints, json_values, topic_logs
from penstock.pipelines.archive_offsets import Beginning, is_of_several, present_logs, subscription
from penstock.pipelines.checkpoints import (
    Checkpoint,
    Record,
    Starting,
    checkpoint_of,
    location_of,
    wanted_record,
)
from penstock.pipelines.delta_sink import Target, started
from penstock.pipelines.maintenance import Care, care_settings, configuration
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import DONE, Pipeline
from penstock.pipelines.settings import NSQDS, STORAGE_OPTION, Setting, Settings
from penstock.pipelines.streams import follow
from penstock.spark.delta_table import Shape, check_fits
from penstock.spark.options import read_options
from penstock.spark.schema import COLUMNS
from penstock.wire.names import is_valid_name

PARTITION_BY = ("topic", "date")
SHARED = ("date",)  # topics share files, and readers skip by the least and the greatest topic
EARLIEST = -2  # as Kafka writes it
BROKER = "broker"
KEY = "key"
VALUE = "value"
DECODED = (VALUE, "bad")
LOG = "_log"  # for the sink: the identity of the log that a row is from
STATISTICS = ("partition", "offset", "timestamp")
_OPTIONAL = tuple(name for name, column in COLUMNS.items() if not column.always)

SETTINGS = (
    Setting("topics", Kind.STRINGS, (), "topics to archive"),
    Setting("pattern", Kind.STRING, "", "or a regular expression; topics made later are found"),
    *NSQDS,
    Setting("table", Kind.STRING, "", "the Delta table, made when it is not there: a path, or a"
         " URL as delta-rs takes it", required=True),
    STORAGE_OPTION,
    Setting("name", Kind.STRING, "archive", "of this archive; two of one table need different"
         " names"),
    Setting("checkpoint", Kind.STRING, "", "where Spark notes how far it is (default: in the"
         " table, _penstock/archive/NAME)"),
    Setting("from", Kind.STRING, "earliest", "where a new archive begins",
         choices=("earliest", "latest")),
    Setting("recover", Kind.BOOL, False, "when the checkpoint is lost, go on behind the highest"
         " offsets of the table"),
    Setting("columns", Kind.STRINGS, (), f"more columns: {', '.join(_OPTIONAL)}"),
    Setting("add-columns", Kind.BOOL, False, "add to the table what it lacks of these; rows that"
         " are there have null in them"),
    Setting("schema", Kind.STRING, "", "decode JSON bodies into the column value: Spark's DDL, or"
         " @FILE that holds it"),
    Setting("share-files", Kind.BOOL, False, "of a new table: topics share files; without a word"
         f" they do when there are {limits.LAKE_TOPICS_APART_MAX} of them at the start"),
    Setting("once", Kind.BOOL, False, "stop when all is archived that was there at the start"),
    Setting("trigger", Kind.DURATION, limits.SECOND, "time between batches", bounds=(0, None)),
    Setting("max-offsets-per-trigger", Kind.INT, 500_000, "messages of a batch at most",
         bounds=(1, None)),
    Setting("max-bytes-per-trigger", Kind.INT, limits.PIPELINE_BATCH_BYTES, "bytes of log of a"
         " batch at most, roughly", bounds=(1, None)),
    Setting("fail-on-data-loss", Kind.BOOL, True, "stop when messages are gone before they were"
         " archived"),
    Setting("on-topic-deleted", Kind.STRING, "fail", "a topic that is deleted before its end was"
         " archived, or made again: stop, or go on", choices=("fail", "ignore")),
    *care_settings(),
)  # fmt: skip


def check(settings: Settings) -> None:
    if bool(settings.texts("topics")) == bool(settings.text("pattern")):
        raise ConfigError("topics, pattern", None, "exactly one of the two is needed")
    for name in settings.texts("topics"):
        if not is_valid_name(name):
            raise ConfigError("topics", name, "a topic: 1 to 64 of . a-z A-Z 0-9 _ -")
    name = settings.text("name")  # a part of the checkpoint's path
    if not is_valid_name(name) or name.startswith("."):
        raise ConfigError("name", name, "1 to 64 of . a-z A-Z 0-9 _ -, and no dot at first")
    try:
        re.compile(settings.text("pattern"))
    except re.error as error:
        raise ConfigError("pattern", settings.text("pattern"), f"no regex: {error}") from error
    for name in settings.texts("columns"):
        if name not in _OPTIONAL:
            raise ConfigError("columns", name, f"one of {', '.join(_OPTIONAL)}")
    checkpoint_of(settings)
    json_values.read_schema(settings.text("schema"))
    read_options(subscription(settings), streaming=True)
    location = location_of(settings)
    table = location.open()
    if table is not None and not settings.text("schema"):
        shape = shape_of(settings, chosen_columns(settings, table), None, table)
        check_fits(location, table, shape, _addable(settings))
    present_logs(settings)  # a wrong address is reported now, and not when Spark is up


def chosen_columns(settings: Settings, table: DeltaTable | None) -> tuple[str, ...]:
    """Beside the permanent columns. Keys are archived in any case; the nsqd of a message is stored
    where there are several, and in a table that has that column already."""
    chosen = {KEY, *settings.texts("columns")}
    has = table is not None and BROKER in {field.name for field in table.schema().fields}
    if has or is_of_several(settings):
        chosen.add(BROKER)
    return tuple(name for name in _OPTIONAL if name in chosen)


def _addable(settings: Settings) -> set[str]:
    more = {*_OPTIONAL, *DECODED}
    return {BROKER, KEY} | (more if settings.flag("add-columns") else set())


def shape_of(
    settings: Settings,
    chosen: Collection[str],
    value: pa.DataType | None,
    table: DeltaTable | None = None,
) -> Shape:
    """`chosen` are columns beside the permanent ones, `value` is the type of decoded bodies."""
    fields: list[tuple[str, pa.DataType]] = []
    for name, column in COLUMNS.items():
        if column.always or name in chosen:
            fields.append((name, column.arrow_type))
        if name == "topic":
            fields.append(("date", pa.date32()))
    if value is not None:
        fields += zip(DECODED, (value, pa.string()), strict=True)
    if _shares_files(settings, table):
        return Shape(pa.schema(fields), SHARED, ("topic", *STATISTICS))
    return Shape(pa.schema(fields), PARTITION_BY, STATISTICS)


def _shares_files(settings: Settings, table: DeltaTable | None) -> bool:
    """An existing table keeps its layout; a new one follows the settings, or the number of topics:
    otherwise each topic has a file of its own in each batch."""
    if table is not None:
        return tuple(table.metadata().partition_columns) == SHARED
    if "share-files" in settings.explicit:
        return settings.flag("share-files")
    return len(present_logs(settings).topics) >= limits.LAKE_TOPICS_APART_MAX


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    location = location_of(settings)
    ddl = json_values.read_schema(settings.text("schema"))
    table = location.open()
    columns = pa.schema(table.schema().to_arrow()) if table is not None else pa.schema([])
    if ddl and VALUE in columns.names:
        wanted = json_values.parsed_schema(ddl)
        ddl = json_values.ordered(wanted, columns.field(VALUE).type).toDDL()
    value = to_arrow_type(json_values.parsed_schema(ddl), timezone="UTC") if ddl else None
    shape = shape_of(settings, chosen_columns(settings, table), value, table)
    if table is not None:
        check_fits(location, table, shape, _addable(settings))
        location.add_columns(list(shape.schema))
        check_fits(location, location.open() or table, shape)
    checkpoint = checkpoint_of(settings)
    progress.note(table=location.uri, version_of=location.version, checkpoint=checkpoint)
    if table is None and shape.partition_by == SHARED and not settings.flag("share-files"):
        progress.say(
            "there are many topics, so they share files (--share-files=false: they do not)"
        )
    query = _begin(session, settings, shape, ddl, progress)
    follow(query, progress, Care(location, settings, progress))
    return DONE


def _begin(
    session: SparkSession, settings: Settings, shape: Shape, ddl: str, progress: Progress
) -> StreamingQuery:
    location, checkpoint = location_of(settings), Checkpoint(session, checkpoint_of(settings))
    topics, pattern = settings.texts("topics"), settings.text("pattern")
    wanted = wanted_record(settings.text("table"), topics, pattern)
    record = checkpoint.load(wanted, location)
    location.create(shape, configuration(settings))
    beginning = Beginning(settings, location, progress, record is not None)
    if record is None:
        application = checkpoints.new_application(settings.text("name"))
        if settings.flag("recover"):
            topic_logs.claim(location, application, beginning.owned, takes_over=True)
        fresh = replace(wanted, application=application, starting=beginning.starting())
        record = checkpoint.begin(fresh, location, beginning.owned)
    topic_logs.claim(location, record.application, beginning.owned)
    for topic in sorted(set(topics) - beginning.topics):
        progress.say(f"there is no topic {topic} yet")
    begin = beginning.of_checkpoint(record.starting, checkpoint.has_batches())
    return _start(session, settings, replace(record, starting=begin), ddl, shape)


def _start(
    session: SparkSession, settings: Settings, record: Record, ddl: str, shape: Shape
) -> StreamingQuery:
    source = _source(session, settings, record.starting, shape.schema)
    names = source.columns
    frame = source.selectExpr(names[0], "to_date(timestamp) AS date", *names[1:])
    if ddl:
        frame = json_values.decoded(frame, ddl)
    # More logs of a topic than one: of several nsqds, or of a topic that was made again, whose
    # offsets count from 0 again in the same table.
    ignores = settings.text("on-topic-deleted") == "ignore"
    lets_in = is_of_several(settings) or ignores or not settings.flag("fail-on-data-loss")
    target = Target(
        location_of(settings),
        shape,
        record.application,
        LOG,
        BROKER if BROKER in shape.schema.names else "",
        only_one=not lets_in,
    )
    return started(frame, settings, settings.text("name"), target, checkpoint_of(settings))


def _source(
    session: SparkSession, settings: Settings, starting: Starting, schema: pa.Schema
) -> DataFrame:
    named = () if is_of_several(settings) else settings.texts("topics")
    later = {topic: {"0": EARLIEST} for topic in named if topic not in starting}
    most = settings.number("max-offsets-per-trigger")
    tasks = max(1, session.sparkContext.defaultParallelism)
    options = {
        **subscription(settings),
        "startingOffsets": json.dumps({**starting, **later}),
        "maxOffsetsPerTrigger": str(most),
        "maxBytesPerTrigger": str(settings.number("max-bytes-per-trigger")),
        "maxRecordsPerPartition": str(max(limits.SPARK_ROWS_MAX, -(-most // tasks))),
        "fetchOffset.numRetries": str(limits.PIPELINE_RETRIES),
        "failOnDataLoss": str(settings.flag("fail-on-data-loss")).lower(),
        "onTopicDeleted": settings.text("on-topic-deleted"),
    }
    chosen = [name for name in COLUMNS if name in schema.names]
    read = dict.fromkeys((*chosen, "log"))
    frame = (
        session.readStream.format("penstock")
        .schema(", ".join(f"{name} {COLUMNS[name].sql_type}" for name in read))
        .options(**options)
        .load()
    )
    return frame.selectExpr(*chosen, f"log AS {LOG}")


PIPELINE = Pipeline(
    "archive",
    "topics into a Delta table, every message exactly once",
    SETTINGS,
    run,
    check,
    ends=lambda settings: settings.flag("once"),
)
