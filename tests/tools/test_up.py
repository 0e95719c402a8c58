"""`penstock up`: its keys, its account of messages, its table, and a whole cluster that is hurt."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from e2e.ports import FIRST, STRIPE, STRIPES
from penstock.net.listener import Address
from penstock.tools import cluster, programs
from penstock.tools.main import main
from penstock.tools.up import Figures, Keys, picture, summary
from penstock.tools.up_traffic import Account

FIGURES = Figures(12345, 2, 0, 3, 0.314, 42.0)


def test_a_verb_waits_for_its_node() -> None:
    keys = Keys(nodes=3)
    assert list(keys.typed("k")) == []
    assert list(keys.typed("1")) == [("k", 1)]
    assert list(keys.typed("1")) == []
    assert list(keys.typed("K2s3pr")) == [("k", 2), ("s", 3), ("r", 0)]
    assert list(keys.typed("ks4x p0q")) == [("q", 0)]  # there is no node 4, and none 0


def test_each_message_is_accounted_for() -> None:
    account = Account(10.0)
    account.answered(10.5)
    account.delivered(1)  # before its OK
    account.answered(12.0)
    assert (account.acknowledged, list(account.waiting), account.repeats) == (2, [0], 0)
    account.delivered(0)
    for number in (0, 1, 2, 2):
        account.delivered(number)
    assert (list(account.waiting), account.repeats) == ([], 3)
    assert (account.longest_s, account.pause_s(15.0)) == (1.5, 3.0)


def answer(node: int) -> dict[str, Any]:
    row = {"topic": "demo", "partition": 0, "leader": 1, "epoch": 4, "in_sync": [1],
           "min_in_sync": 1, "preferred": [2, 1], "under_replicated": True, "offline": False,
           "since_seconds": 12.0, "end_offset": 99, "committed_offset": 99}  # fmt: skip
    place = {"host": "h", "http_port": 1}
    nodes = [{"node": 1, "state": "active", "alive": True, "linked": True, **place},
             {"node": 2, "state": "active", "alive": False, "linked": False}]  # fmt: skip
    return {"cluster": {"name": "up"}, "node": node, "trouble": "", "nodes": nodes,
            "partitions": [row]}  # fmt: skip


def test_the_table() -> None:
    found = cluster.merge([answer(1)], {})
    assert picture({1: "running", 2: "killed"}, found, FIGURES) == [
        "NODE  STATE    LEADS  IN SYNC  LINKED TO",
        "1     running      1        1          -",
        "2     killed       0        0          -",
        "",
        "PARTITION  LEADER  EPOCH  IN SYNC             STATE  MESSAGES",
        "demo/0          1      4        1  under-replicated        99",
        "",
        "acknowledged 12,345   on their way 2   lost 0   repeats 3   longest pause 0.31 s",
    ]
    assert picture({1: "killed"}, None, FIGURES)[1:4] == [
        "1     killed      -        -          -", "", "nobody answers GET /cluster",
    ]  # fmt: skip
    assert summary({1: "running"}, found, FIGURES).startswith(
        "[ 42 s] nodes 1:running  leaders 0:1  not in sync 0:2  acknowledged 12,345"
    )


def free_block() -> int:
    """Of a port below 400 that nothing listens on."""
    for first in range(FIRST + STRIPES * STRIPE - 500, FIRST, -STRIPE):
        ports = [first + 100 * node + port for node in range(3) for port in range(50, 81)]
        if not programs.taken([Address("127.0.0.1", port, "") for port in ports]):
            return first
    raise OSError("no free block of ports")


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    first = free_block()
    with socket.create_server(("127.0.0.1", first + 150)):
        assert main(["up", "--nodes=2", f"--first-port={first}"]) == 1
    said = f"127.0.0.1:{first + 150}: taken; try --first-port {first + 1000}"
    assert said in capsys.readouterr().err


def test_a_killed_leader_loses_nothing() -> None:
    """Two nodes go, one after the other, and come back; every message that got an OK arrives."""
    up = subprocess.Popen(
        [sys.executable, "-m", "penstock.tools.main", "up", "--admin=off", "--rate=50",
         f"--first-port={free_block()}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    timer = threading.Timer(60, up.kill)
    timer.start()
    assert up.stdin is not None
    assert up.stdout is not None
    steps = iter(["k1", "r", "s2", "rq"])
    for line in up.stdout:
        if line.startswith("["):
            up.stdin.write(next(steps, ""))
            up.stdin.flush()
        if "node2 brought back" in line:
            break
    out, err = up.communicate()
    timer.cancel()
    assert (up.returncode, err) == (0, "")
    figures = re.search(r"acknowledged ([\d,]+) .* lost 0 .*\n.*not delivered: 0$", out, re.M)
    assert figures is not None, out
    assert int(figures[1].replace(",", "")) > 100
