"""`penstock stats|topic|channel|pub` against a real daemon, as a person and as a program."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cases import each
from command.test_terminal import Tty
from e2e.daemon import Daemon
from e2e.lookupd import eventually
from penstock.errors import PenstockError
from penstock.tools import nodes
from penstock.tools.ids import read
from penstock.tools.output import confirm

from .utilities import Run, as_json, err_of, http, out_of, publish, tailed


def test_the_life_of_a_topic(run: Run) -> None:
    assert run("topic", "create", "life")[0] == 0
    assert run("channel", "create", "life", "one")[0] == 0
    assert run("channel", "create", "life", "two")[0] == 0
    assert run("channel", "list", "life")[1] == "one\ntwo\n"
    assert run("channel", "pause", "life", "one")[0] == 0
    assert as_json(run("channel", "list", "life", "--json"))["channels"]["one"]["paused"] is True
    assert run("channel", "unpause", "life", "one")[0] == 0
    assert as_json(run("channel", "list", "life", "--json"))["channels"]["one"]["paused"] is False
    assert "life" in run("topic", "list")[1].split()
    assert run("channel", "delete", "life", "one", "--yes")[0] == 0
    assert run("channel", "list", "life")[1] == "two\n"
    assert run("topic", "delete", "life", "--yes")[0] == 0
    assert "life" not in run("topic", "list")[1].split()


def test_lines_of_input_are_published_in_order(run: Run, here: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(2_500)) + b"\n\nlast"
    code, out, err = run("pub", "lines", stdin=lines)
    assert (code, out) == (0, "")
    assert err == f"2,501 published to lines on {here}\n"
    run("channel", "create", "lines", "all")
    shown = as_json(run("stats", "lines", "--json"))["topics"]["lines"]
    assert shown["message_count"] == 2_501
    assert shown["channels"]["all"]["depth"] == 2_501


def test_a_line_that_is_too_large_is_refused_with_the_limit(run: Run) -> None:
    code, _, err = run("pub", "large", stdin=b"x" * (2 << 20))
    assert (code, "413 MSG_TOO_BIG: a body has at most 1048576 bytes" in err) == (1, True)
    assert "before that: 0; nothing of the rest is stored)" in err
    code, _, err = run("pub", "large", stdin=b"one\n" + b"x" * ((1 << 20) + 1))
    assert (code, "before that: 1; nothing of the rest is stored)" in err) == (1, True)


@pytest.mark.parametrize(
    "verb",
    [
        ("topic", "peek", "halves"),
        ("topic", "config", "halves", "max_depth=7"),
        ("channel", "config", "halves", "all"),
        ("channel", "redrive", "halves", "all"),
        ("channel", "seek", "halves", "all", "earliest"),
    ],
    ids=" ".join,
)
def test_a_node_that_is_away_hides_no_answer_of_the_others(
    run: Run, here: str, verb: tuple[str, ...]
) -> None:
    run("topic", "create", "halves")
    run("channel", "create", "halves", "all")
    run("pub", "halves", "x")
    both = ("--nsqd-http-address", "127.0.0.1:1", "--nsqd-http-address", here)
    code, out, err = run(*verb, *both)
    assert (code, bool(out), err.startswith("127.0.0.1:1: no answer")) == (1, True, True)
    code, out, err = run(*verb, *both, "--json")
    found = json.loads(out)["nodes"]
    assert (code, err, found["127.0.0.1:1"]["error"][:9]) == (1, "", "no answer")
    assert "error" not in found[here]


@pytest.mark.parametrize(("status", "code"), [(404, 0), (500, 1), (0, 1)])
def test_a_node_without_the_topic_is_no_failure_when_others_have_it(status: int, code: int) -> None:
    def ask(node: nodes.Node) -> str:
        if node.address == "bad:1":
            raise nodes.NodeFailed(node.address, "it says no", status)
        return "good"

    answers = nodes.ask_each([nodes.Node("bad:1"), nodes.Node("good:1")], ask)
    assert (answers.code, answers.good) == (code, {"good:1": "good"})
    with pytest.raises(nodes.NodeFailed):
        nodes.ask_each([nodes.Node("bad:1")], ask)


@pytest.mark.parametrize(("typed", "done"), [("dear\n", True), ("yes\n", False), ("", False)])
def test_a_person_types_the_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, done: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Tty(typed))
    with nullcontext() if done else pytest.raises(PenstockError, match="nothing was done"):
        confirm(False, "delete it", "dear")
    out, err = capsys.readouterr()
    assert (out, err.startswith("delete it? Type dear to do it: ")) == ("", True)


def test_a_setting_that_lets_messages_go_asks_too(run: Run) -> None:
    run("topic", "create", "kept")
    code, _, err = run("topic", "config", "kept", "max_age=1h")
    assert (code, "change max_age of kept, which may let messages go: give --yes" in err) == (
        1, True,
    )  # fmt: skip
    assert run("topic", "config", "kept", "max_age=1h", "--yes")[0] == 0
    assert run("topic", "config", "kept", "max_depth=5")[0] == 0
    finishing = ("channel", "config", "kept", "c", "ack_old_than_time=24h")
    assert "change ack_old_than_time of c, which may" in err_of(run(*finishing), 1)


def test_unknown_topics_fail_with_the_reason(run: Run) -> None:
    assert "404 TOPIC_NOT_FOUND" in out_of(run("topic", "empty", "never-made", "--yes"), 1)
    code, _, err = run("channel", "list", "never-made")
    assert (code, err) == (1, "penstock channel: no such topic: never-made\n")


def test_an_invalid_name_is_named_with_the_rule(run: Run) -> None:
    for words in (("pub", "bad name", "x"), ("topic", "create", "bad name")):
        assert "topic name 'bad name' is not valid: 1 to 64 of" in err_of(run(*words), 2)
    assert "channel name 'c c' is not valid" in err_of(run("channel", "create", "t", "c c"), 2)


def _at(node: str, result: tuple[int, str, str]) -> Any:
    return as_json(result)["nodes"][node]


def published(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    run("channel", "create", topic, "all")
    run("pub", topic, stdin=b"zero\none\ntwo\n")
    run("channel", "empty", topic, "all", "--yes")


def test_a_channel_goes_back(run: Run, here: str) -> None:
    published(run, "replayed")
    seek = ("channel", "seek", "replayed", "all")
    shown = f"{here}: offset 1, 2 would come again\n"
    assert run(*seek, "offset:1", "--dry-run") == (0, shown, "")
    assert run(*seek, "back:1") == (0, f"{here}: offset 2, 1 come again\n", "")
    code, out, err = run(*seek, "2001-01-01T00:00:00Z", "--json")
    assert err == "from 2001-01-01T00:00:00Z on\n"
    assert _at(here, (code, out, ""))["offset"] == 0
    code, _, err = run(*seek, "latest")
    assert (code, "skip 3 messages and give up 0 unfinished ones of all: give --yes" in err) == (
        1, True,
    )  # fmt: skip
    skipped = f"{here}: offset 3, 0 come again, 3 skipped\n"
    assert run(*seek, "latest", "--yes") == (0, skipped, "")
    assert _at(here, run(*seek, "earliest", "--json"))["messages_again"] == 3
    row = as_json(run("stats", "replayed", "--json"))["topics"]["replayed"]["channels"]["all"]
    assert row["depth"] == 3


def test_peeking(run: Run) -> None:
    published(run, "peeked")
    code, out, err = run("topic", "peek", "peeked")
    assert (code, err) == (0, "")
    rows = [line.split(" ") for line in out.splitlines()]
    assert [(row[0], row[3]) for row in rows] == [("0", "zero"), ("1", "one"), ("2", "two")]
    assert run("topic", "peek", "peeked", "--count", "1")[1] == out.splitlines()[2] + "\n"
    assert run("topic", "peek", "peeked", "--offset", "1", "--count", "1")[1].split()[3] == "one"
    assert run("topic", "peek", "peeked", "--id", rows[1][2])[1].split()[3] == "one"
    assert run("topic", "peek", "peeked", "--id", rows[1][2], "--count=9")[1].split()[7] == "two"
    assert run("topic", "peek", "peeked", "--time", "2001-01-01")[1] == out
    assert run("topic", "peek", "peeked", "--time", "2080-01-01")[:2] == (0, "")
    (messages,) = as_json(run("topic", "peek", "peeked", "--json"))["nodes"].values()
    assert [message["body"] for message in messages] == ["zero", "one", "two"]


@each("offset", ["3", "9"])
def test_peeking_beyond_the_end_names_the_end(run: Run, offset: str) -> None:
    run("pub", f"ends-{offset}", stdin=b"zero\none\ntwo\n")
    code, _, err = run("topic", "peek", f"ends-{offset}", "--offset", offset)
    assert (code, f"offset {offset} is beyond the end: 3" in err) == (1, True)


def test_a_message_does_not_command_the_terminal(run: Run) -> None:
    run("topic", "create", "hostile")
    run("pub", "hostile", "a\x1b[2Jb")
    assert run("topic", "peek", "hostile")[1].endswith(" a\\x1b[2Jb\n")
    (messages,) = as_json(run("topic", "peek", "hostile", "--json"))["nodes"].values()
    assert messages[0]["body"] == "a\x1b[2Jb"


LATER_MS = 1_708_000_000_000  # 2024-02-15


def test_a_long_id_has_two_readings() -> None:
    row = read("C0A8010A123418B4AAC200989680002A", LATER_MS)
    client = row["unique"]
    assert (client["ip"], client["pid"], client["hash"], client["counter"]) == (
        "192.168.1.10", 4660, "18B4AAC2", 42,
    )  # fmt: skip
    broker = read("C0A8010A00002A9F00000000075BCD15", LATER_MS)["offset"]
    assert broker == {"ip": "192.168.1.10", "port": 10911, "offset": 123456789}


@each("text", ["", "12", "g" * 16, "x" * 32, "0" * 33, "\u00e9" * 16])
def test_invalid_ids(text: str) -> None:
    with pytest.raises(PenstockError, match="is no id: 16, 32 or 56 hex digits"):
        read(text, LATER_MS)


def test_people_see_when_which_and_what(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    def both() -> None:
        publish(daemon, "seen", [b"a\x1b[2Jb\xff\xc3\xa9", b"x" * 600])

    daemon.post("/topic/create?topic=seen")
    assert tailed(daemon, "seen", both, "--count=2") == 0
    first, second = capsys.readouterr().out.splitlines()
    date, clock, message_id, body = first.split(" ")
    assert (len(date), len(clock), len(message_id), body) == (10, 12, 16, "a\\x1b[2Jb\\xff\u00e9")
    assert second.endswith("x" * 500 + "... (600 bytes)")


def test_a_drain(penstock: Run, tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--durability=os") as other:
        drain = "drain", http(other)
        other.make("t", "c")
        publish(other, "t", [b"one", b"two"])
        assert penstock(*drain, "--status")[1].startswith("off: 2 left\n")
        assert penstock(*drain)[0] == 1  # nobody is here to say yes
        code, out, _ = penstock(*drain, "--yes")
        assert (code, out.splitlines()[2].split()) == (0, ["t/c", "2", "0", "0", "0"])
        assert as_json(penstock(*drain, "--cancel", "--json"))["state"] == "off"
        other.post("/channel/empty?topic=t&channel=c")
        stopped = f"draining: 0 left\n127.0.0.1:{other.http_port} has stopped\n"
        assert penstock(*drain, "--yes", "--watch") == (0, stopped, "")
        assert other.wait() == 0
    code, _, err = penstock(*drain, "--nsqd-http-address=127.0.0.1:1", "--yes")
    assert (code, "name one node" in err) == (1, True)


# --- messages of a channel ---


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
    assert "MESSAGE_NOT_FOUND" in err_of(run("channel", "finish", "plan", "a", id), 1)
    id = second.split()[1]
    assert f"{id} requeued" in run("channel", "requeue", "plan", "a", id)[1]
    (row,) = run("channel", "messages", "plan", "a", "--state", "requeued")[1].splitlines()
    assert id in row
    (left,) = json.loads(run("channel", "messages", "plan", "a", "--json")[1])["nodes"].values()
    assert [one["id"] for one in left["messages"]] == [third.split()[1]]


def test_a_dead_letter_says_how_its_last_attempt_ended(run: Run, daemon: Daemon) -> None:
    daemon.make("late", "a")
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
