"""Which logs a table has messages of, and which archive writes each topic: in a file beside the
table, which one property of the table names.

A table outlives its checkpoint, and its highest offsets say where to go on. That is right for the
log that these offsets are of; a topic that was deleted and made again counts from 0. So the table
notes the identity of a topic's log before the first batch that has messages of it; and as one more
identity comes, when the messages of a second log are let in, both are there for good.

Two archives of one topic would double it. So a topic belongs to the first archive that names it or
has messages of it, and the commits of another are refused. `--recover` takes a topic over.

The property `penstock.topics` is the name of a file in `_penstock_topics`, a directory
that readers of the table do not see, and apart from `_penstock`, which has the checkpoint: who
deletes that to begin again must not lose this. The file is Parquet with a row for each topic
(`topic`, `logs`, `owner`). It never changes: each change writes a whole new file, `NUMBER-UUID`,
with a number one higher, and then sets the property (docs/adr/0009-a-file-that-the-table-names.md).

A log is "IDENTITY", or "IDENTITY@BROKER" where the rows name their nsqd: a table may have offsets
of several, and this note says which log the rows of a broker are from, also when that nsqd has
moved since.

**Why it is safe.** What holds is what the property names, and nothing else.

- *A crash* after the file and before the property leaves a file that nobody names. It is synced
  before, so a property that is there after a power loss has its file.
- *A race.* Setting the property changes the table's metadata, and Delta refuses a change of
  metadata that was prepared before another one. So of two archives that write a file each one gets
  its name in; the other begins again with what that one wrote, and may find its topic taken.
- *A batch* of an archive whose topic was taken over meanwhile is a commit that was prepared before
  a change of the metadata: it fails too, is made again, and is refused by what the new file says.
- *The vacuum* removes files that were replaced as long ago as data files that were, and never one
  with a number above that of the property: somebody may be about to name it. One with a number that
  is not above it can't be named any more, as the property was another one when it was written.
"""

import io
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from penstock.errors import ConfigError, DataLost, LakeFailed
from penstock.pipelines.delta_reader import LakeFile, LakeTable
from penstock.pipelines.lifecycles.engine import Engine
from penstock.spark.delta_files import store
from penstock.spark.delta_table import Properties, TableLocation
from penstock.wire.names import is_ephemeral

_FOLDER = "_penstock_topics"
_NAMED = "penstock.topics"
_SCHEMA = pa.schema(
    [("topic", pa.string()), ("logs", pa.list_(pa.string())), ("owner", pa.string())]
)
AGAIN = (
    "it was deleted and made again since it was archived: its offsets count from 0 again, so it "
    "needs another table"
)
NOT_SAID = (
    "the table does not say which log its messages of it are from, so it cannot be determined "
    "whether the offsets go on: archive it into another table"
)


class TopicLog(NamedTuple):
    noted: tuple[str, ...] = ()  # logs that the table has messages of, as `noted_as` writes them
    owner: str = ""  # the archive that writes it

    @property
    def identities(self) -> tuple[str, ...]:
        """Each once, wherever it was."""
        return tuple(dict.fromkeys(each.partition("@")[0] for each in self.noted))

    def of(self, broker: str) -> set[str]:
        """Identities of the logs that rows with this broker are from; "" is for those without."""
        parts = (each.partition("@") for each in self.noted)
        return {identity for identity, _, name in parts if name == broker}

    def brokers(self, identity: str) -> set[str]:
        """The brokers that had that log."""
        parts = (each.partition("@") for each in self.noted)
        return {name for each, _, name in parts if each == identity}

    def is_one_of(self, brokers: Iterable[str]) -> bool:
        """Whether these brokers had the same log, as nodes of a cluster have."""
        found = [self.of(broker) for broker in brokers]
        return len(found[0]) == 1 and all(each == found[0] for each in found)


Topics = Mapping[str, TopicLog]


def noted_as(identity: str, broker: str | None) -> str:
    return f"{identity}@{broker}" if broker else identity


# --- the file ---


def known(location: TableLocation) -> Topics:
    """By topic; empty without a table."""
    return _known(location, location.properties())


def _known(location: TableLocation, properties: Properties) -> Topics:
    name = properties.get(_NAMED)
    return _read(location.uri, tuple(location.options.items()), name) if name else {}


@lru_cache(maxsize=4)  # a name has one content for ever, and each batch asks for it
def _read(uri: str, options: tuple[tuple[str, str], ...], name: str) -> Topics:
    location = TableLocation(uri, dict(options))
    path = location.full(f"{_FOLDER}/{name}")
    try:
        with location.files().open_input_file(path) as file:
            rows = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        rule = (
            f"{path}, which says which archives write into it, can't be read: {error}. A copy of "
            f"the table needs the directory {_FOLDER}"
        )
        raise LakeFailed(uri, rule) from error
    return {row["topic"]: TopicLog(tuple(row["logs"]), row["owner"]) for row in rows}


def _change(location: TableLocation, wanted: Callable[[Topics], Topics]) -> None:
    """Apply the result of `wanted` for the known topics, in one step: when they change meanwhile,
    it is called again."""

    def named(properties: Properties) -> Properties:
        there = _known(location, properties)
        fresh = wanted(there)
        if not fresh:
            return {}
        name = f"{_number(properties.get(_NAMED, '0')) + 1}-{uuid.uuid4()}.parquet"
        _write(location, name, {**there, **fresh})
        return {_NAMED: name}

    location.set_properties(named)


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _write(location: TableLocation, name: str, topics: Topics) -> None:
    rows = [
        {"topic": topic, "logs": list(log.noted), "owner": log.owner}
        for topic, log in sorted(topics.items())
    ]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), content, compression="zstd")
    store(location, f"{_FOLDER}/{name}", content.getvalue())


