"""nsqd for readers of the log and writers of staged blocks, called synchronously.

Spark's workers and pipelines have no event loop, so this is one connection that is kept alive. An
instance belongs to one thread. A call (`nsqdapi.calls`) may be sent twice without harm, as a stage
has a name and a commit its version; only a message that is published may be there twice then. It is
tried again a bounded number of times when the connection breaks or nsqd is not ready; the pause
doubles each time.

**A cluster** is read through any of its nodes: the node serves the partitions that it leads, and
says where the others are led.

| a partition | is read |
|---|---|
| led by the node that was asked | there |
| led by another one | there, as long as it leads |
| whose leader has changed, or answers no more | at the next one, as soon as there is one |
| of which no leader can be reached | not: it is *offline*, which is neither lost nor deleted |

A new leader may say for a moment that its log ends below what an older one has served: its disk has
what it has written a little later.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

import msgspec

from penstock import limits
from penstock.errors import BrokerRefused, ConfigError, FetchFailed
from penstock.net.outgoing import HttpAnswer, words_of
from penstock.net.secret_file import first_secret
from penstock.net.tls import TlsFiles
from penstock.nsqdapi import calls
from penstock.nsqdapi.blocking import FAILURES, IS_TCP_PORT, TCP_PORT, Address, Link, address_of_url
from penstock.nsqdapi.calls import (
    AnswerInvalid,
    Call,
    Committed,
    Elsewhere,
    Ends,
    Fetched,
    Froms,
    Positions,
    Shape,
    Stage,
    TopicSpans,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
NOT_READY = (502, 503, 504)
PAUSE_S_MAX = 5.0
_MOVED = ("PARTITION_NOT_FOUND", "TOPIC_NOT_FOUND", "OFFSET_BEYOND_END")  # of a leader, perhaps
_NO_TOPIC = "_"  # to ask about, where the cluster is all that matters
_PARTS_TRIES = 3  # of a list of stages: nsqd forgets parts when it is restarted


class BrokerApi:
    """`url` is nsqd's HTTP address: "http://host:4151", "https://host:4152" or "host:4151"."""

    def __init__(
        self,
        url: str,
        timeout_ms: int = limits.SPARK_REQUEST_MS,
        retries: int = limits.SPARK_RETRIES,
        retry_ms: int = limits.SPARK_RETRY_MS,
        tls: TlsFiles | None = None,
        secret_file: str | None = None,
    ) -> None:
        """`secret_file` holds nsqd's secret for changes; it is read here, so it has to be on the
        hosts of Spark's workers, too."""
        self.url = url
        self._address = _address(url)
        self._retries = retries
        self._retry_s = retry_ms / 1000
        self._timeout_ms = timeout_ms
        self._tls = tls
        secret = first_secret(secret_file or "", "httpSecretFile")
        self._link = Link(self._address, timeout_ms / 1000, tls, secret)
        self._others: dict[str, BrokerApi] = {}  # nodes of the same cluster, by address
        self._leaders: dict[tuple[str, int], str] = {}  # of partitions, as last heard; "": here

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close()
        for other in self._others.values():
            other.close()

    # --- the read side ---

    def positions(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        froms: Froms | None = None,
        only_here: bool = False,
    ) -> Positions:
        """The positions of the logs that match the pattern, of these topics, or of all. `froms`:
        offsets from which bytes are counted. In a cluster, `elsewhere` has the offline partitions,
        or, with `only_here`, all that this node does not lead."""
        if pattern is not None:
            found = self.ask(calls.positions(pattern=pattern))
        else:
            found = calls.joined(map(self.ask, calls.positions_of_many(topics, froms)))
        return found if only_here or not found.nodes else self._completed(found, froms)

    def at(self, topic: str, partition: int) -> BrokerApi:
        """The leader of a partition, as the last `positions` had it."""
        address = self._leaders.get((topic, partition), "")
        return self.other(address) if address else self

    def fetches(
        self,
        topic: str,
        partition: int,
        identity: str,
        from_offset: int,
        to_offset: int,
        bytes_max: int = limits.SPARK_FETCH_BYTES,
    ) -> Iterator[Fetched]:
        """One range after the other. The next is requested before this one is returned, so nsqd
        works while the caller does. No other request may be made meanwhile. BrokerRefused for a
        range that is gone, beyond the end, or corrupt."""

        def call_from(offset: int) -> Call[Fetched]:
            return calls.fetch(topic, offset, to_offset, bytes_max, partition, identity)

        position, deadline_s = from_offset, 0.0
        while position < to_offset:
            leader = self.at(topic, partition)
            try:
                for fetched in leader._fetches(call_from, position, to_offset):
                    yield fetched
                    position, deadline_s = max(fetched.next_offset, position), 0.0
                return
            except FetchFailed as error:
                deadline_s = deadline_s or time.monotonic() + limits.SPARK_LEADER_WAIT_S
                self._await_leader(leader, (topic, identity, partition), error, deadline_s)

    def _fetches(
        self, call_from: Callable[[int], Call[Fetched]], position: int, to_offset: int
    ) -> Iterator[Fetched]:
        """From this node."""
        asked = False
        try:
            while position < to_offset:
                call = call_from(position)
                answer = self._take_asked() if asked else None
                asked = False
                fetched = self._read(call, answer or self._request(call))
                following = fetched.next_offset
                if position < following < to_offset:
                    asked = self._ask_ahead(call_from(following))
                yield fetched
                if following <= position:
                    return
                position = following
        finally:
            if asked:
                self.close()  # its answer would be taken for that of the next request

    # --- of a cluster ---

    def other(self, address: str) -> BrokerApi:
        """A silent one is not waited for: there may be another leader."""
        if address not in self._others:
            timeout_ms = min(self._timeout_ms, limits.SPARK_LEADER_MS)
            scheme = "https" if self._address.secure else "http"
            other = BrokerApi(f"{scheme}://{address}", timeout_ms, 0, tls=self._tls)
            self._others[address] = other
        return self._others[address]

    def _completed(self, here: Positions, froms: Froms | None) -> Positions:
        """With the partitions that other nodes of the cluster lead."""
        for name, spans in here.topics.items():
            self._leaders |= dict.fromkeys(((name, number) for number in spans.partitions), "")
        there = self._asked(here, froms)
        topics, offline = dict(here.topics), {}
        for name, one in here.elsewhere.items():
            own = topics.get(name)
            led = own.partitions if own is not None and own.identity == one.identity else {}
            away = {}
            for number, address in one.partitions.items():
                answered = there[address].topics.get(name) if address in there else None
                if (
                    answered is not None
                    and answered.identity == one.identity
                    and number in answered.partitions
                ):
                    led = {**led, number: answered.partitions[number]}
                    self._leaders[name, number] = address
                else:
                    away[number] = address
            topics[name] = TopicSpans(one.identity, dict(sorted(led.items())))
            if away:
                offline[name] = Elsewhere(one.identity, away)
        return msgspec.structs.replace(
            here,
            topics=dict(sorted(topics.items())),
            missing=tuple(name for name in here.missing if name not in topics),
            elsewhere=offline,
            ends=_latest([here.ends, *(one.ends for one in there.values())]),
        )

    def _asked(self, here: Positions, froms: Froms | None) -> dict[str, Positions]:
        """The leaders, and, where a topic was deleted, everybody: not all had a replica of it."""
        gone = [name for name in here.missing if name not in here.elsewhere] + list(here.ends)
        names: dict[str, set[str]] = defaultdict(set, {node: set(gone) for node in here.nodes})
        for name, one in here.elsewhere.items():
            for address in one.partitions.values():
                names[address].add(name)
        found = {}
        for address, wanted in names.items():
            if not (address and wanted):
                continue
            try:
                asked = self.other(address).positions(sorted(wanted), froms=froms, only_here=True)
                found[address] = asked
            except FetchFailed as error:
                logger.info("a node of the cluster does not answer: %s", error)
        return found

    def ask_leader(self, log: tuple[str, str, int], call: Call[T]) -> T:
        """Of a log (topic, identity, partition), whoever leads it by then."""
        deadline_s = time.monotonic() + limits.SPARK_LEADER_WAIT_S
        while True:
            leader = self.at(log[0], log[2])
            try:
                return leader.ask(call)
            except FetchFailed as error:
                self._await_leader(leader, log, error, deadline_s)

    def _await_leader(
        self, leader: BrokerApi, log: tuple[str, str, int], error: FetchFailed, deadline_s: float
    ) -> None:
        """Raises the error of this leader where there will be no other."""
        topic, identity, partition = log
        if time.monotonic() >= deadline_s or not self._may_have_moved(topic, identity, error):
            raise error
        if self.at(topic, partition) is leader:
            time.sleep(limits.SPARK_LEADER_PAUSE_S)

    def _may_have_moved(self, topic: str, identity: str, error: FetchFailed) -> bool:
        """Is it worth reading the partition again, at its present leader?"""
        if isinstance(error, BrokerRefused) and error.code not in _MOVED:
            return False
        found = self.positions([topic])
        spans, offline = found.topics.get(topic), found.elsewhere.get(topic)
        known = spans or offline
        return bool(found.nodes) and known is not None and known.identity == identity

    # --- the write side ---

    def shape(self, topic: str) -> Shape:
        """The shape of a topic to write to: it is created if missing."""
        try:
            return self.ask(calls.shape(topic))
        except BrokerRefused as refusal:
            if refusal.code != "TOPIC_NOT_FOUND":
                raise
        self.ask(calls.create(topic))
        return self.ask(calls.shape(topic))

    def commit(self, app: str, version: int, stages: Iterable[Stage]) -> Committed:
        """Commit all in one step, in this order inside a partition; or, when this version of the
        app was committed before, nothing. A long list goes in parts, again from the first one when
        nsqd has forgotten some."""
        listed = list(stages)
        for left in range(_PARTS_TRIES - 1, -1, -1):
            try:
                for call in calls.commits(app, version, listed):
                    committed = self.ask(call)
                    if committed is not None:
                        return committed
            except BrokerRefused as refusal:
                if refusal.code != "PART_MISSING" or left == 0:
                    raise
        raise FetchFailed(self._public("/stage/commit"), "the last part was not committed")

    def abort(self, stages: Iterable[Stage]) -> None:
        """These are not wanted. What is not there, or was committed, stays as it is."""
        for call in calls.aborts(list(stages)):
            self.ask(call)

    # --- one call ---

    def ask(self, call: Call[T]) -> T:
        return self._read(call, self._request(call))

    def _read(self, call: Call[T], answer: HttpAnswer) -> T:
        try:
            return call.decode(answer.body, answer.headers)
        except AnswerInvalid as error:
            raise FetchFailed(self._public(call.path), error.reason, answer.status) from error

    def _ask_ahead(self, call: Call[Any]) -> bool:
        """Send a call whose answer `_take_asked` will take. False when that is not possible: then
        send it in the ordinary way."""
        try:
            self._link.send(call.method, call.target)
        except FAILURES:
            self.close()
            return False
        return True

    def _take_asked(self) -> HttpAnswer | None:
        """The answer if it is a good one. All else is for an ordinary call to find out."""
        try:
            answer = self._link.receive()
        except FAILURES:
            self.close()
            return None
        return answer if answer.status == 200 else None

    def _request(self, call: Call[Any]) -> HttpAnswer:
        """The answer of a 200, tried as often as it may be."""
        pause_s, left = self._retry_s, self._retries
        while True:
            try:
                answer = self._link.exchange(call.method, call.target, call.body, call.content_type)
            except FAILURES as error:
                self.close()
                if TCP_PORT in str(error):
                    raise ConfigError("url", self._public(""), IS_TCP_PORT) from error
                if left <= 0:
                    raise FetchFailed(self._public(call.path), words_of(error)) from error
            else:
                if answer.status == 200:
                    return answer
                if left <= 0 or answer.status not in NOT_READY:
                    raise calls.refusal(self._public(call.path), answer.status, answer.body)
            time.sleep(pause_s)
            pause_s, left = min(2 * pause_s, PAUSE_S_MAX), left - 1

    def _public(self, path: str) -> str:
        at = self._address
        return f"{'https' if at.secure else 'http'}://{at.host}:{at.port}{at.prefix}{path}"


