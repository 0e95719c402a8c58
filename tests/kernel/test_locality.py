"""Near consumers come first, far ones get the rest."""

from __future__ import annotations

from typing import Any

from penstock.kernel import Locality

from .turns import Side


def consumer(side: Side, window: Any, locality: Locality, rdy: int) -> Any:
    conn = side.connect()
    side.poll()
    conn.locality = locality
    conn.subscribe(window)
    conn.rdy = rdy
    return conn


def three(side: Side, window: Any, *rdy: int) -> list[Any]:
    """The far one subscribed first, so that order alone would favour it."""
    places = (Locality.GLOBAL, Locality.REGION, Locality.ZONE)
    return [consumer(side, window, *pair) for pair in zip(places, rdy, strict=True)]


def got(side: Side, conns: list[Any]) -> list[int]:
    return [len(side.received(conn)) for conn in conns]


def counts(window: Any) -> tuple[int, int, int]:
    return window.global_count, window.region_local_count, window.zone_local_count


def test_while_the_nearest_has_room_it_gets_everything(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = three(side, window, 10, 10, 10)
    for _ in range(7):
        side.publish(tail, b"x")
        side.settle()
    assert got(side, conns) == [0, 0, 7]
    assert counts(window) == (0, 0, 7)


def test_nobody_is_shut_out(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = three(side, window, 10, 3, 2)
    side.publish(tail, *[b"x"] * 9)
    assert got(side, conns) == [4, 3, 2]
    assert counts(window) == (4, 3, 2)


def test_equally_near_ones_share(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    near = [consumer(side, window, Locality.ZONE, 50) for _ in range(2)]
    far = consumer(side, window, Locality.GLOBAL, 50)
    side.publish(tail, *[b"x"] * 40)
    assert got(side, [*near, far]) == [20, 20, 0]


def test_a_large_window_nearby_does_not_wait_for_a_better_refill(side: Side) -> None:
    """Waiting would send the messages further away."""
    tail = side.tail()
    window = side.window(tail)
    near = consumer(side, window, Locality.ZONE, 100)
    far = consumer(side, window, Locality.GLOBAL, 100)
    id = side.publish(tail, *[b"x"] * 100)
    assert got(side, [near, far]) == [100, 0]
    window.finish(near.serial, id)
    side.publish(tail, b"one more")
    assert got(side, [near, far]) == [1, 0]


def test_without_localities_all_is_global(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = [side.consumer(window, rdy=10) for _ in range(2)]
    side.publish(tail, *[b"x"] * 10)
    assert got(side, conns) == [5, 5]
    assert counts(window) == (10, 0, 0)
