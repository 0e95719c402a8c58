"""The consuming side of V2: SUB, CLS and RDY, and the commands that settle a message: FIN, REQ,
TOUCH.

The kernel serves RDY and FIN by itself as long as they are right.

On a topic without headers a tag and a filter mean nothing: they are left aside, and the consumer
gets all. A filter there would finish every message unseen. An envelope says what there is, so a
consumer that asks for it is right on any topic.

`SUB_ADVANCED <topic> <channel> <partition> [offset]` is Youzan's: SUB with the position of each
message in its frame, and a position to begin at. The position is written as for
`/channel/setoffset` (`broker/channels/reading.py`), but for an id, which may take a walk through
the log. It counts for the first consumer of the channel alone: whoever comes later must not move
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.changes import configure_channel
from penstock.broker.channels.reading import OF_ONE, Offsets, Position, parse_position, resolve
from penstock.broker.replicas.clustered_topic import when_held
from penstock.broker.topics.settings import ChannelOrder
from penstock.errors import PartitionElsewhere
from penstock.kernel import Event, Held, Window, hex_to_id
from penstock.nsqd.publishing import bad_topic
from penstock.nsqd.session import Session
from penstock.nsqd.waits import Waits, WithTopic
from penstock.wire import frames
from penstock.wire.errors import (
    NOT_IN_FLIGHT,
    NOT_IN_FLIGHT_HERE,
    NOT_OWNER,
    Fault,
    WireFault,
    reason_of,
)
from penstock.wire.frames import FrameType
from penstock.wire.names import (
    ANY,
    bad_partition,
    is_valid_name,
    parse_number,
    quote,
    read_extra,
    read_partition,
)
from penstock.wire.states import State

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.topics.topic import Topic
    from penstock.clock import Clock
    from penstock.nsqd.options import Options

SUB_ADVANCED = b"SUB_ADVANCED"
NOWHERE: Offsets = {}
Settle = Callable[..., int]  # a method of `Window`


def _reason(session: Session, held: Held) -> bytes:
    """Why a message is not this client's to settle."""
    channel = session.channel
    if held is Held.NOT_IN_FLIGHT and channel is not None and channel.topic.leaderships_ended:
        return NOT_IN_FLIGHT_HERE
    return NOT_OWNER if held is Held.NOT_OWNER else NOT_IN_FLIGHT


def _message_id(params: list[bytes], count_min: int) -> bytes:
    if len(params) < count_min:
        raise WireFault(Fault.PARAMS_MISSING, params[0])
    if len(params[1]) != frames.ID_BYTES:
        raise WireFault(Fault.BAD_ID)
    return params[1]


def _word(params: list[bytes]) -> bytes:
    """The word of the partition in a command; empty without one."""
    return params[3] if len(params) > 3 else b""


def _check_led(topic: Topic, partition: int, command: bytes, text: bytes) -> None:
    """Raises WireFault. Any partition is led here some time, where the node has a replica."""
    if partition >= topic.partition_count:
        raise bad_partition(command, text)
    if not (topic.replicas if partition == ANY else topic.leads(partition)):
        number = None if partition == ANY else partition
        reason = reason_of(PartitionElsewhere(topic.name, number))
        raise WireFault(Fault.NOT_LEADER, command, reason)


