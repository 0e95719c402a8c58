"""`penstock definitions`: out of one installation and into another, of real nsqds."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from e2e.daemon import Daemon

from .utilities import Run, as_json, err_of


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    path = tmp_path_factory.mktemp("definitions")
    with (
        Daemon(path / "one", "--durability=os") as one,
        Daemon(path / "two", "--durability=os") as two,
        Daemon(path / "three", "--durability=os") as three,
    ):
        one.post("/topic/create?topic=orders")
        one.post("/topic/config?topic=orders&max_depth=5")
        one.post("/channel/create?topic=orders&channel=mail")
        one.post("/channel/config?topic=orders&channel=mail&max_attempts=3")
        one.post("/channel/pause?topic=orders&channel=mail")
        one.post("/topic/create?topic=short%23ephemeral")
        yield [f"127.0.0.1:{daemon.http_port}" for daemon in (one, two, three)]


@pytest.fixture
def run(penstock: Run) -> Run:
    def call(*arguments: str, on: list[str], stdin: bytes = b"") -> tuple[int, str, str]:
        nodes = [f"--nsqd-http-address={at}" for at in on]
        return penstock("definitions", *arguments, *nodes, stdin=stdin)

    return call


def test_out_of_one_and_into_two_others(run: Run, daemons: list[str], tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    source, others = daemons[:1], daemons[1:]
    assert run("export", "--file", str(path), on=source)[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    exported = as_json(run("export", on=source))
    assert exported == json.loads(path.read_text())
    mail = {"name": "mail", "paused": True, "settings": {"max_attempts": "3"}}
    assert exported["topics"] == [
        {"name": "orders", "settings": {"max_depth": "5"}, "channels": [mail]}
    ]
    planned = as_json(run("import", str(path), "--dry-run", "--json", on=others))
    kinds = [(change["kind"], change["channel"]) for change in planned["changes"]]
    assert kinds == [
        ("create", ""), ("set", ""), ("create", "mail"), ("set", "mail"), ("pause", "mail"),
    ]  # fmt: skip
    assert planned["done_on"] == []
    assert as_json(run("export", on=others))["topics"] == []
    assert "give --yes" in err_of(run("import", str(path), on=others), 1)
    code, out, err = run("import", str(path), "--yes", on=others)
    assert (code, err) == (0, "")
    assert f"set topic orders max_depth=5 on {', '.join(others)}\n" in out
    assert out.endswith(f"5 changes\ndone on {', '.join(others)}\n")
    assert as_json(run("export", on=others)) == exported
    assert run("import", str(path), "--yes", on=others) == (0, "nothing to change\n", "")


def test_an_empty_installation_becomes_the_same(
    run: Run, tmp_path: Path, daemons: list[str]
) -> None:
    """Everything that can be chosen, byte by byte."""
    source, path = Daemon(tmp_path / "rich"), tmp_path / "rich.json"
    with source, Daemon(tmp_path / "empty") as empty:
        source.post("/topic/create?topic=rich&partition_num=2&extend=true")
        source.post("/topic/partition/expand?topic=rich&partition_num=4")
        source.post("/topic/create?topic=wide&partition_num=3")
        chosen = ("durability=disk&max_depth=5&max_age=48h&retain_age=72h&retain_bytes=900000"
                  "&trace_rate=0.25&disable_channel_auto_create=true")  # fmt: skip
        source.post(f"/topic/config?topic=rich&{chosen}")
        source.post("/topic/config?topic=wide&ordered=true")
        source.post("/topic/pause?topic=wide")
        source.post("/channel/create?topic=rich&channel=mail")
        chosen = ("max_attempts=3&dead_letter_topic=dead&trace_rate=0.5&ack_retry_cnt=7"
                  "&ack_old_than_time=24h&order=key&poison=hold")  # fmt: skip
        source.post(f"/channel/config?topic=rich&channel=mail&{chosen}")
        source.post("/channel/skipZanTest?topic=rich&channel=mail")
        source.post("/channel/create?topic=wide&channel=none")
        source.post("/channel/skip?topic=wide&channel=none")
        source.post("/channel/pause?topic=wide&channel=none")
        here, there = f"127.0.0.1:{source.http_port}", f"127.0.0.1:{empty.http_port}"
        text = run("export", "--file", str(path), on=[here])
        assert text[0] == 0
        rich = as_json(run("export", on=[here]))["topics"][0]
        assert {name: rich["settings"][name] for name in ("partitions", "extended")} == {
            "partitions": "4", "extended": "true",
        }  # fmt: skip
        assert rich["settings"]["hash_partitions"] == "2"
        assert run("import", str(path), "--yes", on=[there])[0::2] == (0, "")
        assert run("export", on=[there])[1].encode() == path.read_bytes()
        assert run("import", str(path), "--yes", on=[there])[1] == "nothing to change\n"


def is_there(topic: str, node: str) -> bool:
    with urlopen(f"http://{node}/stats?format=json&topic={topic}") as answer:
        found = json.loads(answer.read())["topics"] or ()
    return [one["channel_name"] for row in found for one in row["channels"]] == ["c"]


def test_a_node_that_is_none_of_them_is_refused(run: Run, daemons: list[str]) -> None:
    """Also beside one that is: nothing is changed anywhere then."""
    text = b'{"version":1,"topics":[{"name":"astray","channels":[{"name":"c"}]}]}'
    for other in ("127.0.0.1:1", "", daemons[2]):
        words = ["--on", daemons[0], "--on", other]
        code, out, err = run("import", "-", "--yes", *words, on=daemons[:2], stdin=text)
        assert (code, out) == (1, "")
        assert f"--on {other}: it is none of the nodes ({', '.join(daemons[:2])})" in err
    assert not any(is_there("astray", at) for at in daemons)


def test_half_an_installation_is_none(run: Run, daemons: list[str], tmp_path: Path) -> None:
    code, out, err = run("export", on=[daemons[0], "127.0.0.1:1"])
    assert (code, out) == (1, "")
    assert err.startswith("penstock definitions: 127.0.0.1:1: no answer")
    code, _, err = run("import", str(tmp_path / "gone"), on=daemons)
    assert (code, "gone cannot be read: No such file or directory\n" in err) == (1, True)
