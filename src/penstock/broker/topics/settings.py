"""The settings of a topic beside the daemon's options, and their combination.

A setting that is None is the daemon's option of the same name.

Topics that Penstock keeps for itself, beside those of its users.

- `_trace`: events about traced messages (`broker/trace.py`). Only nsqd publishes to it.
- `_pipelines`: what runs of pipelines say of themselves (`pipelines/runs.py`). They publish to it
  as anybody publishes to a topic, and so make it.

Both are ordinary topics but for this:

- They are not registered with nsqlookupd, and a pattern of names passes over them.
- They are not traced, and no sweep of idle topics takes them away.
- They keep no queue while they have no channel: a channel made later begins at the end. What no
  channel wants is kept for a time and size of their own.
"""

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from penstock import limits
from penstock.broker.options import BrokerOptions, Durability
from penstock.kernel import TRACE_ALL, Order
from penstock.trace import events as traceevents

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Attempts = Annotated[int, msgspec.Meta(ge=0, le=limits.ATTEMPTS_MAX)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]

AUTO_CREATE_OFF = "disable_channel_auto_create"  # consumers make no channels of the topic


class TopicSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """In the form of topic.json."""

    durability: Durability | None = None
    max_depth: Count | None = None  # messages
    max_age_ns: Count | None = None
    retain_age_ns: Count | None = None
    retain_bytes: Count | None = None
    trace_rate: Rate | None = None
    ordered: bool | None = None  # consumers have to ask for strict order, by SUB_ORDERED
    disable_channel_auto_create: bool | None = None  # consumers find only what was made for them


class ChannelOrder(StrEnum):
    """The scope of a channel's order, within each partition."""

    NONE = "none"
    KEY = "key"  # messages of one key
    STRICT = "strict"  # all messages


class Poison(StrEnum):
    DEAD_LETTER = "dead_letter"
    HOLD = "hold"  # it stays, and in an ordered channel nothing overtakes it


ORDERS = {order: Order[order.name] for order in ChannelOrder}


class ChannelSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    max_attempts: Attempts = 0  # 0: no bound
    dead_letter_topic: str = ""  # empty: named after topic and channel
    trace_rate: Rate | None = None  # None: the topic's
    auto_ack_attempts: Attempts | None = None  # None: the daemon's option, as below
    auto_ack_age_ns: Count | None = None
    order: ChannelOrder = ChannelOrder.NONE
    poison: Poison = Poison.DEAD_LETTER


class WritesDisabledFor(StrEnum):
    """The topics whose publishes an operator has disabled."""

    ALL = "all"  # but nsqd's own
    ORDERED = "ordered"  # those with the setting
    NONE = "none"


class Effective(NamedTuple):
    """The effective settings of a topic, by the names of the settings and of the options."""

    durability: Durability
    max_depth: int  # 0: no bound
    max_age_ns: int  # 0: no bound
    retain_age_ns: int
    retain_bytes: int
    trace_rate: float


def effective(settings: TopicSettings, options: BrokerOptions) -> Effective:
    def one(name: str) -> object:
        value = getattr(settings, name)
        return getattr(options, name) if value is None else value

    return Effective(*map(one, Effective._fields))  # type: ignore[arg-type]


class AutoAck(NamedTuple):
    """A message that was sent more often than this, and is older than that, is finished instead of
    sent again. Either 0: off."""

    attempts: int
    age_ns: int


def auto_ack(settings: ChannelSettings, options: BrokerOptions) -> AutoAck:
    attempts, age_ns = settings.auto_ack_attempts, settings.auto_ack_age_ns
    return AutoAck(
        options.auto_ack_attempts if attempts is None else attempts,
        options.auto_ack_age_ns if age_ns is None else age_ns,
    )


def sample_below(rate: float) -> int:
    """The kernel's bound for the hash of ids, so that about `rate` of them are traced."""
    if rate <= 0:
        return 0
    return TRACE_ALL if rate >= 1 else max(int(rate * TRACE_ALL), 1)


TRACE = traceevents.TOPIC
PIPELINES = "_pipelines"

SETTINGS = {
    TRACE: TopicSettings(
        durability="os",
        retain_age_ns=limits.TRACE_RETAIN_AGE_NS,
        retain_bytes=limits.TRACE_RETAIN_BYTES,
    ),
    PIPELINES: TopicSettings(
        retain_age_ns=limits.RUNS_RETAIN_AGE_NS, retain_bytes=limits.RUNS_RETAIN_BYTES
    ),
}


def is_internal(name: str) -> bool:
    return name in SETTINGS


def settings_of(name: str, registered: bool = False) -> TopicSettings:
    """`registered`: consumers may create no channels."""
    return SETTINGS.get(name) or TopicSettings(disable_channel_auto_create=registered or None)
