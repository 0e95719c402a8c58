"""`penstock channel messages`, `finish` and `requeue` against a real daemon."""

from __future__ import annotations

import json

from e2e.daemon import Daemon
from e2e.lookupd import eventually

from .utilities import Run


def test_a_scheduled_message_is_listed_and_cancelled(run: Run, daemon: Daemon) -> None:
    assert run("topic", "create", "plan")[0] == 0
    assert run("channel", "create", "plan", "a")[0] == 0
    assert run("channel", "pause", "plan", "a")[0] == 0
    daemon.post("/pub?topic=plan", b"now")
    for _ in range(3):
        daemon.post("/pub?topic=plan&defer=3000000", b"later")
    first, second, third = run("channel", "messages", "plan", "a")[1].splitlines()
    assert "  offset 1  attempts 0  due in 49m" in first
    id = first.split()[1]
    assert f"{id} finished" in run("channel", "finish", "plan", "a", id)[1]
    code, _, err = run("channel", "finish", "plan", "a", id)
    assert (code, "MESSAGE_NOT_FOUND" in err) == (1, True)
    id = second.split()[1]
    assert f"{id} requeued" in run("channel", "requeue", "plan", "a", id)[1]
    (row,) = run("channel", "messages", "plan", "a", "--state", "requeued")[1].splitlines()
    assert id in row
    (left,) = json.loads(run("channel", "messages", "plan", "a", "--json")[1])["nodes"].values()
    assert [one["id"] for one in left["messages"]] == [third.split()[1]]


def test_a_dead_letter_says_how_its_last_attempt_ended(run: Run, daemon: Daemon) -> None:
    daemon.post("/topic/create?topic=late")
    daemon.post("/channel/create?topic=late&channel=a")
    daemon.post("/channel/config?topic=late&channel=a&max_attempts=1")
    daemon.post("/pub?topic=late", b"x")
    with daemon.client() as client:
        client.identify(msg_timeout=1000)
        client.sub("late", "a")
        client.rdy(1)
        assert client.message() is not None
        eventually(lambda: run("channel", "messages", "late", "a", "--state=dead")[1] != "")
    (row,) = run("channel", "messages", "late", "a", "--state=dead")[1].splitlines()
    assert row.endswith("attempts 1  timed out")
