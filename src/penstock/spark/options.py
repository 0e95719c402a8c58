"""The options of the source: Kafka's names with Kafka's meaning, so that a job is easily moved.

A field of `SourceOptions` is an option, and its type is the rule. A bad option, also one that
nobody knows, is an error that names it and says what is allowed: a misspelt `startingOffset` that
is silently passed over would cost somebody a day.
"""

import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, inspect

from penstock import limits
from penstock.command.environment import nearest
from penstock.errors import ConfigError
from penstock.net.tls import TlsFiles
from penstock.spark.brokerapi import name_of
from penstock.times import format_time, read_time

EARLIEST = "earliest"
LATEST = "latest"
FROM_SPARK = ("checkpointlocation", "queryname")  # its own, which it hands on to a sink

# An offset for each partition of each topic.
PerPartition = dict[str, dict[int, int]]
_Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)]
_Offset = Annotated[int, Meta(ge=-2, le=(1 << 63) - 1)]
_Offsets = dict[str, Annotated[dict[_Partition, _Offset], Meta(min_length=1)]]
_Assigned = Annotated[frozenset[_Partition], Meta(min_length=1)]
Natural = Annotated[int, Meta(ge=0, lt=10**18)]
Positive = Annotated[int, Meta(ge=1, lt=10**18)]

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")

logger = logging.getLogger(__name__)


def time_ms(name: str, text: str) -> int:
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
    logger.info("%s %s is %s", name, text, format_time(found))
    return found // limits.MS


class Named(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options by name, in any case, as Spark gives them: texts."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return cls.__struct_encode_fields__

    @classmethod
    def read(cls, given: Mapping[str, str], passed_over: Collection[str] = ()) -> Self:
        """ConfigError names the first invalid one."""
        known: Any = inspect.type_info(cls)
        fields = {field.encode_name.lower(): field for field in known.fields}
        found = {}
        for name, text in given.items():
            field = fields.get(name.lower())
            if field is not None:
                found[field.name] = _value(field, text)
            elif name.lower() not in passed_over:
                raise ConfigError(f"option {name.lower()}", text, cls._unknown(name.lower()))
        return cls(**found)

    @classmethod
    def _unknown(cls, name: str) -> str:
        known = {each.lower(): each for each in cls.names()}
        near = "url" if name.startswith("kafka.") else known.get(nearest(name, known, 0.6), "")
        meant = f"is it {near}? " if near else ""
        return f"{meant}the options are {', '.join(cls.names())}"

    def get(self, name: str) -> Any:
        """By its name as an option."""
        return getattr(self, self.__struct_fields__[self.names().index(name)])

    def refuse(self, name: str, rule: str) -> None:
        if self.get(name) is not None:
            raise ConfigError(f"option {name}", self.get(name), rule)


class NsqdOptions(Named, frozen=True, kw_only=True, rename="camel"):
    url: str = ""
    timeout_ms: Positive = msgspec.field(name="requestTimeoutMs", default=limits.SPARK_REQUEST_MS)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def urls(self) -> tuple[str, ...]:
        return comma_separated(self.url)

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.ca_file, self.cert_file, self.key_file)


def _value(field: inspect.Field, text: str) -> Any:
    kinds = getattr(field.type, "types", (field.type,))
    kind = next(each for each in kinds if not isinstance(each, inspect.NoneType))
    rule = "it is one of true, false"
    if isinstance(kind, inspect.StrType):
        return text
    if isinstance(kind, inspect.IntType):
        rule = f"it is a whole number, at least {kind.ge}"
        wanted: Any = Annotated[int, Meta(ge=kind.ge, lt=kind.lt)]
    elif isinstance(kind, inspect.LiteralType):
        rule = f"it is one of {', '.join(map(str, kind.values))}"
        wanted = Literal[kind.values]
    else:
        wanted = bool
    try:
        return msgspec.convert(text.strip().lower(), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"option {field.encode_name}", text, rule) from error


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the range. Exactly one of these is set."""

    word: str | None = None  # EARLIEST or LATEST
    time_ms: int | None = None
    offsets: Mapping[str, PerPartition] | None = None  # by nsqd; "" where it is the only one

    @property
    def of_one(self) -> PerPartition:
        return (self.offsets or {}).get("", {})

    def named(self, broker: str, topic: str) -> Mapping[int, int] | None:
        """The offsets of this topic's partitions; None where it is not named."""
        return (self.offsets or {}).get(broker, {}).get(topic)


class SourceOptions(NsqdOptions, frozen=True, kw_only=True, rename="camel"):
    subscribe: str = ""
    subscribe_pattern: str = ""
    assign: str = ""
    lookupd: str = ""
    gone_brokers: str = ""  # names of nsqds (host:port) that are given up
    starting_offsets: str | None = None
    starting_timestamp: str | None = None
    fail_on_data_loss: bool = True
    on_topic_deleted: Literal["fail", "ignore"] = "fail"
    min_partitions: Positive | None = None
    max_records_per_partition: Positive | None = None
    include_headers: bool = False
    fetch_bytes: Positive = limits.SPARK_FETCH_BYTES
    retries: Natural = msgspec.field(name="fetchOffset.numRetries", default=limits.SPARK_RETRIES)
    retry_ms: Natural = msgspec.field(
        name="fetchOffset.retryIntervalMs", default=limits.SPARK_RETRY_MS
    )
    ending_offsets: str | None = None
    ending_timestamp: str | None = None
    max_offsets_per_trigger: Positive | None = None
    max_bytes_per_trigger: Positive | None = None

    @property
    def lookupds(self) -> tuple[str, ...]:
        return comma_separated(self.lookupd)

    @property
    def several(self) -> bool:
        """Then logs are known by their nsqd, too."""
        return bool(self.lookupds) or len(self.urls) > 1

    @property
    def included(self) -> tuple[str, ...]:
        """Beside the permanent columns. A query of several nsqds includes the one of a message."""
        wanted = {"broker": self.several, "key": True, "headers": self.include_headers}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)


