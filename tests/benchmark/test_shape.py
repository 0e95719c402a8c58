"""The units of shaped scenarios are what the protocol says, and all of one size."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest

from bench.dialect import Unit
from bench.passes import Measure
from bench.report import Row, document
from bench.scenarios import BY_NAME, SCENARIOS
from bench.shape import PLAIN, Shape
from bench.v2 import ext_unit

BODY_BYTES = 100


def members_of(unit: Unit) -> list[dict[str, str]]:
    """Read each command as a daemon would; the members of every message, in order."""
    size = len(unit.data) // unit.count
    found = []
    for start in range(0, len(unit.data), size):
        line, _, rest = unit.data[start : start + size].partition(b"\n")
        if line == b"MPUB_EXT t":
            total, count = struct.unpack(">II", rest[:8])
            assert total == len(rest) - 4
            assert count == unit.messages
            rest = rest[8:]
        else:
            assert line == b"PUB_EXT t"
        for _ in range(unit.messages):
            length, ext_length = struct.unpack(">IH", rest[:6])
            found.append(json.loads(rest[6 : 6 + ext_length]))
            assert length - 2 - ext_length == BODY_BYTES
            rest = rest[4 + length :]
        assert not rest
    return found


@pytest.mark.parametrize("batch", [1, 200])
def test_every_key_has_its_turn(batch: int) -> None:
    unit = ext_unit("t", BODY_BYTES, batch, Shape(keys=1000))
    assert len(unit.data) % unit.count == 0
    keys = [members["key"] for members in members_of(unit)]
    assert len(set(keys)) == len(keys) == 1000


@pytest.mark.parametrize("batch", [1, 200])
def test_stamps_go_to_the_bodies(batch: int) -> None:
    unit = ext_unit("t", BODY_BYTES, batch, Shape(keys=300, headers=True, tagged=True))
    size = len(unit.data) // unit.count
    for number in range(unit.count):
        for index in range(unit.messages):
            at = number * size + unit.stamp_first + index * unit.stamp_stride
            assert unit.data[at : at + 8] == bytes(8)
            assert unit.data[at - 1 : at] == b"}"


def test_what_is_compared_stands_before_it() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    for scenario in SCENARIOS:
        assert (scenario.shape == PLAIN) == (not scenario.beside)
        if scenario.beside:
            assert names.index(scenario.beside) < names.index(scenario.name)


def test_the_cost_beside_the_plainer_scenario_is_reported() -> None:
    def row(name: str, cpu_ns: int, daemon: str = "one") -> Row:
        measure = Measure(messages=1000, seconds=1.0, cpu_ns=cpu_ns)
        return Row(BY_NAME[name], 200, daemon, [measure])

    other = replace(row("mpub", 900_000), daemon="two")
    rows = [row("mpub", 300_000), other, row("mpub-8p", 330_000)]
    results = document(rows, {})["results"]
    assert "beside" not in results[0]
    assert results[2]["beside"] == "mpub"
    assert results[2]["beside_cpu_ratio"] == pytest.approx(1.1)
