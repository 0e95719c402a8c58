"""The tie between a checkpoint and a table, and recovery when one of the two is lost.

The checkpoint holds `penstock.json`, a `Record`. Each checkpoint has an application name of its
own: one that counts its batches from 0 again under an old name would find them done.
The beginning is written down in numbers, because Spark notes only where a batch ends: when its
first batch failed it asks the source again where to begin, and "latest" is elsewhere by then.

A table outlives its checkpoint, and its highest offsets say where to go on; which logs these are of
stands in a file beside it (`topic_logs`).
"""

import uuid
from collections.abc import Collection
from contextlib import closing
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, TableAway
from penstock.pipelines import topic_logs
from penstock.pipelines.settings import Settings, storage_options
from penstock.spark.delta_table import TableLocation, local_path

_RECORD = "penstock.json"
_VERSION = 1
_APPLICATION = "penstock-archive-"
_REMEDY = "remove the checkpoint; an archive goes on with --recover"
_UUID_CHARS = 37  # with the dash before it
# As the option startingOffsets has it: by topic, or by nsqd and topic where it archives several.
Starting = dict[str, Any]


class Record(msgspec.Struct, frozen=True):
    """The subject of a checkpoint, and its beginning."""

    version: int
    table: str
    topics: tuple[str, ...]
    pattern: str
    application: str  # the table counts the batches of this checkpoint under this name
    starting: Starting


def wanted_record(table: str, topics: tuple[str, ...], pattern: str) -> Record:
    """The expected subject of a checkpoint. A record in a file lacks nothing: none has a
    default."""
    return Record(_VERSION, table, topics, pattern, "", {})


def location_of(settings: Settings) -> TableLocation:
    return TableLocation(settings.text("table"), storage_options(settings))


def checkpoint_of(settings: Settings, name: str = "") -> str:
    """`name` is its default below the table; an archive's is by its own name."""
    given, location = settings.text("checkpoint"), location_of(settings)
    if not given and location.local_path is None:
        rule = "it is needed with a table that is no local path: Spark has to reach it by itself"
        raise ConfigError("checkpoint", "", rule)
    inside = f"{local_path(given)}/".partition(f"{location.root}/")
    if given and not inside[0] and not inside[2].startswith(("_", ".")):
        rule = "in the table's directory its name has to begin with _: old files are removed there"
        raise ConfigError("checkpoint", given, rule)
    return given or f"{location.root}/_penstock/{name or 'archive/' + settings.text('name')}"


# --- the checkpoint ---


class Checkpoint:
    """A directory that Spark reads through Hadoop's file systems."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()
        self._path = path

    def load(self, wanted: Record, location: TableLocation) -> Record | None:
        """None when there is none. ConfigError when it belongs to another table or other topics. A
        checkpoint is made after its table: where the table is missing, usually a disk is not
        mounted, and a new table would lack all earlier rows."""
        files, path = self._at(_RECORD)
        if not files.exists(path):
            if self.has_batches():
                raise ConfigError("checkpoint", self._path, "it is not an archive's: name another")
            return None
        record = read_record(self._path, self._text(files, path), wanted)
        self._check_whole()
        if (table := location.open()) is None:
            rule = (
                f"it is not there, but the checkpoint {self._path} is of it: is its disk mounted? "
                "To begin again with a new table, name another checkpoint"
            )
            raise TableAway(location.uri, rule)
        committed = table.transaction_version(record.application)
        newest = max(map(int, self._batches("offsets")), default=-1)
        if committed is not None and committed > newest:
            # The next batches would have numbers that the table has, and other messages: these
            # would be passed over.
            rule = f"it is older than the table, which has its batch {committed}: {_REMEDY}"
            raise ConfigError("checkpoint", self._path, rule)
        return record

    def _check_whole(self) -> None:
        """Spark's error for a file that a power loss has cut lacks its name or the remedy."""
        for kind, lines in ("metadata", 1), ("offsets", 2), ("commits", 1):
            newest = max(self._batches(kind), key=int, default="")
            files, path = self._at(f"{kind}/{newest}" if newest else kind)
            if files.isFile(path) and not is_whole(self._text(files, path), lines):
                rule = f"it is cut short: {_REMEDY}"
                raise ConfigError("checkpoint", path.toUri().getPath(), rule)

    def _batches(self, kind: str) -> list[str]:
        """The files that Spark names by a batch's number."""
        files, path = self._at(kind)
        found = files.listStatus(path) if files.exists(path) else []
        return [name for one in found if (name := one.getPath().getName()).isdecimal()]

    def _text(self, files: Any, path: Any) -> str:
        with closing(files.open(path)) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def begin(self, record: Record, location: TableLocation, topics: Collection[str]) -> Record:
        """Where two begin at once, each with a checkpoint of its own, one claims the topics and the
        other one is refused; its record is removed, or it would be taken for a beginning."""
        topic_logs.claimed(topic_logs.known(location), record.application, topics)
        self._make(record)
        try:
            topic_logs.claim(location, record.application, topics)
        except ConfigError:
            files, path = self._at(_RECORD)
            files.delete(path, False)
            raise
        return record

    def _make(self, record: Record) -> None:
        """Whole, or not at all."""
        files, fresh = self._at(f".{_RECORD}.{uuid.uuid4()}")
        with closing(files.create(fresh)) as stream:
            stream.write(bytearray(msgspec.json.encode(record)))
        files.rename(fresh, self._at(_RECORD)[1])

    def has_batches(self) -> bool:
        """Spark knows the position of the query, and does not ask for a beginning."""
        return bool(self._batches("offsets"))

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        return path.getFileSystem(self._configuration), path


def new_application(name: str) -> str:
    return f"{_APPLICATION}{name}-{uuid.uuid4()}"


def name_of(application: str) -> str:
    """The archive's name in a result of `new_application`."""
    return application.removeprefix(_APPLICATION)[:-_UUID_CHARS]


def is_whole(text: str, lines: int) -> bool:
    """Whether a file of Spark's checkpoint has its version and this many lines of JSON."""
    found = [line for line in text.splitlines() if line != "v1"]
    try:
        return len([msgspec.json.decode(line) for line in found]) >= lines
    except msgspec.DecodeError:
        return False


def read_record(checkpoint: str, text: str, wanted: Record) -> Record:
    try:
        made = msgspec.json.decode(text, type=Record)
    except msgspec.DecodeError as error:
        raise ConfigError("checkpoint", checkpoint, f"{_RECORD} is damaged: {error}") from error
    if made.version != _VERSION:
        raise ConfigError("checkpoint", checkpoint, f"{_RECORD} is not of version {_VERSION}")
    gone = set(made.topics) - set(wanted.topics)
    if local_path(made.table) != local_path(wanted.table):
        raise ConfigError("checkpoint", checkpoint, f"it is of the table {made.table}")
    if made.pattern != wanted.pattern or gone:
        was = f"the pattern {made.pattern}" if made.pattern else ", ".join(made.topics)
        raise ConfigError("checkpoint", checkpoint, f"it is of other topics: {was}")
    return made