class Options(SourceOptions, frozen=True, kw_only=True):
    gone: tuple[str, ...]
    topics: tuple[str, ...]  # empty with a pattern
    pattern: str | None
    assigned: dict[str, frozenset[int]]  # the partitions that are read, by topic; empty: all
    starting: Bound
    ending: Bound

    def reads(self, topic: str, partition: int) -> bool:
        return not self.assigned or partition in self.assigned.get(topic, ())


def read_options(given: Mapping[str, str], streaming: bool) -> Options:
    """ConfigError names the invalid one."""
    found = SourceOptions.read(given)
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        kind = "batch" if streaming else "streaming"
        found.refuse(name, f"it is for {kind} queries only")
    topics, pattern, assigned = _subscription(found)
    _check_addresses(found)
    starting = _bound(found, "starting", LATEST if streaming else EARLIEST)
    ending = _bound(found, "ending", LATEST)
    if not streaming:
        _check_reads("startingOffsets", starting, LATEST, -1)
        _check_reads("endingOffsets", ending, EARLIEST, -2)
    for name, bound in (("startingOffsets", starting), ("endingOffsets", ending)):
        _check_topics(name, bound, topics, pattern)
    return Options(
        **msgspec.structs.asdict(found),
        gone=tuple(map(name_of, comma_separated(found.gone_brokers))),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
    )


def _check_addresses(given: SourceOptions) -> None:
    if bool(given.urls) == bool(given.lookupds):
        rule = (
            'nsqd\'s HTTP address, as "http://127.0.0.1:4151", or several with commas between '
            "them; or nsqlookupds' HTTP addresses in lookupd instead"
        )
        raise ConfigError("option url", given.url, rule)
    names = [name_of(url) for url in (*given.urls, *given.lookupds)]  # ConfigError for no address
    if len(set(names)) != len(names):
        raise ConfigError("option url", given.url, "an address is named twice")


def comma_separated(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _subscription(
    given: SourceOptions,
) -> tuple[tuple[str, ...], str | None, dict[str, frozenset[int]]]:
    named = [name for name in _SUBSCRIPTIONS if given.get(name)]
    if len(named) != 1:
        rule = "exactly one of subscribe, subscribePattern and assign is needed"
        raise ConfigError("options", ", ".join(named) or None, rule)
    text = given.get(named[0])
    if given.subscribe_pattern:
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError("option subscribePattern", text, f"no regex: {error}") from error
        return (), text, {}
    assigned: dict[str, frozenset[int]] = {}
    if given.subscribe:
        topics = tuple(dict.fromkeys(comma_separated(text)))
    else:
        rule = f'JSON such as {{"orders": [0, 1]}}: partitions are 0 to {limits.PARTITIONS_MAX - 1}'
        assigned = _decoded("assign", text, rule, dict[str, _Assigned])
        topics = tuple(assigned)
    if not topics:
        raise ConfigError(f"option {named[0]}", text, "it names no topic")
    return topics, None, assigned


def _bound(given: SourceOptions, which: str, default: str) -> Bound:
    """Of both, Kafka's order counts: a time, offsets."""
    name = f"{which}Offsets"
    at, text = given.get(f"{which}Timestamp"), given.get(name)
    if at is not None:
        return Bound(time_ms=time_ms(f"option {which}Timestamp", at))
    word = default if text is None else text.strip().lower()
    if word in (EARLIEST, LATEST):
        return Bound(word=word)
    if given.several:
        return Bound(offsets=_by_broker(name, text))
    rule = (
        '"earliest", "latest" or JSON such as {"orders": {"0": 1234, "1": 567}}, where -2 is the '
        "earliest and -1 the latest"
    )
    return Bound(offsets={"": _decoded(name, text, rule, _Offsets)})


def _by_broker(name: str, text: str) -> dict[str, PerPartition]:
    """With several nsqds each has offsets of its own."""
    rule = 'with several nsqds by nsqd: JSON such as {"host:4151": {"orders": {"0": 1234}}}'
    found = _decoded(name, text, rule, dict[str, _Offsets])
    if not all(":" in broker for broker in found):
        raise ConfigError(f"option {name}", text, rule)
    return {name_of(broker): offsets for broker, offsets in found.items()}


def _decoded(name: str, text: str, rule: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"option {name}", text, rule) from error


def _check_reads(name: str, bound: Bound, word: str, number: int) -> None:
    documents = (bound.offsets or {}).values()
    numbers = [n for each in documents for part in each.values() for n in part.values()]
    if bound.word == word or number in numbers:
        raise ConfigError(f"option {name}", word, "a batch query would read nothing")


def _check_topics(name: str, bound: Bound, topics: tuple[str, ...], pattern: str | None) -> None:
    """Offsets are given for all named topics, and no other; or for some of those that the pattern
    finds."""
    named = bound.of_one
    if topics and named and set(named) != set(topics):
        rule = f"it has to name exactly the topics {', '.join(topics)}"
        raise ConfigError(f"option {name}", ", ".join(named), rule)
    for topic in named if pattern is not None else ():
        if re.fullmatch(pattern or "", topic) is None:
            raise ConfigError(f"option {name}", topic, f"it does not match the pattern {pattern}")


def listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
