"""The nsqds that a query reads: one, a list, or all that nsqlookupds know.

Each has a name, its address as host:port, which stands in the column `broker` and in the offsets.
A query of one nsqd names none there, as it did before there were several. What ties an offset to
its log is the log's identity: an nsqd that moved to another address is found again by it, and so is
a log of a checkpoint from before the query had several nsqds.

An nsqd that can't be reached is an outage, and never a reason to go on without its messages: also
when no nsqlookupd knows it any more, as long as the checkpoint does. One that is gone for good is
named by the option `goneBrokers`; its offsets stay in the checkpoint as they are.

Of a cluster one node is asked, whichever answers, and it speaks for all (`brokerapi`): its name is
that of the cluster's logs then, and another node takes its place when it is gone. The others are
asked for the topics that each node has for itself. A partition without a leader is waited for where
its messages are needed now; else the others go on without it.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar, NamedTuple, Self, TypeVar

import msgspec

from penstock import limits
from penstock.errors import BrokerRefused, ConfigError, FetchFailed
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Call, Ends, LogSpan, Positions
from penstock.spark.brokerapi import NOT_READY, PAUSE_S_MAX, BrokerApi, name_of
from penstock.spark.offsets import Log, LogId, Offsets, relocated, spans
from penstock.spark.options import Bound, Options, PerPartition
from penstock.wire.names import is_ephemeral

T = TypeVar("T")


class BrokerLogs(NamedTuple):
    have: dict[Log, LogSpan]
    answers: dict[str, Positions]  # what each nsqd has said
    brokers: frozenset[str]  # that were asked, or for which another node of the cluster was
    offline: frozenset[LogId]  # partitions without a leader
    missing: tuple[str, ...] = ()  # topics that are asked for by name and that none has

    @property
    def topics(self) -> set[str]:
        return {log.topic for log in self.have}

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(log.topic, log.partition) for log in self.have}

    @property
    def are_nodes(self) -> bool:
        """Those that answered are of a cluster: its topics are the same at all of them."""
        return bool(self.answers) and all(one.nodes for one in self.answers.values())

    def is_behind(self, begun: Offsets) -> bool:
        """Does a new leader have less on its disk than was read of the one before it?"""
        return any(
            log in self.have and self.have[log].end < offset and self.answers[log.broker].nodes
            for log, offset in relocated(begun, self.have).items()
        )

    def placed(self, bound: Bound) -> Bound:
        """Offsets by the nsqds that answered. In a cluster any node speaks for its topics, so what
        was given for one of them holds for whoever speaks now; but not of topics that each node has
        for itself."""
        if not self.are_nodes:
            return bound
        found: dict[str, PerPartition] = {}
        for broker, topics in (bound.offsets or {}).items():
            for topic, offsets in topics.items():
                homes = {log.partition: log.broker for log in self.have if log.topic == topic}
                if topic.startswith("_") or is_ephemeral(topic):
                    homes = {}
                for number, offset in offsets.items():
                    at = homes.get(number, next(iter(homes.values()), broker))
                    found.setdefault(at, {}).setdefault(topic, {})[number] = offset
        return replace(bound, offsets=found or None)


class Brokers:
    """For one thread; connections are kept until the end."""

    _failed_s: ClassVar[dict[str, float]] = {}  # when an nsqd did not answer: it is asked last

    def __init__(self, options: Options) -> None:
        self._options = options
        self._urls = {name_of(url): url for url in options.urls}
        self._stack = ExitStack()
        self._apis: dict[str, BrokerApi] = {}
        self.ended: Ends = {}  # of deleted topics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def api(self, broker: str) -> BrokerApi:
        """ "" is the only one."""
        if broker not in self._apis:
            url = self._urls.get(broker, f"http://{broker}") if broker else self._options.urls[0]
            self._apis[broker] = self._stack.enter_context(self._opened(url))
        return self._apis[broker]

    def offset_at(self, log: Log, timestamp_ms: int) -> int:
        """The first offset at or after that time."""
        return self._ask(log, calls.offset_at(log.topic, timestamp_ms, log.partition))

    def offset_after(self, log: Log, offset: int, length: int) -> int:
        """The offset this many bytes of the log behind another one."""
        return self._ask(log, calls.offset_after(log.topic, offset, length, log.partition))

    def _ask(self, log: Log, call: Call[int]) -> int:
        return self._again(lambda: self.api(log.broker).ask_leader(log.id, call))

    def _again(self, ask: Callable[[], T]) -> T:
        """The answer, tried again where an nsqd may be about to come back, or to have a leader."""
        pauses = self.pauses()
        while True:
            try:
                return ask()
            except FetchFailed as error:
                pause_s = next(pauses, None) if error.status in (0, *NOT_READY) else None
                if pause_s is None:
                    raise
            time.sleep(pause_s)

    def label(self, broker: str) -> str:
        """In the form of the column `broker`."""
        return broker or name_of(self._options.urls[0])

    def found(self, begun: Offsets | None = None) -> BrokerLogs:
        """The logs of all topics of the query. `begun` are the known offsets: their nsqds are asked
        too where nsqlookupds list the nodes. A query without any needs all partitions, to know its
        beginning."""
        options = self._options
        asked = self._settled(options.topics, options.pattern, begun or {}, begun is None)
        missing = set(options.topics).difference(*(one.topics for one in asked.answers.values()))
        have = {
            log: asked.have[log] for log in asked.have if options.reads(log.topic, log.partition)
        }
        return asked._replace(have=have, missing=tuple(sorted(missing)))

    def have(self, wanted: Offsets) -> dict[Log, LogSpan]:
        """The present spans of these logs, wherever they are."""
        return self._settled(sorted({log.topic for log in wanted}), None, wanted, True).have

    def _settled(
        self, topics: Collection[str], pattern: str | None, begun: Offsets, needs_all: bool
    ) -> BrokerLogs:
        """Waits until a cluster has chosen its leaders, and these have the earlier messages.
        `needs_all` of the known logs, or of all: FetchFailed where one stays offline."""
        deadline_s = time.monotonic() + limits.SPARK_LEADER_WAIT_S
        begun_ids = {log.id for log in begun}
        while True:
            asked = self._again(lambda: self._asked(topics, pattern, begun))
            needed = asked.offline & begun_ids if begun else asked.offline
            lacks = needs_all and needed
            if not (lacks or asked.is_behind(begun)) or time.monotonic() >= deadline_s:
                break
            time.sleep(limits.SPARK_LEADER_PAUSE_S)
        if lacks:
            topic, _, partition = min(needed)
            reason = f"no leader of partition {partition} of topic {topic} can be reached"
            broker = min(asked.answers)
            raise FetchFailed(self.label(broker), reason)
        return asked

    def _asked(self, topics: Collection[str], pattern: str | None, begun: Offsets) -> BrokerLogs:
        """The logs of the listed nsqds, and of those in `begun`; and the answer of each."""
        listed = self._listed()
        known = {log.broker for log in begun if log.broker} if self._options.lookupds else set()
        answers: dict[str, Positions] = {}
        failed: dict[str, FetchFailed] = {}
        spokesmen: dict[str, BrokerApi] = {}  # by node of the cluster that was asked through them
        asked = {*listed, *known} - set(self._options.gone)
        for broker in sorted(asked, key=lambda one: (self._failed_s.get(one, 0.0), one)):
            try:
                silent_s = time.monotonic() - self._failed_s.get(broker, -math.inf)
                if spokesmen and silent_s < limits.SPARK_LEADER_WAIT_S:
                    # it was asked not long ago: the others need not wait for it
                    failed[broker] = FetchFailed(broker, "it did not answer a moment ago")
                    continue
                if broker in spokesmen:
                    # what it has for itself, as its traces are; what the cluster has is known
                    node = spokesmen[broker].other(broker)
                    own = node.positions(topics, pattern, only_here=True)
                    answers[broker] = msgspec.structs.replace(own, elsewhere={})
                else:
                    answers[broker] = self._positions(broker, topics, pattern)
                    spokesmen |= dict.fromkeys(answers[broker].nodes, self.api(broker))
                self._failed_s.pop(broker, None)
            except FetchFailed as error:
                failed[broker] = error
                self._failed_s[broker] = time.monotonic()
        is_cluster = bool(answers) and all(one.nodes for one in answers.values())
        for broker, failure in failed.items():
            if not is_cluster and (broker in listed or isinstance(failure, BrokerRefused)):
                raise failure
        have: dict[Log, LogSpan] = {}
        for broker, positions in answers.items():
            have |= spans(positions.topics, broker)
        have = _once(have, is_cluster)
        brokers = frozenset({*answers, *asked} if is_cluster else answers)
        found = BrokerLogs(have, answers, brokers, _offline(answers.values(), have))
        for log in relocated(begun, have):
            if log.broker in failed and log.id not in found.offline:
                reason = (
                    f"{failed[log.broker].reason}; the checkpoint has offsets of this nsqd, and no "
                    "nsqlookupd knows it: if it is gone for good, name it in goneBrokers"
                )
                raise FetchFailed(failed[log.broker].url, reason)
        return found

    def partitions(self, broker: str, names: Collection[str]) -> set[tuple[str, int]]:
        """Which partitions of these topics one nsqd has."""
        found = self._again(lambda: self._positions(broker, sorted(names))).topics
        return {(name, number) for name, spans in found.items() for number in spans.partitions}

    def ends_of(self, names: Collection[str]) -> Ends:
        """The ends of deleted logs of these topics, as far as known."""
        if names:
            self._settled(names, None, {}, False)
        return {name: self.ended[name] for name in names if name in self.ended}

    def _positions(
        self, broker: str, names: Collection[str], pattern: str | None = None
    ) -> Positions:
        positions = self.api(broker).positions(names, pattern)
        for name, ends in positions.ends.items():
            self.ended.setdefault(name, {}).update(ends)
        return positions

    def _listed(self) -> set[str]:
        options = self._options
        if not options.several:
            return {""}
        if options.urls:
            return set(self._urls)
        found: set[str] = set()
        errors: list[FetchFailed] = []
        for url in options.lookupds:
            try:
                with self._opened(url) as lookupd:
                    found |= {one.http_address for one in lookupd.ask(calls.nodes())}
            except FetchFailed as error:
                errors.append(error)
        if len(errors) == len(options.lookupds):
            raise errors[0]
        return found

    def pauses(self) -> Iterator[float]:
        """Before a request to several nsqds is tried again; one alone is tried by its `api`."""
        options = self._options
        for done in range(options.retries if options.several else 0):
            yield min(options.retry_ms * 2**done / 1000, PAUSE_S_MAX)

    def _opened(self, url: str) -> BrokerApi:
        """Of several none is tried again before the others: another node may speak for it."""
        options = self._options
        retries = 0 if options.several else options.retries
        return BrokerApi(url, options.timeout_ms, retries, options.retry_ms, options.tls)


def _offline(answers: Iterable[Positions], have: Collection[Log]) -> frozenset[LogId]:
    """Not where a leader was asked itself: others may not reach it, as over HTTPS."""
    elsewhere = frozenset(
        (name, one.identity, number)
        for positions in answers
        for name, one in positions.elsewhere.items()
        for number in one.partitions
    )
    return elsewhere.difference(log.id for log in have)


def _once(have: Mapping[Log, LogSpan], is_cluster: bool) -> dict[Log, LogSpan]:
    """Nodes of one cluster may have other names than it has for them. Elsewhere it is a ConfigError
    when two addresses are of one nsqd: its messages would come twice."""
    found: dict[LogId, Log] = {}
    for log in have:
        other = found.setdefault(log.id, log).broker
        if other != log.broker and not is_cluster:
            rule = (
                f"both have the same log of topic {log.topic}, so they are one nsqd: name it once"
            )
            raise ConfigError("url", f"{other}, {log.broker}", rule)
    return {log: have[log] for log in found.values()}