class Consuming:
    def __init__(self, options: Options, clock: Clock, waits: Waits) -> None:
        self._options = options
        self._wall_ns = clock.wall_ns
        self._mono_ns = clock.mono_ns
        self._waits = waits
        self.handlers: Mapping[int, Callable[..., None]] = {Event.FIN_FAILED: self._on_fin_failed}
        self.commands: Mapping[bytes, Callable[[Session, list[bytes]], None]] = {
            b"SUB": self._sub,
            b"SUB_ORDERED": self._sub_ordered,
            SUB_ADVANCED: self._sub_advanced,
            b"RDY": self._rdy,
            b"FIN": self._fin,
            b"REQ": self._req,
            b"TOUCH": self._touch,
            b"CLS": self._cls,
        }

    # --- events ---

    def _on_fin_failed(self, session: Session, message_id: bytes, held: int) -> None:
        raise WireFault(Fault.FIN_FAILED, message_id, _reason(session, Held(held)))

    # --- commands ---

    def _sub(self, session: Session, params: list[bytes]) -> None:
        self._check_names(session, params, 3)
        partition = read_extra(b"SUB", _word(params))

        def go_on(topic: Topic) -> None:
            self._subscribe(session, topic, params, partition)

        self._with_channel(session, params, partition, go_on)

    def _sub_ordered(self, session: Session, params: list[bytes]) -> None:
        """Youzan's: one partition, one message after the other, with their positions. The channel
        keeps strict order from then on, for all its consumers."""
        self._check_names(session, params, 4)
        if session.settings.sample_rate:
            raise WireFault(Fault.ORDER_SAMPLED, params[0])
        partition = read_partition(params[0], params[3])

        def go_on(topic: Topic) -> None:
            channel = topic.channel_of_consumer(params[2].decode("ascii"))
            if channel.settings.order == ChannelOrder.STRICT:
                ordered(topic)
                return
            ask = partial(configure_channel, channel, {"order": ChannelOrder.STRICT})
            self._waits.until(session, Fault.SUB_FAILED, ask, partial(ordered, topic))

        def ordered(topic: Topic) -> None:
            session.conn.detailed = True
            self._subscribe(session, topic, params, partition)

        self._with_channel(session, params, partition, go_on, ordered=True)

    def _sub_advanced(self, session: Session, params: list[bytes]) -> None:
        """Youzan's: SUB with positions, and with a position for the first consumer to begin at."""
        self._check_names(session, params, 4)
        partition = read_partition(params[0], params[3])
        position = _position(params[4], self._wall_ns()) if len(params) > 4 else None

        def go_on(topic: Topic) -> None:
            channel = topic.channel_of_consumer(params[2].decode("ascii"))
            begins = _offsets(channel, position, partition) if position is not None else {}
            session.conn.detailed = True
            self._subscribe(session, topic, params, partition, begins)

        self._with_channel(session, params, partition, go_on)

    def _check_names(self, session: Session, params: list[bytes], count_min: int) -> None:
        command = params[0]
        if not session.settings.heartbeat_ns:
            raise WireFault(Fault.SUB_HEARTBEATS_OFF)
        if len(params) < count_min:
            raise WireFault(Fault.PARAMETERS_MISSING, command)
        if not is_valid_name(params[1]):
            raise bad_topic(command, params[1])
        if not is_valid_name(params[2]):
            raise WireFault(Fault.BAD_CHANNEL, command, quote(params[2]))

    def _with_channel(
        self,
        session: Session,
        params: list[bytes],
        partition: int,
        act: WithTopic,
        ordered: bool = False,
    ) -> None:
        """Call `act` once the client may use the channel and it exists. A refused consumer creates
        and changes nothing, so all checks come first."""
        command, topic_name, word = params[0], params[1], _word(params)
        name = params[2].decode("ascii")

        def make() -> None:
            partitions = self._waits.partitions_if_new(topic_name)
            if partitions:
                if session.settings.extend_support:  # it is made without headers
                    raise WireFault(Fault.SUB_EXTEND_FORBIDDEN, command, quote(topic_name))
                if partition >= partitions:
                    raise bad_partition(command, word)
            self._waits.with_topic(session, topic_name, Fault.SUB_FAILED, check)

        def check(topic: Topic) -> None:
            if ordered and partition == ANY:
                raise bad_partition(command, word)
            if topic.settings.ordered and not ordered:
                raise WireFault(Fault.SUB_ORDER_IS_MUST, command, topic_name)
            _check_led(topic, partition, command, word)
            _check_consumer(session, topic, command, self._options.sub_extend_must)
            topic.check_consumer(name)
            if name in topic.channels:
                topic.channels[name].check_room(self._options.max_channel_consumers)
            go_on = partial(act, topic)
            self._waits.with_channel(session, topic, name, Fault.SUB_FAILED, go_on)

        self._waits.with_leave(session, command, topic_name, params[2], make)

    def _subscribe(
        self,
        session: Session,
        topic: Topic,
        params: list[bytes],
        partition: int,
        begins: Offsets = NOWHERE,
    ) -> None:
        """`begins`: the channel's first offsets. The answer waits until they are durable."""
        _prepare(session, topic)
        channel = topic.channel_of_consumer(params[2].decode("ascii"))
        channel.subscribe(session.conn, self._options.max_channel_consumers, partition)
        session.channel = channel
        session.state = State.SUBSCRIBED
        leaders = [topic.leader(number) for number in begins]
        if begins:
            channel.seek(begins)
        answer = partial(session.conn.reply, FrameType.RESPONSE, frames.OK)
        self._waits.until(session, Fault.SUB_FAILED, partial(when_held, leaders), answer)

    def _rdy(self, session: Session, params: list[bytes]) -> None:
        text = params[1] if len(params) > 1 else b"1"
        count = parse_number(text)
        if count is None:
            raise WireFault(Fault.RDY_UNREADABLE, text)
        if count > self._options.max_rdy_count:
            raise WireFault(Fault.RDY_RANGE, count, self._options.max_rdy_count)
        session.conn.rdy = count

    def _settle(
        self, session: Session, fault: Fault, message_id: bytes, act: Settle, *arguments: int
    ) -> None:
        """Act on a message in flight; answer with an error when it belongs to another client."""
        number = hex_to_id(message_id)
        window = session.conn.find(number) if number >= 0 else None
        held = Held.NOT_IN_FLIGHT
        if window is not None:
            held = Held(act(window, session.conn.serial, number, *arguments))
        if held is not Held.DONE:
            raise WireFault(fault, message_id, _reason(session, held))

    def _fin(self, session: Session, params: list[bytes]) -> None:
        self._settle(session, Fault.FIN_FAILED, _message_id(params, 2), Window.finish)

    def _req(self, session: Session, params: list[bytes]) -> None:
        message_id, timeout_ms = _message_id(params, 3), parse_number(params[2])
        if timeout_ms is None:
            raise WireFault(Fault.TIMEOUT_UNREADABLE, b"REQ", params[2])
        times = min(timeout_ms * limits.MS, self._options.max_req_timeout_ns), self._wall_ns()
        self._settle(session, Fault.REQ_FAILED, message_id, Window.requeue, *times)

    def _touch(self, session: Session, params: list[bytes]) -> None:
        message_id, now_ns = _message_id(params, 2), self._mono_ns()
        self._settle(session, Fault.TOUCH_FAILED, message_id, Window.touch, now_ns)

    def _cls(self, session: Session, params: list[bytes]) -> None:
        session.conn.rdy = 0
        session.conn.closing = True
        session.state = State.CLOSING
        session.conn.reply(FrameType.RESPONSE, frames.CLOSE_WAIT)


