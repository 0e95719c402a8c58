from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock import limits
from penstock.tools.hostpool import HostPool

S = limits.SECOND


class Clock:
    now_ns = 1_000 * S

    def __call__(self) -> int:
        return self.now_ns


def pool(clock: Clock, mode: str = "hostpool", count: int = 3) -> HostPool:
    return HostPool([f"h{n}" for n in range(count)], mode, clock, random.Random(1))


def taken(hosts: HostPool, count: int) -> list[str]:
    return [hosts.take().address for _ in range(count)]


@pytest.mark.parametrize("mode", ["hostpool", "round-robin"])
def test_one_after_the_other(mode: str) -> None:
    assert taken(pool(Clock(), mode), 4) == ["h0", "h1", "h2", "h0"]


def test_a_dead_one_rests_and_longer_each_time() -> None:
    clock = Clock()
    hosts = pool(clock, count=2)
    dead = hosts.hosts[0]
    for rest in (30, 60, 120, 240, 480, 900, 900):
        hosts.failed(dead)
        assert set(taken(hosts, 4)) == {"h1"}
        clock.now_ns += rest * S - 1
        assert set(taken(hosts, 4)) == {"h1"}
        clock.now_ns += 1
        assert set(taken(hosts, 4)) == {"h0", "h1"}
    hosts.succeeded(dead, 5)
    hosts.failed(dead)
    clock.now_ns += 30 * S
    assert set(taken(hosts, 4)) == {"h0", "h1"}


def test_when_all_are_dead_the_first_to_come_back_is_tried() -> None:
    clock = Clock()
    hosts = pool(clock, count=2)
    hosts.failed(hosts.hosts[1])
    clock.now_ns += S
    hosts.failed(hosts.hosts[0])
    assert taken(hosts, 2) == ["h1", "h1"]


def test_greedy_takes_the_quickest_and_looks_at_the_others_now_and_then() -> None:
    hosts = pool(Clock(), "epsilon-greedy")
    times = {"h0": 50 * limits.MS, "h1": 2 * limits.MS, "h2": 30 * limits.MS}
    seen: Counter[str] = Counter()
    for _ in range(2_000):
        host = hosts.take()
        seen[host.address] += 1
        hosts.succeeded(host, times[host.address])
    assert seen["h1"] > 1_900
    assert min(seen["h0"], seen["h2"]) >= 2


def test_greedy_notices_a_change() -> None:
    hosts = pool(Clock(), "epsilon-greedy", 2)
    times = {"h0": limits.MS, "h1": 20 * limits.MS}
    for _ in range(100):
        host = hosts.take()
        hosts.succeeded(host, times[host.address])
    times["h0"] = 500 * limits.MS
    late = []
    for _ in range(200):
        host = hosts.take()
        late.append(host.address)
        hosts.succeeded(host, times[host.address])
    assert Counter(late[50:])["h1"] > 140
