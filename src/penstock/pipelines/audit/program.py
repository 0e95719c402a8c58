"""`audit`: was every message of a topic delivered, once, in order? A report, and an exit code.

It reads the trace table (`penstock pipeline run trace` makes it) and, where asked to, the archive
and the log itself, whose offsets have to be without gaps. It changes nothing anywhere.

What is known ends at `--as-of`, which is the last event of the trace table if nothing else is said:
an audit of the same tables then says the same tomorrow.
"""

import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock import limits
from penstock.command.flags import Kind
from penstock.errors import ConfigError, DataLost
from penstock.pipelines import topic_logs
from penstock.pipelines.audit.channel_state import Asker
from penstock.pipelines.audit.findings import Audit, Tables
from penstock.pipelines.audit.report import Report, lines, page, verdict
from penstock.pipelines.audit.rules import Rules, Switch, Tracing, tracing
from penstock.pipelines.delta_frames import frame_of, require_one_broker
from penstock.pipelines.delta_reader import Among, ColumnSpan, Condition, dataset_of
from penstock.pipelines.lifecycles.engine import EVENT, Engine
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import DONE, Pipeline
from penstock.pipelines.settings import (
    STORAGE_OPTION,
    Setting,
    Settings,
    nsqd_of,
    storage_options,
    tls_options,
)
from penstock.pipelines.times import check_moments, read_moment, say_moments
from penstock.spark.delta_table import TableLocation
from penstock.times import at, micros, moment

FINDINGS = 1
FAILED = 3  # no audit was made: 1 means that one was, and has found something

SETTINGS = (
    Setting("topic", Kind.STRING, "", "the topic to audit", required=True),
    Setting("trace", Kind.STRING, "", "the trace table, as the pipeline trace made it"),
    Setting("archive", Kind.STRING, "", "the archive's table: its offsets are checked"),
    STORAGE_OPTION,
    Setting("broker", Kind.STRING, "", "the nsqd (host:port) to audit, in an archive of several"),
    Setting("log", Kind.BOOL, False, "read the topic itself from nsqd, and check its offsets"),
    Setting("channels", Kind.STRINGS, (), "only these channels (default: all that were traced)"),
    Setting("from", Kind.STRING, "", "published since: a time, or this long before as-of (default:"
         " all)"),
    Setting("to", Kind.STRING, "", "published before (default: as-of)"),
    Setting("as-of", Kind.STRING, "", "what is known up to this time, or now (default: the last"
         " event in the trace table)"),
    Setting("msg-timeout", Kind.DURATION, 60 * limits.SECOND, "nsqd's message timeout",
         bounds=(limits.MS, None)),
    Setting("stuck-after", Kind.INT, 5, "a message is stuck when this many message timeouts have"
         " passed since its first delivery", bounds=(1, None)),
    Setting("settle", Kind.DURATION, 60 * limits.SECOND, "a message younger than this is never"
         " called lost", bounds=(0, None)),
    Setting("examples", Kind.INT, 10, "of each finding that are shown", bounds=(1, 1000)),
    Setting("html", Kind.STRING, "", "write the report to this file too, as one page"),
)  # fmt: skip


def check(settings: Settings) -> None:
    if not (settings.text("trace") or settings.text("archive") or settings.flag("log")):
        raise ConfigError("trace, archive, log", None, "at least one of them is needed")
    check_moments(settings, "from", "to", "as-of")
    html = settings.text("html")
    if html and not Path(html).absolute().parent.is_dir():
        raise ConfigError("html", html, "its directory does not exist")


def run(session: SparkSession, settings: Settings, progress: Progress) -> int:
    topic = settings.text("topic")
    progress.note(table=settings.text("trace") or settings.text("archive"))
    with ExitStack() as stack:
        engine = stack.enter_context(Engine())
        rules = rules_of(settings, engine)
        say_moments(progress, settings, datetime.now(UTC), "as-of")
        say_moments(progress, settings, rules.as_of, "from", "to")
        tables = tables_of(session, settings, rules, engine)
        asker = None
        if settings.text("trace") and "url" in settings.explicit:  # somebody has said whom to ask
            asker = Asker(stack.enter_context(nsqd_of(settings)), topic)
        audit = Audit(tables, rules, topic, settings.number("examples"), asker)
        report = audit.run(progress.say)
    if asker is not None and asker.trouble:
        progress.say(f"nsqd was not asked what it knows itself: {asker.trouble}")
    if not (report.coverage.traced if settings.text("trace") else report.partitions):
        where = "publish of it in the trace table" if settings.text("trace") else "message of it"
        span = f"from {moment(rules.since)} to {moment(rules.until)}"
        raise DataLost(topic, 0, f"there is no {where} {span}: nothing can be judged")
    shown, html = page(report), settings.text("html")
    _note(progress, report, shown)
    if html:
        Path(html).write_text(shown, "utf-8")
        progress.say(f"the page is in {html}")
    as_json = settings.flag("json")
    text = f'{{"audit": {report.as_json()}}}' if as_json else "\n".join(lines(report))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return DONE if report.clean else FINDINGS


