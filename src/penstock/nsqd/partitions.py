"""Which partitions of a topic a request is about: the parameter `partition`, as Youzan's nsqd has
it. Without it, or with -1, it is about all that are led here.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.topic import Topic
from penstock.net.api import HttpError, Parameters
from penstock.net.query import whole_number
from penstock.wire.errors import WireFault
from penstock.wire.partition import ANY, read_partition


def bad_partition(text: object, rule: str) -> HttpError:
    return HttpError(
        400, "E_BAD_PARTITION", details={"reason": f"partition {str(text)[:100]!r}: {rule}"}
    )


def not_of(topic: Topic, text: object) -> HttpError:
    return bad_partition(text, f"topic {topic.name} has 0 to {topic.partition_count - 1}")


def read_argument(text: str) -> int:
    """The number that a request names; ANY where it leaves the choice. Raises HttpError."""
    try:
        return read_partition(b"partition", text.encode("utf-8", "surrogateescape"))
    except WireFault as error:
        rule = f"a number from 0 to {limits.PARTITIONS_MAX - 1} is expected"
        raise bad_partition(text, rule) from error


def chosen_partition(topic: Topic, parameters: Parameters) -> int:
    """Of the topic, whoever leads it. ANY: all of them."""
    text = parameters.get("partition", "")
    if text in ("", "-1"):
        return ANY
    number = whole_number(text, limits.PARTITIONS_MAX - 1)
    if number is None or number >= topic.partition_count:
        raise not_of(topic, text)
    return number


def chosen_partitions(topic: Topic, parameters: Parameters) -> list[int]:
    """Of those that are led here."""
    led, chosen = [leader.number for leader in topic.leaders], chosen_partition(topic, parameters)
    if chosen == ANY:
        return led
    if chosen not in led:
        raise bad_partition(chosen, "this node does not lead it")
    return [chosen]
