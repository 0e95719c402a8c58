"""Where a publish over HTTP is to go: `partition` or `key`, as the query names them.

A key goes to the partition that its hash says, and is stored with each message; where the topic is
extended it is a header as well. Producers that number their messages have a partition of their own,
by which nsqd knows a repeat: they may name no other.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock import limits
from penstock.broker.intake import ANY
from penstock.broker.rows import Sections
from penstock.broker.topic import Topic
from penstock.errors import PartitionUnknown
from penstock.kernel import Section
from penstock.net.api import HttpError, Parameters
from penstock.nsqd.partitions import bad_partition, not_of, read_argument
from penstock.nsqd.stamps import is_stamped, stamp_of


class Target(NamedTuple):
    partition: int = ANY
    sections: Sections | None = None  # of each message


ANYWHERE = Target()


def target_of(topic: Topic, parameters: Parameters) -> Target:
    """Raises HttpError."""
    partition = partition_of(topic, parameters)
    key = parameters.get("key")
    if key is None:
        if not is_stamped(parameters):
            check_place(topic, partition)
        return Target(partition) if partition != ANY else ANYWHERE
    if "partition" in parameters:
        raise wrong_key(key, "a publish names a key or a partition, not both")
    if is_stamped(parameters):
        raise wrong_key(key, "a producer that numbers its messages has a partition of its own")
    return _keyed(topic, key)


def check_place(topic: Topic, partition: int) -> None:
    """Raises HttpError: where an order is to be kept, a publish says what it belongs to."""
    if partition == ANY and topic.placed:
        raise bad_partition("", "a publish to this topic needs a partition or a key")


def partition_of(topic: Topic, parameters: Parameters) -> int:
    text = parameters.get("partition")
    if text is None:
        return ANY
    number = read_argument(text)
    if number == ANY:
        return ANY
    try:
        leader = topic.partition(number)
    except PartitionUnknown as error:
        raise not_of(topic, number) from error
    if is_stamped(parameters):
        own = topic.stamped_leader(stamp_of(parameters).producer_id)
        if own is not leader:
            raise bad_partition(number, f"this producer publishes to partition {own.number}")
    return number


def _keyed(topic: Topic, text: str) -> Target:
    try:
        key = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise wrong_key(text, "it is no UTF-8") from error
    headers = json.dumps({"key": text}, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    if not key or len(headers) > limits.HEADERS_BYTES_MAX:
        raise wrong_key(text, f"1 byte to {limits.HEADERS_BYTES_MAX} of them as JSON")
    sections: dict[int, int | bytes] = {Section.KEY: key}
    if topic.extended:
        sections[Section.HEADERS] = headers
    return Target(topic.partition_of_key(key), sections)


def wrong_key(text: str, rule: str) -> HttpError:
    return HttpError(400, f"INVALID_ARG_KEY {text[:100]!r}: {rule}")
