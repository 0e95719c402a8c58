from __future__ import annotations

import pytest

from e2e.daemon import Daemon
from penstock.tools.nsq_stat import FIELDS, main, row_text

from .utilities import http, listen, publish


@pytest.fixture(scope="module")
def daemons(daemons: list[Daemon]) -> list[Daemon]:
    for daemon in daemons:
        listen(daemon, "t")
        publish(daemon, "t", [b"x"])
    return daemons


def test_a_row_has_rates_and_sums() -> None:
    before = {"depth": 100, "message_count": 1_000}
    now = dict(zip(FIELDS, (140, 30, 5, 6, 7, 8, 1_200, 2), strict=True))
    assert row_text(now, before, 2.0) == (
        "    100      80 |     140     110      30     5     6 | "
        "      7       8         1200       2"
    )


def test_rows_of_two_nodes(daemons: list[Daemon], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--topic=t", "--channel", "c", "-interval=20ms", "--count=26"]
    assert main([*flags, *map(http, daemons)]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith("------rate")]
    assert heads == [0, 27]  # again after 25 rows
    rows = [line for line in lines if "|" in line and "depth" not in line and "total" not in line]
    assert len(rows) == 26
    assert rows[0].split() == ["0", "0", "|", "2", "2", "0", "0", "0", "|", "0", "0", "2", "0"]


def test_no_such_channel(daemons: list[Daemon], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic=t", "--channel=nope", *map(http, daemons)]) == 1
    assert capsys.readouterr().err == "nsq_stat: no nsqd has channel nope of topic t\n"