def _check_consumer(session: Session, topic: Topic, command: bytes, extend_must: bool) -> None:
    """Check before anything is created or changed. Raises WireFault."""
    settings = session.settings
    if settings.extend_support and not topic.extended:
        raise WireFault(Fault.SUB_EXTEND_FORBIDDEN, command, quote(topic.name.encode()))
    if topic.extended and extend_must and not (settings.extend_support or settings.envelope):
        raise WireFault(Fault.SUB_EXTEND_NEED, command, quote(topic.name.encode()))


def _prepare(session: Session, topic: Topic) -> None:
    """Call before its connection subscribes."""
    conn, settings = session.conn, session.settings
    conn.extended = settings.extend_support
    conn.enveloped = settings.envelope
    conn.tag = settings.desired_tag.encode() if topic.extended else b""
    conn.set_filter(session.filter if topic.extended else None)


def _position(text: bytes, now_ns: int) -> Position:
    """Raises WireFault."""
    try:
        position = parse_position(text.decode("ascii"), now_ns)
    except ValueError:
        position = Position("id")
    if position.kind == "id":
        raise WireFault(Fault.BAD_OFFSET, SUB_ADVANCED, quote(text))
    return position


def _offsets(channel: Channel, position: Position, partition: int) -> Offsets:
    """The start of its first consumer; empty for a later one. Raises WireFault, OffsetGone,
    OffsetBeyondEnd, StorageError."""
    numbers = [partition] if partition != ANY else list(channel.windows)
    if len(numbers) > 1 and position.kind in OF_ONE:
        raise bad_partition(SUB_ADVANCED, b"%d" % partition)
    if channel.consumers:
        return {}
    work = resolve(channel.topic, position, numbers)
    while True:  # it is done in one piece: only ids take more
        try:
            next(work)
        except StopIteration as ended:
            found: Offsets = ended.value
            return found
