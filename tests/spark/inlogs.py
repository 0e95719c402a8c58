"""What the partitions of a topic hold, as nsqd gives it to readers of its log."""

from __future__ import annotations

from penstock.kernel import decode_bodies, decode_header
from penstock.spark.brokerapi import BrokerApi


def bodies_of(url: str, topic: str) -> list[list[bytes]]:
    """By partition."""
    found: list[list[bytes]] = []
    with BrokerApi(url) as api:
        spans = api.positions([topic]).topics[topic]
        for number, span in sorted(spans.partitions.items()):
            found.append([])
            for fetched in api.fetches(topic, number, spans.identity, span.earliest, span.end):
                position = 0
                while position < len(fetched.data):
                    found[-1] += decode_bodies(fetched.data, position)
                    position += decode_header(fetched.data, position).length
    return found
