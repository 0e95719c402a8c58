"""The parts that one broker shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from penstock.broker.health import Health
from penstock.broker.options import BrokerOptions
from penstock.broker.partition.gathering import Gathering
from penstock.broker.ports import Syncs
from penstock.broker.topics.settings import WritesDisabledFor
from penstock.clock import Clock
from penstock.ids.guid import IdRange
from penstock.log.disk import Disk

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.replicas.replica_host import ReplicaHost
    from penstock.broker.topics.topic import Topic
    from penstock.kernel import Engine


class TopicChange(IntEnum):
    """The argument of `Context.hooks`. A deleted channel still lists its `consumers`: the hook
    closes their connections."""

    TOPIC_CREATED = 1
    TOPIC_DELETED = 2
    CHANNEL_CREATED = 3
    CHANNEL_DELETED = 4
    TOPIC_RESHAPED = 5  # its partitions, or what nsqlookupd knows of it, have changed


Switched = Callable[["Topic", "Channel | None"], None]
ChangeHook = Callable[[TopicChange, "Topic", "Channel | None"], None]


@dataclass(slots=True)
class Context:
    engine: Engine
    disk: Disk
    data_path: str
    options: BrokerOptions
    clock: Clock
    syncs: Syncs
    ids: IdRange
    health: Health = field(default_factory=Health)
    topics: dict[str, Topic] = field(default_factory=dict)  # by name
    staged: Counter[tuple[str, str]] = field(default_factory=Counter)  # by topic and identity
    # called after a topic or channel was made, and while one is being deleted
    hooks: list[ChangeHook] = field(default_factory=list)
    exiting: bool = False
    killed: bool = False  # the last stop was not orderly: files may be in the system's memory only
    draining: bool = False  # a stop is near: publishes are refused until then
    # by an operator, until the next start
    writes_disabled: WritesDisabledFor = WritesDisabledFor.NONE
    set_aside: dict[str, str] = field(default_factory=dict)  # topics that are corrupt: why
    disk_refusal: str = ""  # free disk is below the watermark
    reserved_bytes: int = 0  # of it, by commits that have begun
    headroom_bytes: int = 0  # may be written before free disk is looked at again
    gathering: Gathering = field(default_factory=Gathering)
    touched: dict[Topic, None] = field(default_factory=dict)  # written to; housekeeping looks
    aging: dict[Topic, None] = field(default_factory=dict)  # their messages have a maximum age
    switched: Switched = lambda topic, channel: None  # a trace rate has changed
    bounded: dict[Channel, None] = field(default_factory=dict)  # ephemeral: their depth has a bound
    limited: dict[Channel, None] = field(default_factory=dict)  # how fast they are sent has a bound
    skipping: dict[Channel, None] = field(default_factory=dict)  # their cursors follow the end
    replica_host: ReplicaHost | None = None  # None: there is no cluster

    def room_refusal(self, length: int) -> str:
        """Why there is no room for so many bytes; empty when there is."""
        if self.disk_refusal:
            return self.disk_refusal
        try:
            free_bytes = self.disk.free_bytes(self.data_path) - self.reserved_bytes
        except OSError as error:
            return f"cannot determine free disk space: {error}"
        least = self.options.disk_free_bytes_min
        if free_bytes - length >= least:
            return ""
        return f"{length} bytes do not fit: {free_bytes} bytes free, {least} are to stay free"

    def changed(self, change: TopicChange, topic: Topic, channel: Channel | None = None) -> None:
        for hook in self.hooks:
            hook(change, topic, channel)
