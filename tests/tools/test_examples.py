"""The examples of the help texts do what they say: run against a real daemon, each from the same
beginning. Left out is what measures, starts or stops daemons, needs Spark, or waits for messages.
"""

import io
import json
import shlex
import time
from pathlib import Path

import pytest

from e2e.daemon import Daemon
from penstock.tools import contexts
from penstock.tools.contexts import Context
from penstock.tools.main import main
from tools.parsers import all_verbs, examples_of

VERBS = {"admin", "channel", "check", "completion", "context", "definitions", "drain",
         "id", "node", "pub", "stats", "topic"}  # fmt: skip


SOME_ID = "18a2000000001000"  # of a deferred message, in the examples
CHANGES = {"channel", "definitions", "topic"}  # what they leave behind is not where others begin


EXAMPLES = [
    example
    for found in all_verbs()
    if found.words[0] in VERBS
    for example in examples_of(found.command.epilog or "")
    if ("--watch" not in example or "--count" in example) and "drain --nsqd" not in example
]


def deferred_id(daemon: Daemon) -> str:
    where = "topic=orders&channel=billing&state=deferred"
    found = json.loads(daemon.http("GET", f"/channel/messages?{where}")[1])
    id: str = found["messages"][0]["id"]
    return id


def make_topic(daemon: Daemon) -> None:
    daemon.http("POST", "/topic/delete?topic=orders")
    daemon.make("orders", "billing")
    daemon.post(
        "/channel/config?topic=orders&channel=billing&max_attempts=3&dead_letter_topic=dead"
    )
    daemon.post("/pub?topic=orders", b"x")
    daemon.post("/pub?topic=orders&defer=3000000", b"later")


@pytest.fixture(autouse=True)
def beginning(
    no_contexts: None,
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """A topic with a channel that has dead letters, contexts, a file with definitions."""
    changes = request.node.name.partition("[penstock ")[2].split(" ")[0] in CHANGES
    if daemon.http("GET", "/topic/config?topic=orders")[0] != 200 or changes:
        make_topic(daemon)
    here = f"127.0.0.1:{daemon.http_port}"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", here)
    with contexts.changed() as found:
        for name in ("prod", "test"):
            found.put(name, Context(nsqd_http_address=(here,)))
            found.select(name)
    monkeypatch.chdir(tmp_path)
    Path("definitions.json").write_text('{"version":1,"topics":[{"name":"orders"}]}')
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.01)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"long enough for a password\n")))


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_runs(example: str, daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(example.replace("127.0.0.1:4151", f"127.0.0.1:{daemon.http_port}"))
    if "--header" in words:
        assert main(["topic", "extend", words[2]]) == 0
    if words[1] == "admin" and words[2] != "put-user":  # it is there, and has a user
        assert main(["admin", "put-user", "ann", "--password-stdin"]) == 0
    if words[1:3] == ["admin", "remove-token"]:
        assert main(["admin", "put-token", words[3]]) == 0
    if SOME_ID in words:
        words[words.index(SOME_ID)] = deferred_id(daemon)
    code = main(words[1:])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert out or err


def test_most_verbs_are_tried() -> None:
    assert len(EXAMPLES) > 50
    assert {example.split()[1] for example in EXAMPLES} == VERBS
