"""A real nsqd for tests of the data source: publish, and know where the topic is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from e2e.daemon import Daemon
from penstock.nsqdapi.calls import TopicSpans
from penstock.spark.brokerapi import BrokerApi

WAIT_S_MAX = 90.0
_Found = TypeVar("_Found")


class Nsqd:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.daemon.http_port}"

    def publish(self, topic: str, bodies: list[bytes]) -> TopicSpans:
        """Where the topic is, as soon as all of it can be read."""
        before = self.spans(topic)
        self.daemon.post(f"/mpub?topic={topic}", b"\n".join(bodies))
        wanted = (before.partitions[0].end if before else 0) + len(bodies)

        def is_there() -> TopicSpans | None:
            now = self.spans(topic)
            return now if now is not None and now.partitions[0].end >= wanted else None

        found = until(is_there)
        assert found is not None
        return found

    def spans(self, topic: str) -> TopicSpans | None:
        with BrokerApi(self.url) as api:
            return api.positions([topic]).topics.get(topic)


def until(found: Callable[[], _Found]) -> _Found:
    """What it gives, as soon as that is something."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not (what := found()):
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)
    return what


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
