"""RocketMQ-style ids: the published vectors, months and zones, clocks that step, threads."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv4Address, ip_address
from zoneinfo import ZoneInfo

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.ids import unique
from penstock.ids.unique import UniqueIds
from penstock.limits import MS
from sim.clock import FakeClock

HASH = 0x18B4AAC2
DAY_MS = 86_400_000
NINE_EAST = timezone(timedelta(hours=9))
HOST = IPv4Address("192.168.1.10")

# ip, pid given, pid kept, span ms, counter, id
MADE = [
    ("192.168.1.10", 4660, 4660, 10_000_000, 42, "C0A8010A123418B4AAC200989680002A"),
    ("192.168.1.10", 70000, 4464, 0, 65535, "C0A8010A117018B4AAC200000000FFFF"),
    ("192.168.1.10", 1, 1, 26 * DAY_MS, 65535, "C0A8010A000118B4AAC285E55800FFFF"),
    ("2001:db8::1", 4660, 4660, 10_000_000, 42,
     "20010DB8000000000000000000000001123418B4AAC200989680002A"),
]  # fmt: skip

# id, ip, pid, span ms; all with counter 0, found in RocketMQ's tests and documents
REAL = [
    ("AC1415116D1418B4AAC217FE1B4E0000", "172.20.21.17", 27924, 402_529_102),
    ("0A42333A0DC818B4AAC246C290FD0000", "10.66.51.58", 3528, 1_187_156_221),
]


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1000


def clock_at(now_ms: int) -> FakeClock:
    return FakeClock(now_ms * MS)


def maker(clock: FakeClock, zone: timezone | ZoneInfo = UTC) -> UniqueIds:
    return UniqueIds(HOST, 4660, HASH, clock, zone)


@each(("ip", "pid", "kept", "span_ms", "counter", "id"), MADE)
def test_vectors_made(ip: str, pid: int, kept: int, span_ms: int, counter: int, id: str) -> None:
    address = ip_address(ip)
    assert unique.make(address, pid, HASH, span_ms, counter) == id
    signed = span_ms - (1 << 32) if span_ms >= 1 << 31 else span_ms
    assert unique.make(address, pid, HASH, signed, counter) == id
    assert unique.decode(id) == (address, kept, HASH, span_ms, counter)
    assert unique.decode(id.lower()) == unique.decode(id)


@each(("id", "ip", "pid", "span_ms"), REAL)
def test_vectors_found(id: str, ip: str, pid: int, span_ms: int) -> None:
    parts = unique.decode(id)
    assert parts == (IPv4Address(ip), pid, HASH, span_ms, 0)
    assert parts.ip_text == ip
    assert unique.make(parts.ip, pid, HASH, span_ms, 0) == id


@each("wrong", ["", "C0A8", "G" * 32, "0" * 31, "0" * 33, " " * 32, "0 " * 16])
def test_invalid_ids(wrong: str) -> None:
    with pytest.raises(ConfigError, match="32 or 56 hex digits"):
        unique.decode(wrong)
    with pytest.raises(ConfigError):
        unique.decode_offset_id(wrong)


def test_a_time_that_would_lie_ahead_is_last_months() -> None:
    parts = unique.decode(unique.make(HOST, 1, HASH, 26 * DAY_MS, 0))
    assert unique.time_ms(parts, at(2024, 3, 5), UTC) == at(2024, 2, 27)
    assert unique.time_ms(parts, at(2024, 3, 28), UTC) == at(2024, 3, 27)
    assert unique.time_ms(parts, at(2024, 1, 5), UTC) == at(2023, 12, 27)


@each(
    ("zone", "now_ms", "start_ms", "next_ms"),
    [
        (UTC, at(2024, 2, 29, 23, 59), at(2024, 2, 1), at(2024, 3, 1)),
        (UTC, at(2024, 12, 31), at(2024, 12, 1), at(2025, 1, 1)),
        (NINE_EAST, at(2024, 1, 31, 15), at(2024, 1, 31, 15), at(2024, 2, 29, 15)),
        (NINE_EAST, at(2024, 1, 31, 14, 59), at(2023, 12, 31, 15), at(2024, 1, 31, 15)),
        # The clocks change within the month: its ends have different offsets.
        (ZoneInfo("Europe/Berlin"), at(2024, 3, 10), at(2024, 2, 29, 23), at(2024, 3, 31, 22)),
        (ZoneInfo("Europe/Berlin"), at(2024, 10, 27, 1), at(2024, 9, 30, 22), at(2024, 10, 31, 23)),
    ],
)
def test_months_in_zones(
    zone: timezone | ZoneInfo, now_ms: int, start_ms: int, next_ms: int
) -> None:
    assert unique.month_start_ms(now_ms, zone) == start_ms
    assert unique.month_start_ms(start_ms + 32 * DAY_MS, zone) == next_ms


def test_months_roll_over_where_the_maker_lives() -> None:
    clock = clock_at(at(2024, 1, 31, 14, 59))
    ids = maker(clock, NINE_EAST)
    assert unique.decode(ids.next()).span_ms == 31 * DAY_MS - 60_000
    clock.wall_step_ns += 60_000 * MS
    assert unique.decode(ids.next()).span_ms == 0


@pytest.mark.parametrize(
    ("back_ms", "span_ms"),
    [(1, 0), (999_999, 0), (1_000_000, (1 << 32) - 1_000_000), (2_000_000, (1 << 32) - 2_000_000)],
)
def test_a_clock_that_steps_back_over_the_first(back_ms: int, span_ms: int) -> None:
    clock = clock_at(at(2024, 3, 1))
    ids = maker(clock)
    clock.wall_step_ns -= back_ms * MS
    assert unique.decode(ids.next()).span_ms == span_ms


def test_threads_get_different_ids() -> None:
    ids = maker(clock_at(at(2024, 2, 1)))

    def some(_: int) -> list[str]:
        return [ids.next() for _ in range(2000)]

    with ThreadPoolExecutor(8) as pool:
        made = [id for part in pool.map(some, range(16)) for id in part]
    assert len(set(made)) == 32_000


@each(
    ("found", "chosen"),
    [
        (["127.0.0.1", "10.0.0.1", "8.8.8.8"], "8.8.8.8"),
        (["10.0.0.1", "2a00::1", "8.8.8.8"], "2a00::1"),
        (["127.0.0.1", "172.16.0.1", "192.168.0.1"], "172.16.0.1"),
        (["fe80::1", "::1", "127.0.0.1"], "127.0.0.1"),
        (["172.32.0.1"], "172.32.0.1"),
        (["fe80::1", "::"], "1.2.3.4"),
        ([], "1.2.3.4"),
    ],
)
def test_which_address_stands_in_ids(found: list[str], chosen: str) -> None:
    clock_ms = (7 << 32) + int(IPv4Address("1.2.3.4"))
    assert unique.choose_ip(map(ip_address, found), clock_ms) == ip_address(chosen)


OFFSETS = [
    ("C0A8010A00002A9F00000000075BCD15", "192.168.1.10", 10911, 123456789),
    ("0A42333A00002A9F000000000134F1F5", "10.66.51.58", 10911, 20247029),
    ("7F000001000004D20000000000000066", "127.0.0.1", 1234, 102),
]


@each(("id", "ip", "port", "offset"), OFFSETS)
def test_offset_ids(id: str, ip: str, port: int, offset: int) -> None:
    assert unique.decode_offset_id(id) == (IPv4Address(ip), port, offset)
