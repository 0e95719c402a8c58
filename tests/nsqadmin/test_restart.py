"""nsqadmin killed, again and again, while it writes: users, sessions, charts and the audit log
stay, and nothing that was answered is missing."""

import sqlite3
import subprocess
import sys
from pathlib import Path

from penstock.nsqadmin.history import FIELDS, History
from penstock.nsqadmin.store import Store

ROUNDS = 12
DAY_S = 86_400.0

# Writes as fast as it can, and says after each entry that it is written.
_WRITER = """
import itertools, sys
from pathlib import Path
from penstock.nsqadmin.history import History
from penstock.nsqadmin.snapshot import Snapshot, TopicState
from penstock.nsqadmin.store import Store
path, start = Path(sys.argv[1]), int(sys.argv[2])
store, history = Store(path), History(path, 86_400.0)
for number in itertools.count(start):
    store.begin("ann", "session", "::1", [("pause_topic", str(number))], "x" * 1000, "ok")
    topics = {f"t{one}": TopicState(f"t{one}", in_rate=number) for one in range(20)}
    history.take(Snapshot(60.0 * (1_000_000 + number), topics=topics))
    print(number, flush=True)
"""


def is_whole(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()


def test_a_kill_in_the_midst_of_writing_leaves_whole_files(tmp_path: Path) -> None:
    """The writer is killed right after some answer, anywhere in what it does next."""
    written = -1
    for number in range(ROUNDS):
        command = [sys.executable, "-c", _WRITER, str(tmp_path), str(written + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(5 + 3 * number):
                written = int(writer.stdout.readline())
            writer.kill()
            left = writer.stdout.read().split("\n")[:-1]
            written = max([written, *map(int, left)])
        assert is_whole(tmp_path / "admin.db")
        assert is_whole(tmp_path / "history.db")
        store = Store(tmp_path)
        targets = [int(one.target) for one in store.audit(count=10_000)][::-1]
        store.close()
        # What was answered is there; one more may be, whose answer did not come through.
        assert targets[: written + 1] == list(range(written + 1))
        assert len(targets) <= written + 2
        written = targets[-1]
    history = History(tmp_path, DAY_S)
    end_s = 60.0 * (1_000_000 + written)
    samples = history.minutes("t7", end_s - 60 * 5, end_s)
    rates = [one.values[FIELDS.index("in_rate")] for one in samples if one.values]
    history.close()
    assert rates == sorted(rates)
    assert rates[-1] >= written - 3  # charts may lose their last minutes, and nothing else
