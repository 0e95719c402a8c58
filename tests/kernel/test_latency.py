"""From timestamp to FIN: which bucket, which messages, and that nothing is counted twice."""

from typing import Any

import pytest

from penstock.kernel import Section

from .figures import bucket_of
from .turns import MS, SECOND, WALL_NS, Side, fin


def measured(side: Side) -> Any:
    side.settle()  # a first turn tells the kernel both clocks
    window = side.window(side.tail())
    window.measures_latency = True
    return window


def buckets(*latencies_ns: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for latency_ns in latencies_ns:
        counts[bucket_of(latency_ns)] = counts.get(bucket_of(latency_ns), 0) + 1
    return counts


def take(window: Any) -> dict[int, int]:
    window.take_journal()  # as at the end of each turn
    taken: dict[int, int] = window.take_latencies()
    return taken


@pytest.mark.parametrize("latency_ns", [0, 900, 1500, 3 * MS, 47 * SECOND, 10**17])
def test_the_time_from_publish_to_finish(side: Side, latency_ns: int) -> None:
    window = measured(side)
    conn = side.consumer(window, rdy=10)
    conn.timeout_ns = 1 << 62
    id = side.publish(window.tail, b"x")
    side.received(conn)
    side.pass_time(latency_ns)
    side.fed(conn, fin(id))
    assert take(window) == buckets(latency_ns)
    assert take(window) == {}


def test_latency_counts_from_the_first_publish(side: Side) -> None:
    window = measured(side)
    conn = side.consumer(window, rdy=10)
    timed, requeued, touched = (side.publish(window.tail, b"x") for _ in range(3))
    side.received(conn)
    window.requeue(conn.serial, requeued, 0, side.wall_ns)
    side.pass_time(50 * SECOND)
    window.touch(conn.serial, touched, side.mono_ns)
    side.pass_time(10 * SECOND)
    side.tick()
    side.received(conn)
    side.pass_time(SECOND)
    side.fed(conn, fin(timed, requeued, touched))
    assert take(window) == buckets(*[61 * SECOND] * 3)


def test_an_own_timestamp_is_the_one_that_counts(side: Side) -> None:
    window = measured(side)
    conn = side.consumer(window, rdy=10)
    old_ns = WALL_NS - 100 * SECOND
    window.tail.append(b"new")
    window.tail.append(b"old", 0, {Section.TIMESTAMP: old_ns})
    window.tail.append(b"old, with an id", 0, {Section.TIMESTAMP: old_ns, Section.ID: 77})
    side.store(window.tail)
    ids = [message.id for message in side.received(conn)]
    side.pass_time(SECOND)
    side.fed(conn, fin(*ids))
    assert take(window) == buckets(SECOND, 101 * SECOND, 101 * SECOND)
