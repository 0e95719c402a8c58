"""What the steady run says of an archive: lag as an age, memory of a family, figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.bench.dialect import DaemonFailed
from penstock.bench.steady import Published, Second, Table, figures, rss_mb


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


def test_memory_counts_what_was_started(tmp_path: Path) -> None:
    code = "import sys; held = bytearray(b'x' * 50_000_000); print(flush=True); sys.stdin.read()"
    before_mb = rss_mb(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert rss_mb(process.pid) > 50
        assert rss_mb(os.getpid()) > before_mb + 50
        process.communicate()


def test_figures() -> None:
    seen = [Second(float(s), 0.5 if s != 7 else 2.5, 100.0 if s < 4 else 200.0) for s in range(10)]
    found = list(figures(seen, 10.0, 20_000))
    assert [round(figure.value, 2) for figure in found] == [2.5, 0.5, 200.0, 2.0]
    with pytest.raises(DaemonFailed, match="too short"):
        list(figures([], 1.0, 20_000))
