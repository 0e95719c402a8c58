"""What the steady run says of an archive: lag as an age, figures."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.bench.dialect import DaemonFailed
from penstock.bench.steady import Published, Second, Table, figures


def test_the_lag_is_the_age_of_the_oldest_that_is_missing() -> None:
    published = Published()
    for at_s in (1.0, 2.0, 3.0):
        published.add(10, at_s)
    assert published.count == 30
    lags = [published.lag_s(stored, 5.0) for stored in (0, 9, 10, 25, 30, 31)]
    assert lags == [4.0, 4.0, 3.0, 2.0, 0.0, 0.0]


def test_a_table_knows_how_far_it_is(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    assert table.stored() == 0
    for offsets in ([0, 1, 2], [3, 4]):
        write_deltalake(tmp_path / "table", pa.table({"offset": offsets}), mode="append")
        assert table.stored() == offsets[-1] + 1


def test_figures() -> None:
    seen = [
        Second(
            float(s),
            0.5 if s != 7 else 2.5,
            20_000 * s,
            {"nsqd": 50.0, "JVM": 100.0 if s < 5 else 200.0},
            {"open files of nsqd": 20 + s},
        )
        for s in range(1, 21)
    ]
    found = {
        figure.name.rpartition(", ")[2]: figure.value for figure in figures(seen, 20.0, 20_000)
    }
    assert found.pop("longest") == 2.5
    assert found.pop("median") == found.pop("p99") == 0.5
    assert found == {"messages published": 20_000, "at the end": 38.5}
    told = [f"{figure.name}: {figure.value} {figure.target}" for figure in figures(seen, 20.0, 1)]
    assert "memory of nsqd, 50 MB before, at the end: 50.0 flat; 1.00 x" in told
    assert "memory of JVM, 175 MB before, at the end: 200.0 flat; 1.14 x" in told
    with pytest.raises(DaemonFailed, match="too short"):
        list(figures([], 1.0, 20_000))


def test_a_line_a_minute() -> None:
    second = Second(61.2, 0.5, 9, {"nsqd": 50.0, "JVM": 1000.4}, {"files of the table": 7})
    assert second.line() == "61 s: lag 0.50 s; MB: nsqd 50, JVM 1,000; files of the table 7"
