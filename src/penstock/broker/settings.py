"""What a topic wants other than the daemon's options, and what comes of both.

A setting that is None is the daemon's option of the same name.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from penstock import limits
from penstock.broker.options import BrokerOptions, Durability

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class TopicSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """As they stand in topic.json."""

    durability: Durability | None = None
    max_depth: Count | None = None  # messages
    max_age_ns: Count | None = None
    retain_age_ns: Count | None = None
    retain_bytes: Count | None = None


class ChannelSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What one channel wants, as it stands in topic.json."""

    max_attempts: Annotated[int, msgspec.Meta(ge=0, le=limits.ATTEMPTS_MAX)] = 0  # 0: no bound
    dead_letter_topic: str = ""  # empty: named after topic and channel


class Effective(NamedTuple):
    """What holds for one topic. The names are those of the settings and of the options."""

    durability: Durability
    max_depth: int  # 0: no bound
    max_age_ns: int  # 0: no bound
    retain_age_ns: int
    retain_bytes: int


def effective(settings: TopicSettings, options: BrokerOptions) -> Effective:
    def one(name: str) -> object:
        value = getattr(settings, name)
        return getattr(options, name) if value is None else value

    return Effective(*map(one, Effective._fields))  # type: ignore[arg-type]
