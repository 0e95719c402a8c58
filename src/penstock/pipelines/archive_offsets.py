"""The start of an archive: at the record of its checkpoint, at an end of the logs, or, when the
checkpoint is lost, behind the rows of its table.

A row is known by broker, topic, partition and offset, and the table notes which log the rows of a
broker are from (`topic_logs`). An nsqd that moved has another name and the same logs; a topic that
was made again has the same name and another log. So with several nsqds names lead from a row to its
log, and the log's identity to the nsqd that has it now. Where they do not lead to exactly one, an
offset would be a guess, which skips messages or brings them twice: that is refused.

Of a topic that is deleted nsqd knows where its log ended. If the table has all of it nothing is
lost; else, or where nobody knows, that is data loss, unless topics may come and go.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from penstock.errors import ConfigError, DataLost
from penstock.nsqdapi.calls import Ends
from penstock.pipelines import checkpoints, topic_logs
from penstock.pipelines.checkpoints import Starting
from penstock.pipelines.delta_reader import LakeTable
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings, tls_options
from penstock.pipelines.topic_logs import AGAIN, NOT_SAID, TopicLog
from penstock.spark.brokerapi import name_of
from penstock.spark.brokers import BrokerLogs, Brokers
from penstock.spark.delta_table import TableLocation
from penstock.spark.offsets import WANTED, Log, OnLoss
from penstock.spark.options import comma_separated, read_options
from penstock.wire.names import is_ephemeral

Reached = Mapping[tuple[str, str, int], int]  # by topic, broker ("": none named) and partition


def is_of_several(settings: Settings) -> bool:
    return bool(settings.texts("lookupd")) or len(comma_separated(settings.text("url"))) > 1


def nsqds(settings: Settings, topics: str, pattern: str = "") -> dict[str, str]:
    """The topics of the nsqds that the settings name, as options of the source."""
    lookupds = ",".join(settings.texts("lookupd"))
    given = {
        "url": "" if lookupds else settings.text("url"),
        "lookupd": lookupds,
        "goneBrokers": ",".join(settings.texts("gone-brokers")),
        "subscribe": topics,
        "subscribePattern": pattern,
        **tls_options(settings),
    }
    return {name: value for name, value in given.items() if value}


def subscription(settings: Settings) -> dict[str, str]:
    return nsqds(settings, ",".join(settings.texts("topics")), settings.text("pattern"))


def present_logs(settings: Settings) -> BrokerLogs:
    """The logs to archive. ConfigError for a wrong setting."""
    with Brokers(read_options(subscription(settings), streaming=True)) as brokers:
        return brokers.found()


class Beginning:
    """The logs to archive, the rows of the table, and the offsets that follow from them."""

    def __init__(
        self, settings: Settings, location: TableLocation, progress: Progress, has_checkpoint: bool
    ) -> None:
        self._settings = settings
        self._location = location
        self._progress = progress
        self._several = is_of_several(settings)
        self._named = set(settings.texts("topics"))
        self._known = topic_logs.known(location)
        self._found = present_logs(settings)
        self.logs, self.topics = self._found.have, self._found.topics
        self.owned = self.topics | self._named
        self._recovers = settings.flag("recover") and not has_checkpoint
        if self._recovers:
            self.owned |= {topic for topic in self._known if self._is_old(topic)}

    def _is_old(self, topic: str) -> bool:
        """For a topic that the table has and nsqd lacks: the pattern matches it, and this archive
        has written it."""
        pattern = self._settings.text("pattern")
        matches = pattern and re.fullmatch(pattern, topic) is not None
        owner, name = self._known[topic].owner, self._settings.text("name")
        if topic in self.topics or not matches:
            return False
        if not owner or checkpoints.name_of(owner) == name:
            return True
        self._progress.say(f"topic {topic} is not there, and the archive {owner} has written it")
        return False

    # --- without a checkpoint ---

    def starting(self) -> Starting:
        """A missing topic is not included: it begins at its first message."""
        settings, recovers = self._settings, self._recovers
        table = LakeTable(self._location.uri, self._location.options)
        spans = topic_logs.archived_spans(table, self.owned, self._several and recovers)
        highest = {log: span[-1] for log, span in spans.items()}
        if highest and not recovers:
            names = ", ".join(sorted({topic for topic, _, _ in highest}))
            rule = (
                f"there is no checkpoint in {checkpoints.checkpoint_of(settings)}, but the table "
                f"has messages of {names}, which would come again: run with --recover to go on "
                "behind them"
            )
            raise ConfigError("table", settings.text("table"), rule)
        is_latest = settings.text("from") == "latest"
        begins = {log: span.end if is_latest else span.earliest for log, span in self.logs.items()}
        ended = self._ended(self.owned - self.topics) if recovers else {}
        return self._document(begins, self._recovered(highest, ended))

    def _recovered(self, highest: Reached, ended: Ends) -> dict[Log, int]:
        old, reached = self.owned - self.topics, defaultdict[str, dict[int, int]](dict)
        for (topic, _, partition), offset in highest.items():
            reached[topic][partition] = offset
        if self._several:
            gone = {name_of(name) for name in self._settings.texts("gone-brokers")}
            recovered = following(highest, self._known, self._found, gone, ended, self._on_deleted)
            old -= reached.keys()
        else:
            present = {log.topic: log.identity for log in self.logs}
            topic_logs.check_identities(self._known, present, reached)
            recovered = {
                Log(topic, present.get(topic, ""), partition): offset + 1
                for (topic, _, partition), offset in sorted(highest.items())
            }
        for topic in sorted(old):
            self._check_old(topic, reached.get(topic, {}), ended.get(topic, {}))
        return recovered

    def _document(self, begins: Mapping[Log, int], recovered: Mapping[Log, int]) -> Starting:
        for log, offset in recovered.items():
            name = f"partition {log.partition} of {log.topic}" if log.partition else log.topic
            at_broker = f" of {log.broker}" if log.broker else ""
            self._progress.say(f"recovering: {name}{at_broker} goes on at offset {offset}")
        found: Starting = {}
        for log, at in {**begins, **recovered}.items():
            topics = found.setdefault(log.broker, {}) if self._several else found
            topics.setdefault(log.topic, {})[str(log.partition)] = at
        return found

    def _check_old(
        self, topic: str, reached: Mapping[int, int], lives: Mapping[str, Mapping[int, int]]
    ) -> None:
        """A topic that is deleted, or not created yet: nobody knows which."""
        identities = self._known.get(topic, TopicLog()).identities
        if topic in self._named and not reached and not identities:
            return
        if len(identities) > 1 or (reached and not identities):
            self._on_deleted(DataLost(topic, 0, NOT_SAID))
        else:
            ends = lives.get(identities[0], {}) if identities else newest(lives)
            check_read(topic, reached, ends, self._on_deleted)

    def _on_deleted(self, lost: DataLost) -> None:
        settings = self._settings
        is_wanted = settings.text("on-topic-deleted") == "ignore" or is_ephemeral(lost.topic)
        if not is_wanted and settings.flag("fail-on-data-loss"):
            raise lost
        self._progress.say(str(lost))

    def _ended(self, topics: Iterable[str]) -> Ends:
        with Brokers(read_options(subscription(self._settings), streaming=True)) as brokers:
            return brokers.ends_of(sorted(topics))

    # --- with one ---

    def of_checkpoint(self, starting: Starting, has_batches: bool) -> Starting:
        """A checkpoint of one nsqd may continue with several. Its beginning is useless to them, and
        not needed after the first batch."""
        if starting and self._several != any(":" in name for name in starting):
            if not has_batches:
                rule = "it has no batch yet: begin with the nsqds that it was made for, or another"
                checkpoint = checkpoints.checkpoint_of(self._settings)
                raise ConfigError("checkpoint", checkpoint, rule)
            return {}
        if not has_batches:
            self._check_begun(starting)
        if self._several:
            return starting
        return {topic: at for topic, at in starting.items() if topic in self.topics}

    def _check_begun(self, starting: Starting) -> None:
        """Spark knows no offsets yet, so it would pass over a topic that was deleted since."""
        by_broker = starting if self._several else {"": starting}
        begun = {
            topic: {int(number): offset - 1 for number, offset in at.items()}
            for topics in by_broker.values()
            for topic, at in topics.items()
            if topic not in self.topics
        }
        ended = self._ended(begun) if begun else {}
        for topic, reached in sorted(begun.items()):
            lives = ended.get(topic, {})
            if lives or (not self._several and topic not in self._named):
                check_read(topic, reached, newest(lives), self._on_deleted)


def newest(lives: Mapping[str, Mapping[int, int]]) -> Mapping[int, int]:
    """The ends of the log that was deleted last."""
    return list(lives.values())[-1] if lives else {}


def check_read(
    topic: str, reached: Mapping[int, int], ends: Mapping[int, int], on_loss: OnLoss
) -> None:
    """Checks a deleted log that is not archived to its end. `reached`: last offsets, by
    partition."""
    if not ends:
        reason = f"it is deleted, and nsqd does not know where it ended: {WANTED}"
        on_loss(DataLost(topic, 0, reason))
    for number, end in sorted(ends.items()):
        first = reached.get(number, -1) + 1
        if first < end:
            reason = f"it is deleted, and offsets {first} to {end - 1} were not archived: {WANTED}"
            on_loss(DataLost(topic, number, reason))
            return


# --- rows of several nsqds ---


def following(
    reached: Reached,
    known: Mapping[str, TopicLog],
    present: BrokerLogs,
    gone: Collection[str],
    ended: Ends,
    on_deleted: OnLoss,
) -> dict[Log, int]:
    """Of the present logs, those with messages in the table, each with the offset behind its last
    one. `gone` are nsqds that are given up, `ended` has the ends of logs of deleted topics.
    DataLost where it is not certain."""
    by_identity = {log.id: log for log in present.have}
    present_in = {(log.topic, log.broker) for log in present.have}
    found: dict[Log, int] = {}
    deleted: dict[tuple[str, str], dict[int, int]] = {}
    for (topic, broker, partition), offset in sorted(reached.items()):
        noted = known.get(topic, TopicLog())
        is_back = topic in present.topics if present.are_nodes else (topic, broker) in present_in
        identity = topic_logs.identity_of(noted, topic, broker, (topic, "", partition) in reached)
        log = by_identity.get((topic, identity, partition))
        if log is not None:
            found[log] = max(offset + 1, found.get(log, 0))
        elif {broker, *noted.brokers(identity)} & set(gone):
            continue
        elif identity in ended.get(topic, {}) and not is_back:
            parts = deleted.setdefault((topic, identity), {})
            parts[partition] = max(offset, parts.get(partition, -1))
        else:
            away = f"nsqd {broker or 'from before'} has messages of it in the table, and its log"
            raise DataLost(topic, partition, AGAIN if is_back else f"{away} is nowhere now")
    for (topic, identity), parts in deleted.items():
        check_read(topic, parts, ended[topic][identity], on_deleted)
    return found
