"""The nsqds that a query reads: one, a list, or all that nsqlookupds know.

Each has a name, its address as host:port, which stands in the column `broker` and in the offsets.
A query of one nsqd names none there, as it did before there were several. What ties an offset to
its log is the log's identity: an nsqd that moved to another address is found again by it, and so is
a log of a checkpoint from before the query had several nsqds.

An nsqd that can't be reached is an outage, and never a reason to go on without its messages: also
when no nsqlookupd knows it any more, as long as the checkpoint does. One that is gone for good is
named by the option `goneBrokers`; its offsets stay in the checkpoint as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import NamedTuple, Self

from penstock.errors import BrokerRefused, ConfigError, FetchFailed
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Ends, Positions, Span
from penstock.spark.brokerapi import BrokerApi, name_of
from penstock.spark.offsets import Log, Offsets, relocated, spans
from penstock.spark.options import Options


class Found(NamedTuple):
    have: dict[Log, Span]
    missing: tuple[str, ...]  # topics that are asked for by name and that none has
    brokers: frozenset[str]  # that were asked

    @property
    def topics(self) -> set[str]:
        return {log.topic for log in self.have}

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(log.topic, log.partition) for log in self.have}


class Brokers:
    """Of one thread; connections are kept until the end."""

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

    def label(self, broker: str) -> str:
        """As the column `broker` has it."""
        return broker or name_of(self._options.urls[0])

    def found(self, begun: Offsets | None = None) -> Found:
        """What all have of the topics that the query asks for. `begun` are the offsets that are
        known: their nsqds are asked too where nsqlookupds say which there are."""
        options = self._options
        have, answers = self._asked(options.topics, options.pattern, begun or {})
        missing = set(options.topics).difference(*(one.topics for one in answers.values()))
        have = {log: have[log] for log in have if options.reads(log.topic, log.partition)}
        return Found(have, tuple(sorted(missing)), frozenset(answers))

    def have(self, wanted: Offsets) -> dict[Log, Span]:
        """What there is of these logs, wherever they are now."""
        return self._asked(sorted({log.topic for log in wanted}), None, wanted)[0]

    def _asked(
        self, topics: Collection[str], pattern: str | None, begun: Offsets
    ) -> tuple[dict[Log, Span], dict[str, Positions]]:
        """What the nsqds have that are listed, or that `begun` names; and what each has said."""
        listed = self._listed()
        known = {log.broker for log in begun if log.broker} if self._options.lookupds else set()
        answers: dict[str, Positions] = {}
        failed: dict[str, FetchFailed] = {}
        for broker in sorted({*listed, *known} - set(self._options.gone)):
            try:
                answers[broker] = self._positions(broker, topics, pattern)
            except FetchFailed as error:
                if broker in listed or isinstance(error, BrokerRefused):
                    raise
                failed[broker] = error
        have: dict[Log, Span] = {}
        for broker, positions in answers.items():
            have |= spans(positions.topics, broker)
        check_apart(have)
        self._check_failed(failed, begun, have)
        return have, answers

    def partitions(self, broker: str, names: Collection[str]) -> set[tuple[str, int]]:
        """Which partitions of these topics one nsqd has."""
        found = self._positions(broker, sorted(names)).topics
        return {(name, number) for name, spans in found.items() for number in spans.partitions}

    def ends_of(self, names: Collection[str]) -> Ends:
        """Where deleted logs of these topics ended, as far as it is known."""
        for broker in sorted(self._listed() - set(self._options.gone)) if names else ():
            self._positions(broker, names)
        return {name: self.ended[name] for name in names if name in self.ended}

    def _positions(
        self, broker: str, names: Collection[str], pattern: str | None = None
    ) -> Positions:
        positions = self.api(broker).positions(names, pattern)
        for name, ends in positions.ends.items():
            self.ended.setdefault(name, {}).update(ends)
        return positions

    def _check_failed(
        self, failed: Mapping[str, FetchFailed], begun: Offsets, have: Mapping[Log, Span]
    ) -> None:
        for log in relocated(begun, have):
            if log.broker in failed:
                error = failed[log.broker]
                reason = (
                    f"{error.reason}; the checkpoint has offsets of this nsqd, and no nsqlookupd "
                    "knows it: if it is gone for good, name it in goneBrokers"
                )
                raise FetchFailed(error.url, reason)

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

    def _opened(self, url: str) -> BrokerApi:
        options = self._options
        return BrokerApi(
            url, options.timeout_ms, options.retries, options.retry_ms, options.ca_file
        )


def check_apart(have: Collection[Log]) -> None:
    """ConfigError when two of the addresses are of one nsqd: its messages would come twice."""
    seen: dict[tuple[str, str, int], str] = {}
    for log in have:
        other = seen.setdefault((log.topic, log.identity, log.partition), log.broker)
        if other != log.broker:
            rule = (
                f"both have the same log of topic {log.topic}, so they are one nsqd: name it once"
            )
            raise ConfigError("url", f"{other}, {log.broker}", rule)