def _note(progress: Progress, report: Report, shown: str) -> None:
    document = report.as_json()
    outcome = f"topic {report.topic}: {verdict(report)}"
    if max(len(shown), len(document)) > limits.RUN_PAGE_CHARS:
        outcome += "; its page is too long to be kept: write it to a file with --html"
    progress.note(outcome=outcome, pages=(("html", shown), ("json", document)))


# --- times ---


def rules_of(settings: Settings, engine: Engine) -> Rules:
    now = datetime.now(UTC)
    trace, archive = settings.text("trace"), settings.text("archive")
    first, last, found = at(0), now, Tracing()
    if trace:
        engine.trace("whole", dataset_of(trace, storage_options(settings)))
        extent = _extent(engine, "time")
        if extent is None:
            raise DataLost(settings.text("topic"), 0, f"the trace table {trace} has no events")
        first, last = extent
    elif archive:
        engine.view("whole", dataset_of(archive, storage_options(settings)))
        first, _ = _extent(engine, "timestamp") or (first, now)
    as_of = read_moment("as-of", settings.text("as-of"), now) or last
    if trace:
        found = _tracing(engine, settings.text("topic"), as_of)
    until = read_moment("to", settings.text("to"), as_of) or as_of + timedelta(microseconds=1)
    since = read_moment("from", settings.text("from"), as_of) or first
    if not since < until:
        raise ConfigError("from, to", f"{since} to {until}", "the span is empty")
    stuck_s = settings.seconds("msg-timeout") * settings.number("stuck-after")
    return Rules(since, until, as_of, settings.seconds("settle"), stuck_s, found)


def _extent(engine: Engine, column: str) -> tuple[datetime, datetime] | None:
    """The first and the last time that the table knows of."""
    (row,) = engine.rows(
        f"SELECT epoch_us(min({column})) AS first, epoch_us(max({column})) AS last FROM whole"
    )
    return None if row["first"] is None else (at(row["first"]), at(row["last"]))


def _tracing(engine: Engine, topic: str, as_of: datetime) -> Tracing:
    """From the whole table: a rate holds until the next one."""
    rows = engine.rows(
        f"""SELECT {EVENT} FROM whole WHERE event IN ('started', 'switched')
        AND time <= make_timestamptz({micros(as_of)}::BIGINT) ORDER BY position"""
    )
    switches = [
        Switch(row["us"], row["channel"], row["messages"])
        for row in rows
        if row["event"] == "switched" and row["topic"] == topic
    ]
    return tracing(switches, (row["position"] for row in rows if row["event"] == "started"))


# --- tables ---


def tables_of(session: SparkSession, settings: Settings, rules: Rules, engine: Engine) -> Tables:
    trace, archive, topic = (settings.text(name) for name in ("trace", "archive", "topic"))
    options = storage_options(settings)
    if trace:
        span = ColumnSpan("time", *(at(us) for us in rules.traced))
        engine.view("trace", dataset_of(trace, options, [span]))
    log = _log(session, settings, rules) if settings.flag("log") else None
    broker = settings.text("broker")
    location = TableLocation(archive, options)
    archived = _archive(session, location, topic, rules, broker) if archive else None
    return Tables(engine if trace else None, settings.texts("channels"), archived, log)


_AS_ROWS = ("partition", "offset AS position", "id", "unix_micros(timestamp) AS us")


def _archive(
    session: SparkSession, location: TableLocation, topic: str, rules: Rules, broker: str
) -> DataFrame:
    data = dataset_of(location.uri, location.options)
    if broker and "broker" not in data.schema.names:
        raise ConfigError("broker", broker, f"the archive {location.uri} has no column broker")
    conditions: list[Condition] = [
        Among("topic", (topic,)),
        ColumnSpan("timestamp", rules.since, rules.until),
    ]
    conditions += [Among("broker", (broker,))] if broker else []
    columns = ("partition", "offset", "id", "timestamp", "topic", "broker")
    frame = frame_of(session, location, data, conditions, columns)
    if not broker:
        require_one_broker(location.uri, frame, topic_logs.known(location))
    return frame.selectExpr(*_AS_ROWS)


def _log(session: SparkSession, settings: Settings, rules: Rules) -> DataFrame:
    """The topic's rows of the span. The source leaves out corrupt and removed messages, which then
    appear as a gap."""
    options = {
        "url": settings.text("url"),
        "subscribe": settings.text("topic"),
        "startingTimestamp": moment(rules.since),
        "endingTimestamp": moment(rules.until),
        "failOnDataLoss": "false",
        "minPartitions": "4",
        **tls_options(settings),
    }
    schema = "partition int, offset bigint, id string, timestamp timestamp"
    frame = session.read.format("penstock").schema(schema).options(**options)
    return frame.load().selectExpr(*_AS_ROWS)


PIPELINE = Pipeline(
    "audit",
    "gaps, lost, stuck, doubled and disordered messages of a topic; exit code 0 only if clean",
    SETTINGS,
    run,
    check,
    failed=FAILED,
)
