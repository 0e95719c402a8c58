from __future__ import annotations

import random

from sim.schedule import Schedule


def test_events_come_in_the_order_of_their_times() -> None:
    schedule, seen = Schedule(random.Random(1), 5), list[tuple[int, str]]()
    schedule.at(30, lambda: seen.append((schedule.now_ns, "third")))
    schedule.after(2, lambda: seen.append((schedule.now_ns, "first")))
    schedule.at(20, lambda: schedule.after(5, lambda: seen.append((schedule.now_ns, "second"))))
    schedule.play_until(29)
    assert seen == [(7, "first"), (25, "second")]
    assert schedule.now_ns == 29
    schedule.play_until(30)
    assert seen[-1] == (30, "third")
    assert schedule.played_count == 4


def test_what_is_late_comes_next_and_time_does_not_go_back() -> None:
    schedule, seen = Schedule(random.Random(1), 100), list[int]()
    schedule.at(3, lambda: seen.append(schedule.now_ns))
    schedule.play_until(100)
    assert seen == [100]


def test_the_dice_order_what_comes_at_one_time() -> None:
    def order(seed: int) -> list[int]:
        schedule, seen = Schedule(random.Random(seed)), list[int]()
        for number in range(6):
            schedule.at(1, lambda number=number: seen.append(number))  # type: ignore[misc]
        schedule.play_until(1)
        return seen

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(10)}) > 1