def remove_replaced(location: TableLocation, retain_s: float) -> int:
    """Files that were replaced, or lost a race, so long ago. How many."""
    named = location.properties().get(_NAMED, "0")
    files = location.files()
    old = [
        info.path
        for info in files.get_file_info(FileSelector(location.full(_FOLDER), allow_not_found=True))
        if info.base_name.endswith(".parquet") and info.base_name != named
        if _number(info.base_name) <= _number(named)
        if info.mtime.timestamp() < time.time() - retain_s
    ]
    for path in old:
        files.delete_file(path)
    return len(old)


# --- writers of a topic ---


def claimed(
    known: Topics, owner: str, topics: Iterable[str], takes_over: bool = False
) -> dict[str, TopicLog]:
    """The change that makes the owner own these topics. ConfigError when one has another owner,
    unless this one takes it over: then the next commit of the other one is refused."""
    fresh = {}
    for topic in topics:
        log = known.get(topic, TopicLog())
        if log.owner not in ("", owner) and not takes_over:
            rule = (
                f"the archive {log.owner} writes this topic into the table, so it would come "
                "twice: name another table, or take the topic over with archive --recover and a "
                "new checkpoint"
            )
            raise ConfigError("topics", topic, rule)
        if log.owner != owner:
            fresh[topic] = log._replace(owner=owner)
    return fresh


def claim(
    location: TableLocation, owner: str, topics: Collection[str], takes_over: bool = False
) -> None:
    _change(location, lambda known: claimed(known, owner, topics, takes_over))


# --- which log it is ---


def note(
    location: TableLocation,
    owner: str,
    logs: Collection[tuple[str, str]],
    properties: Properties,
    only_one: bool = False,
) -> bool:
    """Before a commit to a table with these properties: as in `noted`. Returns whether that changed
    the table, so that the commit has to begin again."""

    def wanted(known: Topics) -> Topics:
        return noted(known, owner, logs, only_one)

    is_missing = bool(wanted(_known(location, properties)))
    if is_missing:
        _change(location, wanted)
    return is_missing


def noted(
    known: Topics, owner: str, logs: Collection[tuple[str, str]], only_one: bool = False
) -> dict[str, TopicLog]:
    """The change for messages of these (topic, log as `noted_as`). With `only_one`, DataLost for a
    second log of a durable topic."""
    fresh = claimed(known, owner, sorted({topic for topic, _ in logs}))
    for topic, seen in sorted(logs):
        log = fresh.get(topic) or known[topic]
        if seen not in log.noted:
            is_second = log.noted and seen.partition("@")[0] not in log.identities
            if only_one and is_second and not is_ephemeral(topic):
                raise DataLost(topic, 0, AGAIN)
            fresh[topic] = log._replace(noted=(*log.noted, seen))
    return fresh


def check_identities(known: Topics, present: Mapping[str, str], topics: Collection[str]) -> None:
    """DataLost when one of these topics, with messages in the table, exists, and its log is not
    that of these messages, or unknown. `present` are the identities of the existing logs."""
    for topic in sorted(set(topics) & set(present)):
        identities = known.get(topic, TopicLog()).identities
        if not identities:
            raise DataLost(topic, 0, NOT_SAID)
        if identities != (present[topic],):
            raise DataLost(topic, 0, AGAIN)


def identity_of(noted: TopicLog, topic: str, broker: str, has_unnamed: bool) -> str:
    """The only log that these rows can be from. A log without a known broker may date from before
    brokers were noted, unless there are rows without a broker, which belong to it."""
    named = {each.partition("@")[0] for each in noted.noted if "@" in each}
    stray = noted.of("") - named
    identities = noted.of(broker)
    if len(identities) != 1 or (stray and not has_unnamed):
        raise DataLost(topic, 0, NOT_SAID)
    return identities.pop()


# --- how far they are in the table ---


def archived_spans(
    table: LakeTable, topics: Collection[str], by_broker: bool = False
) -> dict[tuple[str, str, int], range]:
    """From the lowest offset to the highest in the table, by topic, broker and partition; without
    entries for missing ones. The broker is "" in rows without one, and in all unless requested."""
    by_broker = by_broker and "broker" in table.columns
    found: dict[tuple[str, str, int], range] = {}
    unsure: list[LakeFile] = []
    for file in table.files():
        if "topic" in file.partition and file.partition["topic"] not in topics:
            continue
        log = None if by_broker else _only_log(file)
        if log is None:
            unsure.append(file)
        else:
            span = range(int(file.least["offset"]), int(file.most["offset"]) + 1)
            found[log] = joined(span, found.get(log, span))
    with Engine() as engine:
        engine.view("archived", table.with_files(unsure))
        broker = "coalesce(broker, '')" if by_broker else "''"
        rows = engine.rows(
            f"""SELECT topic, {broker} AS broker, partition, min("offset") AS least,
            max("offset") AS most FROM archived GROUP BY ALL HAVING most IS NOT NULL"""
        )
    for row in rows:
        log = row["topic"], row["broker"], row["partition"]
        span = range(row["least"], row["most"] + 1)
        found[log] = joined(span, found.get(log, span))
    return {log: span for log, span in found.items() if log[0] in topics}


def joined(one: range, other: range) -> range:
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _only_log(file: LakeFile) -> tuple[str, str, int] | None:
    """None where the file's statistics do not show that it has one log, and its last offset."""
    known = {**file.partition, **{n: v for n, v in file.least.items() if v == file.most.get(n)}}
    topic, partition = known.get("topic"), known.get("partition")
    if topic is None or partition is None or "offset" not in file.most.keys() & file.least:
        return None
    return str(topic), "", int(partition)
