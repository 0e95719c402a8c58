"""Dead letters: messages that a channel gives up on, and their way back.

A channel with `max_attempts` sends a message so often and no more. What then times out or is
requeued goes to the channel's dead-letter topic, `<topic>.<channel>.dead` unless it was told
otherwise. The kernel hands it out as exhausted; its body is read from the log and published there;
and only when that publish is as safe as the topic's durability says is the message finished on the
channel. If any step fails the message waits, and is tried again about once a second. A kill between
publish and finish makes a second dead letter, never none.

While a dead letter is being written, a change of the channel's order may put its message behind
others, be it to be exhausted once more; so it may be when a scheduled message comes due. A change
of `max_attempts` may have it wait to be sent again. Dead letters under way are remembered: none is
written twice, and once it is safe its message is done, unless a consumer has that by then.

A dead letter keeps its body, its id and its timestamp. Where it comes from, how often it was sent
and how its last attempt ended stand in its headers, under `dead_letter`. They are not its attempts
on the wire: common clients drop a message whose attempts are above their own bound, and so would
drop dead letters. How an attempt ended is known in memory only, a byte of what the kernel keeps of
each message that was requeued or timed out: after a restart it is not known.

In a cluster the dead-letter topic is made in its metadata, with as many replicas as the topic has.
A dead letter goes to a partition of it that is led here, or to the leader of one
(`forwarding.py`). Where that one's answer is lost with a link or a leadership, it is sent again:
such a failover may make a second dead letter, too.

The dead-letter topic is a topic like any other. It has one channel from the start, `redrive`, whose
cursor says which dead letters are still there to be sent back; nothing below it is deleted. Other
channels may be made to look at what comes.

A redrive publishes dead letters of one channel to its topic again, as safe as any publish, and
every other channel of the topic steps over them. Then they are done on `redrive`. In a cluster each
leader of the dead-letter topic does that with what it leads; what has to go to another node is sent
there, with the channel that it is for (`forwarding.py`). A kill in between
may bring one back twice. In the instant between the write of the log and that of the channel
journal, it may also bring one to the other channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.channels.dead_letter import dead_letter, origin, redriven_content
from penstock.broker.context import Context
from penstock.broker.health import Trouble
from penstock.broker.partition.appends import Content, MessagePosition
from penstock.broker.ports import NewTopic
from penstock.broker.replicas.clustered_topic import when_held
from penstock.broker.topics.publishing import ANY
from penstock.broker.topics.settings import Poison
from penstock.errors import LogDamaged, NotFound, PenstockError, Refused, StorageError
from penstock.kernel import Section, Source, Stray, StrayRecord, Window
from penstock.log.fold import fold_entries
from penstock.log.messages import Message, MessageReader

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.partition.leader import Leader
    from penstock.broker.ports import ClusterMetadata, MetadataDone
    from penstock.broker.topics.topic import Topic

REDRIVE_CHANNEL = "redrive"

RedriveDone = Callable[[int, PenstockError | None], None]


class DeadLetter(NamedTuple):
    stored: Message  # with its offset in the dead-letter topic
    attempts: int  # how often it was sent
    cause: str  # as of Origin
    partition: int = 0  # of the dead-letter topic


def waiting_offsets(window: Window, from_offset: int, end_offset: int) -> Iterator[int]:
    """Offsets of `window` that no consumer has, rising."""
    state = fold_entries(window.snapshot())
    again = [stray.offset for stray in state.strays if stray.state == Stray.WAITING]
    at = max(window.next, from_offset)
    yield from sorted(offset for offset in again if from_offset <= offset < at)
    for start, end in (*state.finished, (end_offset, end_offset)):
        yield from range(at, min(start, end_offset))
        at = max(at, end)


def _letters_of(channel: Channel, window: Window, count_max: int) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    leader: Leader = window.owner.topic.leader(window.tail.partition)
    reader = MessageReader(leader.log)
    offsets = waiting_offsets(window, 0, window.tail.handed_end)
    for offset in islice(offsets, limits.REDRIVE_LOOKED_AT):
        if len(found) >= count_max:
            break
        try:
            stored = reader.read(offset)
        except LogDamaged:
            continue
        known = origin(stored)
        if known is not None and known.is_of(channel):
            found.append(DeadLetter(stored, known.attempts, known.cause, leader.number))
    return found


def _held_in(channel: Channel) -> str:
    """How many there are, and the first offset to read."""
    partition, window = next(one for one in channel.windows.items() if one[1].exhausted)
    first = window.stray_records(Stray.EXHAUSTED, 1)[0]
    position = f"id {first.id:016x} at offset {first.offset} of partition {partition}"
    return f"{channel.held} in channel {channel.name} ({position})"


def _settle(window: Window, id: int) -> bool:
    """A change of the channel may have made the message wait to be sent again."""
    return window.settle_exhausted(id, True) or window.settle_stray(id, -1)


class DeadLetters:
    def __init__(self, context: Context, topic: Callable[[str], Topic]) -> None:
        self._context = context
        self._topics = context.topics
        self._topic = topic  # made when it is not there
        self._retries: dict[Channel, None] = {}
        self._under_way: dict[Window, set[int]] = {}  # ids whose dead letters are being written
        self._redrives: dict[Channel, Redrive] = {}
        self._holding: dict[Channel, None] = {}  # channels with messages that stay
        self._troubled: set[str] = set()  # topics with messages that wait: health says so

    # --- there ---

    def collect(self, channel: Channel) -> None:
        """Handle exhausted messages that do not wait for the next attempt."""
        if channel in self._retries or self._context.exiting or channel.deleted:
            return
        if channel.settings.poison == Poison.HOLD:
            self._holding[channel] = None
            self._show_held()
            return
        for window in channel.windows.values():
            leader: Leader = window.owner.topic.leader(window.tail.partition)
            if leader.acts:
                self._collect(channel, window)
            elif window.exhausted:  # a leader that was replaced would send them, too
                self._retries[channel] = None

    def _show_held(self) -> None:
        """Shown in `/ping`: in an ordered channel other messages wait for them."""
        topics = {channel.topic.name for channel in self._holding}
        for channel in list(self._holding):
            if channel.deleted or not channel.held:
                del self._holding[channel]
        for name in topics:
            held = [one for one in self._holding if one.topic.name == name]
            counts = ", ".join(map(_held_in, held))
            reason = counts and f"messages have used their attempts and are held: {counts}"
            self._context.health.show(name, Trouble.HELD, reason)

    def _collect(self, channel: Channel, window: Window) -> None:
        taken = sorted(window.take_exhausted(limits.DEAD_LETTERS_AT_ONCE))
        under_way = self._under_way.get(window, ())
        records = [record for record in taken if record.id not in under_way]
        if not records:
            return
        try:
            dead_letters = self._dead_letters(channel, window, records)
            self._publish(channel, window, dead_letters)
        except PenstockError as error:
            self._put_back(channel, window, [record.id for record in records], error)

    def _dead_letters(
        self, channel: Channel, window: Window, records: list[StrayRecord]
    ) -> dict[int, Content]:
        """Returns dead letters by id. Corrupt messages are skipped or waited for, as for
        deliveries. Messages beyond the bound are offered again later."""
        leader: Leader = window.owner.topic.leader(window.tail.partition)
        reader = MessageReader(leader.log)
        dead_letters: dict[int, Content] = {}
        bytes_left = limits.DEAD_LETTER_BYTES_AT_ONCE
        for record in records:
            if bytes_left <= 0:
                window.settle_exhausted(record.id, False)
                continue
            try:
                content = dead_letters[record.id] = dead_letter(
                    reader.read(record.offset), record, channel
                )
                bytes_left -= len(content.body)
            except LogDamaged as error:
                if leader.passable(error, record.offset) > record.offset:
                    leader.load(window, Source.STRAY, record.offset)
                else:  # another replica may have it
                    self._put_back(channel, window, [record.id], error)
        return dead_letters

    def _publish(self, channel: Channel, window: Window, dead_letters: dict[int, Content]) -> None:
        def done(error: PenstockError | None) -> None:
            self._end(window, dead_letters)
            if error is not None:
                self._put_back(channel, window, list(dead_letters), error)
                return
            self._clear({channel.topic.name})
            for id in dead_letters if channel.has(window) else ():
                channel.dead_letter_count += _settle(window, id)
            self.collect(channel)

        if dead_letters:
            self._under_way.setdefault(window, set()).update(dead_letters)
            try:
                self._send(channel, list(dead_letters.values()), done)
            except PenstockError:
                self._end(window, dead_letters)
                raise
            self._context.engine.wake()

    def _send(self, channel: Channel, dead_letters: list[Content], done: MetadataDone) -> None:
        """Publish to the dead-letter topic. May raise PenstockError instead of calling `done`."""
        metadata, name = channel.topic.metadata, channel.dead_letter_topic
        if metadata is None:
            topic = self._topic(name)
            topic.channel(REDRIVE_CHANNEL)
            topic.publish_dead_letters(dead_letters, lambda error, _: done(error))
        elif (topic_here := self._topics.get(name)) is not None and not topic_here.replicated:
            raise Refused(f"topic {name} is of this node alone, not of the cluster")
        else:
            self._send_placed(channel, metadata, dead_letters, done)

    def _send_placed(
        self,
        channel: Channel,
        metadata: ClusterMetadata,
        dead_letters: list[Content],
        done: MetadataDone,
    ) -> None:
        """The topic and its channel are made first, if they are not there."""
        name = channel.dead_letter_topic

        def made(error: PenstockError | None) -> None:
            if error is not None:
                done(error)
            else:
                metadata.make_channel(name, REDRIVE_CHANNEL, ready)

        def ready(error: PenstockError | None) -> None:
            try:
                topic, replica_host = self._topics.get(name), self._context.replica_host
                if error is not None:
                    raise error
                if topic is not None and topic.leaders:
                    topic.publish_dead_letters(dead_letters, lambda error, _: done(error))
                elif replica_host is not None:
                    replica_host.forwarding.carry(name, dead_letters, done)
            except PenstockError as failure:
                done(failure)

        partitions = self._context.options.default_partitions
        metadata.make_topic(name, NewTopic(partitions, like=channel.topic.name), made)

    def _end(self, window: Window, dead_letters: Iterable[int]) -> None:
        under_way = self._under_way[window]
        under_way.difference_update(dead_letters)
        if not under_way:
            del self._under_way[window]

    def _put_back(
        self, channel: Channel, window: Window, ids: list[int], error: PenstockError
    ) -> None:
        if channel.deleted or not channel.has(window):
            return
        self._retries[channel] = None
        for id in ids:
            window.settle_exhausted(id, False)
        if self._context.exiting:
            return
        reason = error.reason if isinstance(error, Refused | StorageError) else str(error)
        name = channel.topic.name
        self._troubled.add(name)
        text = f"{name}:{channel.name}: messages wait for the dead-letter topic: {reason}"
        self._context.health.report(name, Trouble.DEAD_LETTERS, text)

    def _clear(self, topics: set[str]) -> None:
        """Their messages wait no more: they are dead letters, or none has to become one."""
        self._troubled -= topics
        for name in topics:
            self._context.health.clear(name, Trouble.DEAD_LETTERS)

    # --- and back ---

    def waiting(self, channel: Channel, count_max: int) -> list[DeadLetter]:
        """The oldest first, as far as a look at so many finds them. Raises StorageError."""
        dead = self._topics.get(channel.dead_letter_topic)
        source = dead.channels.get(REDRIVE_CHANNEL) if dead is not None else None
        if dead is None or source is None:
            return []
        dead.touch()
        found: list[DeadLetter] = []
        for window in source.windows.values():
            found += _letters_of(channel, window, count_max - len(found))
        return found

    def redrive(
        self, channel: Channel, count_max: int, done: RedriveDone, id: int | None = None
    ) -> None:
        """Send up to `count_max` (0: all) dead letters back to `channel`, or the one with this id.
        `done` receives their number and an error, if any. Raises Refused and NotFound."""
        if self._context.draining:
            raise Refused("draining")
        if channel in self._redrives:
            raise Refused(f"a redrive of {channel.topic.name}:{channel.name} is under way")
        dead = self._topics.get(channel.dead_letter_topic)
        if dead is None:
            raise NotFound("topic", channel.dead_letter_topic)
        source = dead.find_channel(REDRIVE_CHANNEL)
        if not source.windows:
            raise Refused(f"no partition of topic {dead.name} is led by this node")

        def ended(count: int, error: PenstockError | None) -> None:
            del self._redrives[channel]
            done(count, error)

        redrive = Redrive(channel, source, count_max, ended, id)
        self._redrives[channel] = redrive
        redrive.go_on()

    # --- about once a second ---

    def housekeeping(self) -> None:
        retries, self._retries = self._retries, {}
        for channel in retries:
            if not channel.deleted:
                self.collect(channel)
        waiting = (*self._retries, *(window.owner for window in self._under_way))
        self._clear(self._troubled - {channel.topic.name for channel in waiting})
        for redrive in list(self._redrives.values()):
            if redrive.rests:
                redrive.go_on()
        if self._holding:
            self._show_held()


class _Span:
    def __init__(self, window: Window) -> None:
        self.window = window
        self.start = 0
        self.end = window.tail.handed_end


class Redrive:
    """One redrive. Each step reads some dead letters and publishes those of the channel."""

    def __init__(
        self,
        channel: Channel,
        source: Channel,
        count_max: int,
        done: RedriveDone,
        id: int | None = None,
    ) -> None:
        self.rests = False  # until the next housekeeping: it has looked at much and found nothing
        self._context = channel.topic.context
        self._channel = channel
        self._source = source
        self._id = id  # None: any
        self._topic = channel.topic
        self._spans = deque(_Span(window) for window in source.windows.values())
        self._left = count_max or sum(span.end for span in self._spans)
        self._count = 0
        self._found: dict[int, list[Message]] = {}  # read and not yet published, by partition
        self._leaders = [*channel.topic.leaders, *source.topic.leaders]
        self._done = done

    def go_on(self) -> None:
        self.rests = False
        try:
            self._step()
        except PenstockError as error:
            self._finish(error)

    def _finish(self, error: PenstockError | None) -> None:
        self._done(self._count, error)

    def _step(self) -> None:
        if self._channel.deleted or self._source.deleted:
            raise Refused("the channel was deleted")
        span = self._spans[0]
        if not self._source.has(span.window):
            raise Refused("the dead letters are led by another node now")
        looked = 0 if self._found else self._look(span)
        if self._found:
            self._publish(span.window, *self._found.popitem())
        elif looked:
            self.rests = True
        elif len(self._spans) > 1:
            self._spans.popleft()
            self.go_on()
        else:
            self._hold()

    def _hold(self) -> None:
        """Skips of channels have to survive a change of leader, too."""
        when_held(self._leaders, self._finish)

    def _look(self, span: _Span) -> int:
        """Returns how many dead letters were read; those of the channel are kept."""
        looked = found = found_bytes = 0
        leader = self._source.topic.leader(span.window.tail.partition)
        reader = MessageReader(leader.log)
        for offset in waiting_offsets(span.window, span.start, span.end):
            if (
                found >= min(self._left, limits.DEAD_LETTERS_AT_ONCE)
                or found_bytes >= limits.DEAD_LETTER_BYTES_AT_ONCE
                or looked >= limits.REDRIVE_LOOKED_AT
            ):
                break
            span.start = offset + 1
            looked += 1
            try:
                stored = reader.read(offset)
            except LogDamaged:
                leader.load(span.window, Source.FORWARD, offset)
                continue
            if self._is_ours(stored):
                self._found.setdefault(self._partition_of(stored), []).append(stored)
                found += 1
                found_bytes += len(stored.body)
        return looked

    def _is_ours(self, stored: Message) -> bool:
        known = origin(stored)
        wanted = self._id is None or stored.id == self._id
        return wanted and known is not None and known.is_of(self._channel)

    def _partition_of(self, stored: Message) -> int:
        """Its key's, or one that this node leads; ANY: there is none here."""
        key = stored.sections.get(Section.KEY)
        if isinstance(key, bytes):
            return self._topic.partition_of_key(key)
        led = [leader.number for leader in self._topic.leaders]
        return led[self._count % len(led)] if led else ANY

    def _publish(self, window: Window, partition: int, found: list[Message]) -> None:
        dead_letters = [redriven_content(stored) for stored in found]
        topic, replica_host = self._topic, self._context.replica_host

        def published(error: PenstockError | None, position: MessagePosition) -> None:
            if error is None:
                start, end = position.offset, position.offset + len(found)
                topic.step_over(position.partition, start, end, self._channel)
            self._published(window, found, error)

        if replica_host is None or topic.leads(partition):
            topic.publish_dead_letters(dead_letters, published, partition)
        else:
            number = None if partition == ANY else partition
            done = partial(self._published, window, found)
            forwarding = replica_host.forwarding
            forwarding.carry(topic.name, dead_letters, done, number, self._channel.number)
        self._context.engine.wake()

    def _published(self, window: Window, found: list[Message], error: PenstockError | None) -> None:
        if error is not None:
            self._finish(error)
            return
        self._settle(window, found)
        self._count += len(found)
        self._left -= len(found)
        if self._left:
            self.go_on()
        else:
            self._hold()

    def _settle(self, window: Window, found: list[Message]) -> None:
        """Finish them on the dead-letter topic."""
        if self._source.deleted or not self._source.has(window):
            return
        for stored in found:
            window.lose_range(stored.offset, stored.offset + 1)  # where it was a stray
            window.skip(stored.offset, stored.offset + 1)
        self._source.topic.store_cursors()
