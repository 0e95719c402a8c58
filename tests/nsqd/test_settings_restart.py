"""Whatever a topic or a channel takes as a setting survives a restart of the daemon."""

import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cases import fresh_seed

from .world import Running

ROUNDS = 2
CHANGES = 150
EDGES = (0, 1, 1000, 65535, 65536, (1 << 31) - 1, (1 << 63) - 1, 1 << 63, 1 << 64, 10**19, 10**21)
TOPIC = ("durability", "max_depth", "max_age", "retain_age", "retain_bytes", "trace_rate")
CHANNEL = ("max_attempts", "dead_letter_topic", "trace_rate")
WORDS = ("", "-1", "x", "1e3", "0x10", "+5", "٣", "disk", "os", "a.dead", "a" * 65, "%00", "nan")
UNITS = ("ns", "us", "ms", "s", "h")


def some_value(dice: random.Random) -> str:
    kind = dice.randrange(5)
    if kind == 0:
        return dice.choice(WORDS)
    number = dice.choice(EDGES) + dice.randrange(-1, 2)
    if kind == 1:
        return str(number)
    if kind == 2:
        return str(max(number, 0)).rjust(dice.randrange(60), "0")
    if kind == 3:
        return f"{'0' * dice.randrange(30)}{max(number, 0)}{dice.choice(UNITS)}"
    return str(dice.choice((0, 1, 0.5, dice.random(), 1e-300)))


def settings(nsqd: Running) -> list[dict[str, Any]]:
    found = []
    for target in ("/topic/config?topic=t", "/channel/config?topic=t&channel=c"):
        row = nsqd.ask("GET", target)[1]
        found.append({name: value for name, value in row.items() if name != "dead_letter_count"})
    return found


def change(nsqd: Running, dice: random.Random) -> bool:
    """One change, taken or refused by a 400 that names it."""
    on_topic = dice.random() < 0.6
    name, value = dice.choice(TOPIC if on_topic else CHANNEL), some_value(dice)
    where = "/topic/config?topic=t" if on_topic else "/channel/config?topic=t&channel=c"
    answer = nsqd.request("POST", f"{where}&{name}={quote(value)}")
    assert answer.status in (200, 400), (name, value, answer.body)
    assert answer.status == 200 or b"INVALID_ARG" in answer.body, (name, value, answer.body)
    return answer.status == 200


def test_all_settings_survive_a_restart(tmp_path: Path) -> None:
    seed = fresh_seed()
    print("seed", seed)
    dice = random.Random(seed)
    taken = 0
    for _ in range(ROUNDS):
        with Running(tmp_path / "data", "--durability=os") as nsqd:
            nsqd.request("POST", "/topic/create?topic=t")
            nsqd.request("POST", "/channel/create?topic=t&channel=c")
            taken += sum(change(nsqd, dice) for _ in range(CHANGES))
            before = settings(nsqd)
        with Running(tmp_path / "data", "--durability=os") as nsqd:
            assert settings(nsqd) == before
            assert nsqd.request("POST", "/topic/config?topic=t&max_depth=0").status == 200
            assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    assert taken > CHANGES // 10  # or nothing was tried


def test_the_largest_depth_is_no_bound_for_a_topic_with_messages(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as nsqd:
        nsqd.request("POST", "/pub?topic=t", b"x")
        largest = (1 << 63) - 1
        assert nsqd.request("POST", f"/topic/config?topic=t&max_depth={largest}").status == 200
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    with Running(tmp_path / "data") as nsqd:
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
        assert settings(nsqd)[0]["max_depth"] == largest
