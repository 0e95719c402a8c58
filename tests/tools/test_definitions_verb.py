"""`penstock definitions`: out of one installation and into another, of real nsqds."""

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.daemon import Daemon

from .utilities import Run, as_json, err_of, out_of

# Everything that can be chosen.
MADE = (
    "/topic/create?topic=rich&partition_num=2&extend=true",
    "/topic/partition/expand?topic=rich&partition_num=4",
    "/topic/config?topic=rich&durability=disk&max_depth=5&max_age=48h&retain_age=72h"
    "&retain_bytes=900000&trace_rate=0.25&disable_channel_auto_create=true",
    "/channel/create?topic=rich&channel=mail",
    "/channel/config?topic=rich&channel=mail&max_attempts=3&dead_letter_topic=dead&trace_rate=0.5"
    "&ack_retry_cnt=7&ack_old_than_time=24h&order=key&poison=hold",
    "/channel/skipZanTest?topic=rich&channel=mail",
    "/topic/create?topic=wide&partition_num=3",
    "/topic/config?topic=wide&ordered=true",
    "/topic/pause?topic=wide",
    "/channel/create?topic=wide&channel=none",
    "/channel/skip?topic=wide&channel=none",
    "/channel/pause?topic=wide&channel=none",
    "/topic/create?topic=orders",
    "/topic/config?topic=orders&max_depth=5",
    "/channel/create?topic=orders&channel=mail",
    "/channel/config?topic=orders&channel=mail&max_attempts=3",
    "/channel/pause?topic=orders&channel=mail",
    "/topic/create?topic=short%23ephemeral",
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    path = tmp_path_factory.mktemp("definitions")
    with ExitStack() as stack:
        found = [stack.enter_context(Daemon(path / name, "--durability=os"))
                 for name in ("one", "two", "three")]  # fmt: skip
        for target in MADE:
            found[0].post(target)
        yield [f"127.0.0.1:{daemon.http_port}" for daemon in found]


@pytest.fixture
def run(penstock: Run) -> Run:
    def call(*arguments: str, on: list[str], stdin: bytes = b"") -> tuple[int, str, str]:
        nodes = [f"--nsqd-http-address={at}" for at in on]
        return penstock("definitions", *arguments, *nodes, stdin=stdin)

    return call


def test_out_of_one_and_into_two_others(run: Run, daemons: list[str], tmp_path: Path) -> None:
    """They become the same, byte by byte."""
    path = tmp_path / "definitions.json"
    source, others = daemons[:1], daemons[1:]
    assert run("export", "--file", str(path), on=source)[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    exported = as_json(run("export", on=source))
    assert exported == json.loads(path.read_text())
    mail = {"name": "mail", "paused": True, "settings": {"max_attempts": "3"}}
    orders, rich, _ = exported["topics"]
    assert orders == {"name": "orders", "settings": {"max_depth": "5"}, "channels": [mail]}
    shape = {"partitions": "4", "hash_partitions": "2", "extended": "true"}
    assert shape.items() <= rich["settings"].items()
    planned = as_json(run("import", str(path), "--dry-run", "--json", on=others))
    kinds = [(one["kind"], one["channel"]) for one in planned["changes"]
             if one["topic"] == "orders"]  # fmt: skip
    assert kinds == [
        ("create", ""), ("set", ""), ("create", "mail"), ("set", "mail"), ("pause", "mail"),
    ]  # fmt: skip
    assert planned["done_on"] == []
    assert as_json(run("export", on=others))["topics"] == []
    assert "give --yes" in err_of(run("import", str(path), on=others), 1)
    code, out, err = run("import", str(path), "--yes", on=others)
    assert (code, err) == (0, "")
    assert f"set topic orders max_depth=5 on {', '.join(others)}\n" in out
    assert out.endswith(f"{len(planned['changes'])} changes\ndone on {', '.join(others)}\n")
    assert run("export", on=others)[1].encode() == path.read_bytes()
    assert run("import", str(path), "--yes", on=others) == (0, "nothing to change\n", "")


def test_a_node_that_is_none_of_them_is_refused(run: Run, daemons: list[str]) -> None:
    """Also beside one that is: nothing is changed anywhere then."""
    text = b'{"version":1,"topics":[{"name":"astray","channels":[{"name":"c"}]}]}'
    for other in ("127.0.0.1:1", "", daemons[2]):
        words = ["--on", daemons[0], "--on", other]
        code, out, err = run("import", "-", "--yes", *words, on=daemons[:2], stdin=text)
        assert (code, out) == (1, "")
        assert f"--on {other}: it is none of the nodes ({', '.join(daemons[:2])})" in err
    assert "astray" not in out_of(run("export", on=daemons))


def test_half_an_installation_is_none(run: Run, daemons: list[str], tmp_path: Path) -> None:
    code, out, err = run("export", on=[daemons[0], "127.0.0.1:1"])
    assert (code, out) == (1, "")
    assert err.startswith("penstock definitions: 127.0.0.1:1: no answer")
    code, _, err = run("import", str(tmp_path / "gone"), on=daemons)
    assert (code, "gone cannot be read: No such file or directory\n" in err) == (1, True)
