from __future__ import annotations

import io
import json

import pytest

from cases import each
from penstock.errors import PenstockError
from penstock.tools.ids import read
from penstock.tools.main import main

LATER_MS = 1_708_000_000_000  # 2024-02-15


def test_a_message_id() -> None:
    row = read("18a26f9ac7a69000", LATER_MS)
    assert (row["node"], row["sequence"]) == (617, 0)
    assert row["time"].startswith("2026-11-")


def test_a_long_id_has_two_readings() -> None:
    row = read("C0A8010A123418B4AAC200989680002A", LATER_MS)
    client = row["unique"]
    assert (client["ip"], client["pid"], client["hash"], client["counter"]) == (
        "192.168.1.10", 4660, "18B4AAC2", 42,
    )  # fmt: skip
    broker = read("C0A8010A00002A9F00000000075BCD15", LATER_MS)["offset"]
    assert broker == {"ip": "192.168.1.10", "port": 10911, "offset": 123456789}


@each("text", ["", "12", "g" * 16, "x" * 32, "0" * 33, "\u00e9" * 16])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(PenstockError, match="is no id: 16, 32 or 56 hex digits"):
        read(text, LATER_MS)


def test_lines_of_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("18a26f9ac7a69000\n\n18a26f9ac7a69001\n"))
    assert main(["id", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["sequence"] for row in rows] == [0, 1]


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["id", "18a26f9ac7a69000"]) == 0
    assert "node      617" in capsys.readouterr().out
    assert main(["id", "nonsense"]) == 1
    assert "penstock id: 'nonsense' is no id" in capsys.readouterr().err
