"""Kill -9 of the driver in the midst of a replay: the next run goes on, and nothing comes twice.

The spots that matter are hit for certain: a proxy in front of nsqd kills the driver when the commit
of a chunk comes by, before nsqd has it, and when nsqd has done it and the answer is lost.
"""

from pathlib import Path

import pytest

from e2e.daemon import Daemon
from spark.faultproxy import Fault, FaultProxy

from .command import WAIT_S_MAX, Command
from .node import Node, in_the_log
from .test_replay import COLUMNS, archived

pytestmark = pytest.mark.timeout(900)
ROWS = {"bills": 150, "orders": 400}
CHUNK = 50


def test_the_driver_is_killed_in_the_midst(java: None, tmp_path: Path) -> None:
    table = tmp_path / "archive"
    for topic, count in ROWS.items():
        archived(table, topic, count)
    with Daemon(tmp_path / "nsqd") as daemon, FaultProxy(lambda: daemon.http_port) as proxy:

        def started() -> Command:
            flags = (f"--url={proxy.url}", f"--table={table}", "--to=again", "--name=one")
            return Command(tmp_path / "replay.stderr", "replay", *flags, f"--chunk={CHUNK}")

        stored = 0
        for answered in (False, True):
            run = started()
            assert run.wait_for_rows(2 * CHUNK), run.output()
            fault = Fault("/stage/commit", answered, lambda _, run=run: run.kill())
            proxy.fault = fault
            assert fault.hit.wait(WAIT_S_MAX), run.output()
            before, stored = stored, Node(daemon).end("again")
            assert before + 2 * CHUNK <= stored < sum(ROWS.values())
        last = started()
        assert last.finish() == 0, last.output()
        assert 0 < last.rows <= sum(ROWS.values()) - stored
        log = in_the_log(Node(daemon), "again", COLUMNS)
        found = [body.decode() for body in log.column("body").to_pylist()]
    assert len(found) == sum(ROWS.values())
    for topic, count in ROWS.items():
        of_topic = [body for body in found if body.startswith(topic)]
        assert of_topic == [f"{topic} {n}" for n in range(count)]
