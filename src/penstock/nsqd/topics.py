"""Creating topics: first ask every connected nsqlookupd for the channels that the topic has
elsewhere.

A topic that is new here may be old in the cluster. Its channels are made before its first message
is handed out, so that every channel gets a copy, and no consumer that is still on its way here
misses one. Whoever wants the topic waits until all lookups have ended, each bounded by the HTTP
client's timeouts; neither the loop nor other connections wait. A lookup that fails is logged and
counts as an empty list. Several who want the same topic at once share its lookups.

Topics that are there, and all topics while no nsqlookupd is connected, are given at once.

A node of a cluster asks its metadata instead: the topic is made there, with all channels that it
has, and is here when one of its partitions is. An ephemeral topic is of one node in a cluster, too.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.ports import ClusterMetadata, NewTopic
from penstock.broker.topics.settings import is_internal
from penstock.broker.topics.topic import Topic
from penstock.errors import FetchFailed, NameInvalid, PartitionElsewhere, PenstockError, Refused
from penstock.net.fetch import Fetcher, gather_json
from penstock.net.tasks import Tasks
from penstock.wire.names import is_ephemeral, is_valid_name

log = logging.getLogger("penstock.nsqd")


ANY = NewTopic(0)  # as many partitions as the options say

Found = Topic | PenstockError
Done = Callable[[Found], None]


@dataclass(eq=False)
class TopicMaker:
    """`lookups` gives the HTTP addresses of the connected nsqlookupds. `soon` has a turn run after
    an answer that came later."""

    _broker: Broker
    _fetcher: Fetcher
    _lookups: Callable[[], list[str]]
    _soon: Callable[[], None]
    _on_fault: Callable[[Exception], None]  # of the program: the daemon stops
    _waiting: dict[str, list[Done]] = field(default_factory=dict)
    _shapes: dict[str, NewTopic] = field(default_factory=dict)  # of those waited for, if wanted

    def __post_init__(self) -> None:
        self._turns = asyncio.Semaphore(limits.LOOKUP_TOPICS_MAX)
        self._tasks = Tasks(self._on_fault)

    def topic(self, name: str, done: Done, shape: NewTopic = ANY) -> None:
        """Call `done` with the topic, or with an error: at once, or once the lookups have ended.
        Where several callers wait for it, the first one that gives a shape decides."""
        try:
            topic = self.at_once(name, shape)
        except PenstockError as error:
            done(error)
            return
        if topic is not None:
            done(topic)
        else:
            self._waiting[name].append(done)
            if shape != ANY:
                self._shapes.setdefault(name, shape)

    def at_once(self, name: str, shape: NewTopic = ANY) -> Topic | None:
        """The topic when no lookup is needed; otherwise the lookups have begun, and `topic` is to
        be called. Raises PenstockError."""
        topic = self._broker.topics.get(name)
        if topic is not None:
            return topic
        if name in self._waiting:
            return None
        replica_host = self._broker.replica_host
        metadata = replica_host.metadata if replica_host is not None else None
        if metadata is not None and not (is_ephemeral(name) or is_internal(name)):
            self._check(name)
            return self._ask_cluster(metadata, name, shape)
        addresses = self._lookups()
        if not addresses:
            return self._broker.topic(name, *shape[:3])
        self._check(name)
        self._waiting[name] = []
        self._tasks.begin(self._look_up(name, addresses))
        return None

    def partitions_if_new(self, name: str) -> int:
        """The number of partitions that an unknown topic would get; 0: it is known, or others
        decide."""
        if self._broker.replica_host is not None or name in self._broker.topics:
            return 0
        return self._broker.default_partitions(name)

    def _check(self, name: str) -> None:
        if not is_valid_name(name):
            raise NameInvalid("topic", name)
        if self._broker.context.exiting:
            raise Refused("exiting")

    # --- in a cluster ---

    def _ask_cluster(self, metadata: ClusterMetadata, name: str, shape: NewTopic) -> Topic | None:
        """The same as `at_once`."""
        answers: list[PenstockError | None] = []

        def made(error: PenstockError | None) -> None:
            if name in self._waiting:
                self._settle(name, self._found(name, error))
            else:
                answers.append(error)

        partitions = shape.partitions or self._broker.default_partitions(name)
        metadata.make_topic(name, shape._replace(partitions=partitions), made)
        if not answers:
            self._waiting[name] = []
            return None
        found = self._found(name, answers[0])
        if isinstance(found, PenstockError):
            raise found
        return found

    def _found(self, name: str, error: PenstockError | None) -> Found:
        """A topic without a partition here forwards its publishes."""
        found = error or self._broker.topics.get(name)
        if found is None and self._broker.replica_host is not None:
            found = self._broker.replica_host.remote_topic(name)
        return found or PartitionElsewhere(name)

    # --- by itself ---

    async def stop(self) -> None:
        """Give up all lookups; clients that wait get the answer that the daemon is exiting."""
        await self._tasks.close()
        for name in list(self._waiting):  # for the cluster
            self._settle(name, Refused("exiting"))

    def _settle(self, name: str, found: Found) -> None:
        self._shapes.pop(name, None)
        for done in self._waiting.pop(name):
            done(found)
        self._soon()

    async def _look_up(self, name: str, addresses: list[str]) -> None:
        found: Found = Refused("exiting")
        try:
            async with self._turns:
                channels = await self._channels(name, addresses)
            found = topic = self._broker.topic(name, *self._shapes.get(name, ANY)[:3])
            for channel in channels:
                if not is_ephemeral(channel):
                    topic.channel(channel)
        except PenstockError as error:
            found = error
        except Exception:
            log.error("TOPIC(%s): internal error while creating it", name)
            found = Refused("an internal error")
            raise
        finally:
            self._settle(name, found)

    async def _channels(self, name: str, addresses: list[str]) -> list[str]:
        query = quote(name, safe="")
        urls = [f"http://{address}/channels?topic={query}" for address in addresses]
        channels: set[str] = set()
        for address, answer in zip(addresses, await gather_json(self._fetcher, urls), strict=True):
            if isinstance(answer, FetchFailed):
                log.warning("failed to query nsqlookupd for channels of %s: %s", name, answer)
            else:
                channels.update(_names(answer, address))
        return sorted(channels)


def _names(answer: Any, address: str) -> list[str]:
    """The channel names of an answer, without invalid ones."""
    names = answer.get("channels") if isinstance(answer, dict) else None
    if not isinstance(names, list):
        log.warning("nsqlookupd %s: no list of channels in its answer", address)
        return []
    valid = [name for name in names if isinstance(name, str) and is_valid_name(name)]
    if len(valid) < len(names):
        log.warning("nsqlookupd %s: %d bad channel names", address, len(names) - len(valid))
    if len(valid) > limits.LOOKUP_CHANNELS_MAX:
        log.warning("nsqlookupd %s: %d channels are too many for one topic", address, len(valid))
    return valid[: limits.LOOKUP_CHANNELS_MAX]
