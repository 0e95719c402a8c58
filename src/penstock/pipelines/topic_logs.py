"""Which logs a table has messages of, and which archive writes each topic: in its properties.

A table outlives its checkpoint, and its highest offsets say where to go on. That is right for the
log that these offsets are of; a topic that was deleted and made again counts from 0. So the table
notes the identity of a topic's log before the first batch that has messages of it; and as one more
identity comes, when the messages of a second log are let in, both are there for good.

Two archives of one topic would double it. So a topic belongs to the first archive that names it or
has messages of it, and the commits of another are refused. `--recover` takes a topic over. All this
holds because a commit that was prepared before a change of the properties fails and is made again.

A property `penstock.log.TOPIC` is "LOG,LOG OWNER"; each half may be missing. A log is "IDENTITY",
or "IDENTITY@BROKER" where the rows name their nsqd: a table may have offsets of several, and this
note says which log the rows of a broker are from, also when that nsqd has moved since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.errors import ConfigError, DataLost
from penstock.spark.delta_table import Place, Properties
from penstock.wire.names import is_ephemeral

_PREFIX = "penstock.log."  # and the topic
AGAIN = (
    "it was deleted and made again since it was archived: its offsets count from 0 again, so it "
    "needs another table"
)
NOT_SAID = (
    "the table does not say which log its messages of it are from, so it cannot be determined "
    "whether the offsets go on: archive it into another table"
)


class TopicLog(NamedTuple):
    """Of one topic of one table."""

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
        """Where that log was."""
        parts = (each.partition("@") for each in self.noted)
        return {name for each, _, name in parts if each == identity}

    @property
    def text(self) -> str:
        return f"{','.join(self.noted)} {self.owner}".rstrip()


def noted_as(identity: str, broker: str | None) -> str:
    return f"{identity}@{broker}" if broker else identity


def known(properties: Properties) -> dict[str, TopicLog]:
    """By topic."""
    return {
        name.removeprefix(_PREFIX): _parsed(value)
        for name, value in properties.items()
        if name.startswith(_PREFIX)
    }


def _parsed(text: str) -> TopicLog:
    logs, _, owner = text.partition(" ")
    return TopicLog(tuple(each for each in logs.split(",") if each), owner)


# --- who writes a topic ---


def claimed(properties: Properties, owner: str, topics: Iterable[str]) -> dict[str, str]:
    """What to set so that these topics are the owner's. ConfigError when one is another's."""
    there, fresh = known(properties), {}
    for topic in topics:
        log = there.get(topic, TopicLog())
        if log.owner not in ("", owner):
            rule = (
                f"the archive {log.owner} writes this topic into the table, so it would come "
                "twice: name another table, or take the topic over with archive --recover and a "
                "new checkpoint"
            )
            raise ConfigError("topics", topic, rule)
        if not log.owner:
            fresh[_PREFIX + topic] = log._replace(owner=owner).text
    return fresh


def claim(place: Place, owner: str, topics: Collection[str]) -> None:
    place.set_properties(lambda properties: claimed(properties, owner, topics))


def take_over(place: Place, owner: str, topics: Collection[str]) -> None:
    """From whoever has them: his next commit is refused."""

    def taken(properties: Properties) -> dict[str, str]:
        there = known(properties)
        logs = {topic: there.get(topic, TopicLog()) for topic in topics}
        return {
            _PREFIX + topic: log._replace(owner=owner).text
            for topic, log in logs.items()
            if log.owner != owner
        }

    place.set_properties(taken)


# --- which log it is ---


def noted(
    properties: Properties, owner: str, logs: Collection[tuple[str, str]], only_one: bool = False
) -> dict[str, str]:
    """What to set before a commit with messages of these (topic, log as `noted_as`). With
    `only_one`, DataLost for a second log of a topic that is to be kept."""
    fresh = claimed(properties, owner, sorted({topic for topic, _ in logs}))
    there = known({**properties, **fresh})
    for topic, seen in sorted(logs):
        log = there.get(topic, TopicLog())
        if seen not in log.noted:
            is_second = log.noted and seen.partition("@")[0] not in log.identities
            if only_one and is_second and not is_ephemeral(topic):
                raise DataLost(topic, 0, AGAIN)
            log = there[topic] = log._replace(noted=(*log.noted, seen))
            fresh[_PREFIX + topic] = log.text
    return fresh


def check_identities(
    known: Mapping[str, TopicLog], present: Mapping[str, str], topics: Collection[str]
) -> None:
    """DataLost when one of these topics, which the table has messages of, is there, and its log is
    not that of these messages, or nobody can tell. `present` are the identities of the logs there
    are."""
    for topic in sorted(set(topics) & set(present)):
        identities = known.get(topic, TopicLog()).identities
        if not identities:
            raise DataLost(topic, 0, NOT_SAID)
        if identities != (present[topic],):
            raise DataLost(topic, 0, AGAIN)
