"""The options of the source: Kafka's names with Kafka's meaning, so that a job is easily moved.

A bad option, also one that nobody knows, is an error that names it and says what is allowed: a
misspelt `startingOffset` that is silently passed over would cost somebody a day.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.command.environment import nearest
from penstock.errors import ConfigError
from penstock.spark.brokerapi import name_of
from penstock.spark.schema import BODY_NAMES
from penstock.times import format_time, read_time

EARLIEST = "earliest"
LATEST = "latest"
SPECIAL = {-2: EARLIEST, -1: LATEST}

# An offset or a time for each partition of each topic.
PerPartition = dict[str, dict[int, int]]
_Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)]
_Offset = Annotated[int, Meta(ge=-2, le=(1 << 63) - 1)]
_Offsets = dict[str, Annotated[dict[_Partition, _Offset], Meta(min_length=1)]]
_Times = dict[str, Annotated[dict[_Partition, int | str], Meta(min_length=1)]]
_Assigned = Annotated[frozenset[_Partition], Meta(min_length=1)]

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
_OTHERS = (
    "url", "lookupd", "goneBrokers", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss",
    "onTopicDeleted", "minPartitions", "maxRecordsPerPartition", "includeKey", "includeHeaders",
    "includeBroker", "bodyColumn", "fetchBytes", "requestTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "caFile",
)  # fmt: skip
NAMES = (*_SUBSCRIPTIONS, *_OTHERS, *_BATCH_ONLY, *_STREAM_ONLY)
FROM_SPARK = ("checkpointlocation", "queryname")  # its own, which it hands on to a sink

logger = logging.getLogger(__name__)

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def time_ms(name: str, text: str) -> int:
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
    logger.info("%s %s is %s", name, text, format_time(found))
    return found // limits.MS


class Values:
    """Options by name, in any case; `names` are those that there are."""

    def __init__(self, given: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._names = names
        self._given = {name.lower(): value for name, value in given.items()}

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def refuse_unknown(self) -> None:
        known = {name.lower(): name for name in self._names}
        for name, value in self._given.items():
            if name in known:
                continue
            near = "url" if name.startswith("kafka.") else known.get(nearest(name, known, 0.6), "")
            meant = f"is it {near}? " if near else ""
            rule = f"{meant}the options are {', '.join(self._names)}"
            raise ConfigError(f"option {name}", value, rule)

    def refuse(self, name: str, rule: str) -> None:
        value = self.get(name)
        if value is not None:
            raise ConfigError(f"option {name}", value, rule)

    def required(self, name: str, rule: str) -> str:
        value = self.get(name)
        if not value:
            raise ConfigError(f"option {name}", value, f"it has to be {rule}")
        return value

    def word(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.get(name)
        if value is None:
            return default
        if value.lower() not in allowed:
            raise ConfigError(f"option {name}", value, f"it is one of {', '.join(allowed)}")
        return value.lower()

    def flag(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, default: int, least: int) -> int:
        value = self.get(name)
        if value is None:
            return default
        if re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII) is None or int(value) < least:
            raise ConfigError(f"option {name}", value, f"it is a whole number, at least {least}")
        return int(value)

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970; None where it is not given."""
        value = self.get(name)
        return None if value is None else time_ms(f"option {name}", value)

    def optional_number(self, name: str, least: int = 1) -> int | None:
        return None if self.get(name) is None else self.number(name, least, least)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.get(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None:
            raise ConfigError(f"option {name}", value, 'a duration such as "500ms", "30s", "15m"')
        return int(match[1]) * _DURATION_MS[match[2] or "ms"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read. Exactly one of these is there."""

    word: str | None = None  # EARLIEST or LATEST
    offsets: PerPartition | None = None
    timestamps_ms: PerPartition | int | None = None
    by_broker: dict[str, PerPartition] | None = None  # offsets, of several nsqds

    @property
    def by_partition(self) -> PerPartition:
        """What it says of each partition, where it does so for all nsqds alike."""
        given = self.offsets if self.offsets is not None else self.timestamps_ms
        return given if isinstance(given, dict) else {}

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that it names."""
        return tuple(self.by_partition)

    def named(self, broker: str, topic: str) -> Mapping[int, int] | None:
        """What it says of the partitions of this topic; None where it does not name it."""
        if self.by_broker is not None:
            return self.by_broker.get(broker, {}).get(topic)
        return self.by_partition.get(topic)


@dataclass(frozen=True, slots=True)
class Options:
    urls: tuple[str, ...]  # empty with lookupds
    lookupds: tuple[str, ...]
    gone: tuple[str, ...]  # names of nsqds (host:port) that are given up
    topics: tuple[str, ...]  # empty with a pattern
    pattern: str | None
    assigned: dict[str, frozenset[int]]  # the partitions that are read, by topic; empty: all
    starting: Bound
    ending: Bound
    starting_falls_to_latest: bool  # startingOffsetsByTimestampStrategy
    fail_on_data_loss: bool
    ignores_deleted: bool  # onTopicDeleted
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fetch_bytes: int
    timeout_ms: int
    retries: int
    retry_ms: int
    ca_file: str | None

    @property
    def several(self) -> bool:
        """Then logs are known by their nsqd, too."""
        return bool(self.lookupds) or len(self.urls) > 1

    def reads(self, topic: str, partition: int) -> bool:
        """Of a topic that is asked for."""
        return not self.assigned or partition in self.assigned.get(topic, ())


def read_options(given: Mapping[str, str], streaming: bool) -> Options:
    """ConfigError names what is wrong."""
    values = Values(given, NAMES)
    values.refuse_unknown()
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        kind = "batch" if streaming else "streaming"
        values.refuse(name, f"it is for {kind} queries only")
    topics, pattern, assigned = _subscription(values)
    urls, lookupds = _addresses(values)
    several = bool(lookupds) or len(urls) > 1
    starting = _bound(values, "starting", LATEST if streaming else EARLIEST, several)
    ending = _bound(values, "ending", LATEST, several)
    if not streaming:
        _check_batch_bounds(starting, ending)
    for name, bound in (("startingOffsets", starting), ("endingOffsets", ending)):
        _check_topics(name, bound, topics, pattern)
        _check_assigned(name, bound, assigned)
    # A batch that begins where nothing is yet is an empty one; a stream would begin too early.
    default = "error" if streaming else "latest"
    strategy = values.word("startingOffsetsByTimestampStrategy", ("error", "latest"), default)
    return Options(
        urls=urls,
        lookupds=lookupds,
        gone=tuple(name_of(name) for name in comma_separated(values.get("goneBrokers"))),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        starting_falls_to_latest=strategy == "latest",
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        ignores_deleted=values.word("onTopicDeleted", ("fail", "ignore"), "fail") == "ignore",
        min_partitions=values.optional_number("minPartitions"),
        max_records_per_partition=values.optional_number("maxRecordsPerPartition"),
        max_offsets_per_trigger=values.optional_number("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=values.optional_number("maxBytesPerTrigger"),
        min_offsets_per_trigger=values.optional_number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", limits.SPARK_TRIGGER_DELAY_MS),
        fetch_bytes=values.number("fetchBytes", limits.SPARK_FETCH_BYTES, 1),
        timeout_ms=values.number("requestTimeoutMs", limits.SPARK_REQUEST_MS, 1),
        retries=values.number("fetchOffset.numRetries", limits.SPARK_RETRIES, 0),
        retry_ms=values.number("fetchOffset.retryIntervalMs", limits.SPARK_RETRY_MS, 0),
        ca_file=values.get("caFile"),
    )


def included_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns beside those that are always there: wanted before the rest is looked at. A query
    of several nsqds says which one a message is of."""
    values = Values(given, NAMES)
    several = len(comma_separated(values.get("url"))) > 1 or bool(
        comma_separated(values.get("lookupd"))
    )
    wanted = {
        "broker": values.flag("includeBroker", several),
        "key": values.flag("includeKey", True),
        "headers": values.flag("includeHeaders", False),
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def body_column(given: Mapping[str, str]) -> str:
    """What the bodies' column is called: Kafka's jobs know it as `value`."""
    return Values(given, NAMES).word("bodyColumn", BODY_NAMES, "body")


def _addresses(values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(nsqds, nsqlookupds): one of the two."""
    urls, lookupds = comma_separated(values.get("url")), comma_separated(values.get("lookupd"))
    if bool(urls) == bool(lookupds):
        rule = (
            'nsqd\'s HTTP address, as "http://127.0.0.1:4151", or several with commas between '
            "them; or nsqlookupds' HTTP addresses in lookupd instead"
        )
        raise ConfigError("option url", values.get("url"), rule)
    names = [name_of(url) for url in (*urls, *lookupds)]  # ConfigError for what is no address
    if len(set(names)) != len(names):
        raise ConfigError("option url", values.get("url"), "an address is named twice")
    return urls, lookupds


def comma_separated(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _subscription(values: Values) -> tuple[tuple[str, ...], str | None, dict[str, frozenset[int]]]:
    named = [name for name in _SUBSCRIPTIONS if values.get(name)]
    if len(named) != 1:
        rule = "exactly one of subscribe, subscribePattern and assign is needed"
        raise ConfigError("options", ", ".join(named) or None, rule)
    text = values.required(named[0], "not empty")
    if named[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError("option subscribePattern", text, f"no regex: {error}") from error
        return (), text, {}
    assigned: dict[str, frozenset[int]] = {}
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(comma_separated(text)))
    else:
        rule = f'JSON such as {{"orders": [0, 1]}}: partitions are 0 to {limits.PARTITIONS_MAX - 1}'
        assigned = _decoded("assign", text, rule, dict[str, _Assigned])
        topics = tuple(assigned)
    if not topics:
        raise ConfigError(f"option {named[0]}", text, "it names no topic")
    return topics, None, assigned


def _bound(values: Values, which: str, default: str, several: bool) -> Bound:
    """Of several, Kafka's order counts: one time, a time for each partition, offsets."""
    at_ms = values.time_ms(f"{which}Timestamp")
    if at_ms is not None:
        return Bound(timestamps_ms=at_ms)
    name = f"{which}OffsetsByTimestamp"
    text = values.get(name)
    if text is not None:
        return Bound(timestamps_ms=_times(name, text))
    name = f"{which}Offsets"
    text = values.get(name)
    if text is None:
        return Bound(word=default)
    if text.strip().lower() in (EARLIEST, LATEST):
        return Bound(word=text.strip().lower())
    if several:
        return Bound(by_broker=_by_broker(name, text))
    return Bound(offsets=_offsets(name, text))


def _by_broker(name: str, text: str) -> dict[str, PerPartition]:
    """Of several nsqds each has offsets of its own."""
    rule = 'with several nsqds by nsqd: JSON such as {"host:4151": {"orders": {"0": 1234}}}'
    found = _decoded(name, text, rule, dict[str, _Offsets])
    if not all(":" in broker for broker in found):
        raise ConfigError(f"option {name}", text, rule)
    return {name_of(broker): offsets for broker, offsets in found.items()}


def _offsets(name: str, text: str) -> PerPartition:
    rule = (
        '"earliest", "latest" or JSON such as {"orders": {"0": 1234, "1": 567}}, where -2 is the '
        "earliest and -1 the latest"
    )
    found: PerPartition = _decoded(name, text, rule, _Offsets)
    return found


def _times(name: str, text: str) -> PerPartition:
    rule = 'JSON such as {"orders": {"0": 1795240800000, "1": "2026-11-21T06:00:00Z"}}'
    return {
        topic: {number: time_ms(f"option {name}", str(time)) for number, time in times.items()}
        for topic, times in _decoded(name, text, rule, _Times).items()
    }


def _decoded(name: str, text: str, rule: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"option {name}", text, rule) from error


def _check_batch_bounds(starting: Bound, ending: Bound) -> None:
    wrong = ((starting, "startingOffsets", LATEST, -1), (ending, "endingOffsets", EARLIEST, -2))
    for bound, name, word, number in wrong:
        documents = [bound.offsets or {}, *(bound.by_broker or {}).values()]
        numbers = [n for each in documents for part in each.values() for n in part.values()]
        if bound.word == word or number in numbers:
            raise ConfigError(f"option {name}", word, "a batch query would read nothing")


def _check_topics(name: str, bound: Bound, topics: tuple[str, ...], pattern: str | None) -> None:
    """Offsets and times by partition are given for all topics that are named, and no other; or for
    some of those that the pattern finds."""
    if topics and bound.topics and set(bound.topics) != set(topics):
        rule = f"it has to name exactly the topics {', '.join(topics)}"
        raise ConfigError(f"option {name}", ", ".join(bound.topics), rule)
    for topic in bound.topics if pattern is not None else ():
        if re.fullmatch(pattern or "", topic) is None:
            raise ConfigError(f"option {name}", topic, f"it does not match the pattern {pattern}")


def _check_assigned(name: str, bound: Bound, assigned: Mapping[str, frozenset[int]]) -> None:
    for topic, partitions in (bound.by_partition if assigned else {}).items():
        if set(partitions) != set(assigned.get(topic, ())):
            rule = f"it has to name exactly the partitions that are assigned of {topic}"
            raise ConfigError(f"option {name}", f"{topic}: {listed(partitions)}", rule)


def listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
