"""What the partitions of a topic hold, as nsqd gives it to readers of its log."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.kernel import decode_bodies, decode_header, decode_sections
from penstock.spark.brokerapi import BrokerApi


def batches_of(url: str, topic: str, partition: int) -> Iterator[tuple[bytes, int]]:
    """The data, and where in it the batch begins."""
    with BrokerApi(url) as api:
        spans = api.positions([topic]).topics[topic]
        span = spans.partitions[partition]
        ranges = (partition, spans.identity, span.earliest, span.end)
        for fetched in api.fetches(topic, *ranges):
            position = 0
            while position < len(fetched.data):
                yield fetched.data, position
                position += decode_header(fetched.data, position).length


def bodies_of(url: str, topic: str) -> list[list[bytes]]:
    """By partition."""
    with BrokerApi(url) as api:
        count = len(api.positions([topic]).topics[topic].partitions)
    return [
        [body for batch in batches_of(url, topic, number) for body in decode_bodies(*batch)]
        for number in range(count)
    ]


def section_of(url: str, topic: str, partition: int, section: int) -> list[object]:
    """Of each message that has one, in order."""
    return [
        value
        for batch in batches_of(url, topic, partition)
        for _, value in sorted(decode_sections(*batch).get(section, {}).items())
    ]
