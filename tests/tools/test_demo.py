"""The demo as a user starts it: a process, rates on its output, a clean end."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from deltalake import DeltaTable

from e2e.ports import FIRST, STRIPE, STRIPES, kept_port
from penstock.errors import PenstockError
from penstock.net.listener import ListenAddress
from penstock.tools import cluster, demo, programs
from penstock.tools.programs import Program, Programs
from penstock.tools.traffic import Account
from penstock.tools.up import Keys, picture, summary

WAIT_SECONDS = 100
# Lines about a cluster come sooner.
SOON = """
import sys
from penstock.tools import main, up
up._LINE_EVERY_S = 1.0
sys.exit(main.main())
"""


def start(path: Path, tcp: int, http_port: int, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SOON, "demo", f"--data-path={path}/data"]
    command += [] if "--archive=auto" in arguments else ["--archive=off"]
    if not any(one.startswith("--admin-address") for one in arguments):
        command += ["--admin=off"]
    command += [
        f"--tcp-address=127.0.0.1:{tcp}",
        f"--http-address=127.0.0.1:{http_port}",
        *arguments,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=path
    )


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        demo = start(tmp_path, port, kept_port())
        _, err = demo.communicate(timeout=WAIT_SECONDS)
    assert demo.returncode == 1
    assert f"127.0.0.1:{port}: taken. Is another nsqd running?" in err
    assert not (tmp_path / "data").exists()


def test_rates_hints_that_work_when_pasted_and_a_clean_end(tmp_path: Path) -> None:
    """The commands that it prints for the log run as they are, from any directory."""
    path = tmp_path / "a place"
    path.mkdir()
    tcp, web = kept_port(), kept_port()
    demo = start(path, tcp, web, "--seconds=2.5", "--rate=500")
    out, err = demo.communicate(timeout=WAIT_SECONDS)
    assert (demo.returncode, err) == (0, "")
    assert re.findall(r"^  ([1-9])\. ", out, re.MULTILINE) == ["1", "2", "3"]
    assert f"http://127.0.0.1:{web}/pub?topic=greetings" in out
    for name in ("producer", "archive", "metrics"):
        totals = re.findall(rf"^{name} .* total +([\d,]+) ", out, re.MULTILINE)
        assert len(totals) >= 2
        assert int(totals[-1].replace(",", "")) > 100
    assert is_refused(tcp)
    lines = [line[5:] for line in out.splitlines() if " log " in line]
    hints = [line.partition("; ")[2] or line for line in lines]
    shown = [subprocess.check_output(hint.split("   ")[0], shell=True, cwd="/") for hint in hints]
    assert len(shown) == 2
    assert b'"number":1,' in shown[0]
    assert "every message and channel stays in" in out
    deletes = next(line for line in out.splitlines() if line.endswith("deletes them"))
    subprocess.run(deletes.partition("   deletes")[0], shell=True, cwd="/", check=True)
    assert not (path / "data").exists()


def test_a_killed_daemon_is_noticed(tmp_path: Path) -> None:
    demo = start(tmp_path, kept_port(), kept_port())
    assert demo.stdout is not None
    pid = 0
    for line in demo.stdout:
        found = re.search(r"process (\d+)\.", line)
        pid = int(found[1]) if found else pid
        if line.startswith("metrics"):
            break
    subprocess.run(["kill", "-9", str(pid)], check=True)
    _, err = demo.communicate(timeout=WAIT_SECONDS)
    assert demo.returncode == 1
    assert "the demo stops: nsqd ended with code -9\n" in err


def test_messages_are_archived_beside_the_traffic(tmp_path: Path) -> None:
    lacks = demo.missing_spark()
    if lacks:
        pytest.skip(lacks)
    tcp, web = kept_port(), kept_port()
    running = start(tmp_path, tcp, web, "--archive=auto", "--rate=500", "--seconds=200")
    assert running.stdout is not None
    archived = ""
    for line in running.stdout:
        if re.search(r"^table +[1-9][\d,]* rows, ", line):
            archived = line
            break
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=WAIT_SECONDS)
    assert (running.returncode, err) == (0, "")
    assert archived
    table = DeltaTable(str(tmp_path / "data/lake/messages"))
    assert set(table.to_pyarrow_table(columns=["topic"])["topic"].to_pylist()) == {"demo"}


def test_without_java_the_demo_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lacks = demo.missing_spark()
    assert "Java 17 or newer" in lacks
    here = [ListenAddress("127.0.0.1", port, "") for port in (4150, 4151, 4171)]
    daemons = demo.Demo(Path("data"), here, lacks_admin="off", lacks_spark=lacks)
    assert "No archive in a Delta table: JAVA_HOME" in daemons.intro()


async def test_a_daemon_is_waited_for_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "STILL_STARTING_S", 0.1)
    ready, never = tmp_path / "ready", asyncio.Event()
    late = f"import pathlib, time; time.sleep(0.5); pathlib.Path('{ready}').touch(); time.sleep(60)"
    daemons = Programs([Program("nsqd", [sys.executable, "-c", late], tmp_path / "said")])
    daemons.start()
    assert await daemons.until_ready(never, ready.exists, 60)
    daemons.end("k")
    assert "still starting, since" in capsys.readouterr().out
    ready.unlink()
    ends = Program("nsqd", [sys.executable, "-c", "raise SystemExit('why')"], tmp_path / "words")
    daemons = Programs([ends])
    daemons.start()
    with pytest.raises(PenstockError, match="nsqd ended with code 1:\nwhy"):
        await daemons.until_ready(never, ready.exists, 60)


def test_the_browser_is_sent_to_what_answers_and_a_signal_stops_everything(tmp_path: Path) -> None:
    tcp, port = kept_port(), kept_port()
    running = start(tmp_path, tcp, kept_port(), f"--admin-address=127.0.0.1:{port}")
    assert running.stdout is not None
    for line in running.stdout:
        if "in a browser" in line:
            break
    with urlopen(f"http://127.0.0.1:{port}/ping") as answer:
        assert answer.read() == b"OK"
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=WAIT_SECONDS)
    assert (running.returncode, err) == (0, "")
    assert is_refused(tcp)
    assert is_refused(port)


# --- `penstock up` ---


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
    where = {"host": "h", "http_port": 1}
    nodes = [{"node": 1, "state": "active", "alive": True, "linked": True, **where},
             {"node": 2, "state": "active", "alive": False, "linked": False}]  # fmt: skip
    return {"cluster": {"name": "up"}, "node": node, "trouble": "", "nodes": nodes,
            "partitions": [row]}  # fmt: skip


def test_the_table() -> None:
    found = cluster.merge([answer(1)], {})
    assert picture({1: "running", 2: "killed"}, found, "lost 0") == [
        "NODE  STATE    LEADS  IN SYNC  LINKED TO",
        "1     running      1        1          -",
        "2     killed       0        0          -",
        "",
        "PARTITION  LEADER  EPOCH  IN SYNC             STATE  MESSAGES",
        "demo/0          1      4        1  under-replicated        99",
        "",
        "lost 0",
    ]
    assert picture({1: "killed"}, None, "")[1:4] == [
        "1     killed      -        -          -", "", "no node answers GET /cluster",
    ]  # fmt: skip
    assert summary({1: "running"}, found, "lost 0", 42.0) == (
        "[ 42 s] nodes 1:running  leaders 0:1  not in sync 0:2  lost 0"
    )


def free_block() -> int:
    """Of a port below 400 that nothing listens on."""
    for first in range(FIRST + STRIPES * STRIPE - 500, FIRST, -STRIPE):
        ports = [first + 100 * node + port for node in range(3) for port in range(50, 81)]
        with contextlib.suppress(PenstockError):
            programs.check_free([ListenAddress("127.0.0.1", port, "") for port in ports], "")
            return first
    raise OSError("no free block of ports")


def test_a_killed_leader_loses_nothing() -> None:
    """Two nodes go, one after the other, and come back; every message that got an OK arrives."""
    up = subprocess.Popen(
        [sys.executable, "-c", SOON, "up", "--admin=off", "--rate=50",
         f"--first-port={free_block()}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    timer = threading.Timer(60, up.kill)
    timer.start()
    assert up.stdin is not None
    assert up.stdout is not None
    steps = iter(["k1", "", "r", "s2", "", "rq"])
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