def first_of(urls: Sequence[str], opened: Callable[[str], BrokerApi]) -> str:
    """The first node that answers, where several of a cluster are named; if none does, the last."""
    for url in urls if len(urls) > 1 else ():
        with opened(url) as api:
            if _answers_for_cluster(api):
                return url
    return urls[-1]


def _answers_for_cluster(api: BrokerApi) -> bool:
    """ConfigError for an nsqd without a cluster: its messages would be others."""
    try:
        found = api.positions([_NO_TOPIC], only_here=True)
    except FetchFailed as error:
        logger.info("a node of the cluster does not answer: %s", error)
        return False
    if not found.nodes:
        rule = "several addresses are those of nodes of a cluster, and this nsqd is in none"
        raise ConfigError("url", api._public(""), rule)
    return True


def _latest(listed: Iterable[Ends]) -> Ends:
    """Each replica knows where its own log ended."""
    found: Ends = {}
    for ends in listed:
        for name, logs in ends.items():
            for identity, partitions in logs.items():
                there = found.setdefault(name, {}).setdefault(identity, {})
                for number, end in partitions.items():
                    there[number] = max(end, there.get(number, 0))
    return found


def name_of(url: str) -> str:
    """host:port: by it an nsqd is known among others."""
    address = _address(url)
    return f"{calls.bracketed(address.host)}:{address.port}"


def _address(given: str) -> Address:
    rule = 'nsqd\'s HTTP address: "http://host:port", "https://host:port" or "host:port"'
    found = address_of_url(given if "://" in given else f"http://{given}")
    if found is None:
        raise ConfigError("url", given, rule)
    return found._replace(port=found.port or (4152 if found.secure else 4151))
