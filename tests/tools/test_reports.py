"""`penstock node`, `penstock channel report` and sorted stats, against a real daemon and a gone
one."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import each
from e2e.daemon import Daemon
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, make
from penstock.nsqadmin.upstream import NsqdAddress
from penstock.tools import check
from penstock.tools.channel import chosen
from penstock.tools.main import VERBS, main
from penstock.tools.reports import consumers, empty_s, with_rates

from .utilities import Run, as_json

QUICK = ("--interval", "0.1")
GONE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("reports") / "data", "--durability=os") as running:
        for topic, channel, count in (("few", "all", 1), ("many", "all", 3), ("many", "none", 0)):
            running.make(topic, channel)
            if count:
                running.post(f"/mpub?topic={topic}", b"\n".join([b"x"] * count))
        running.post("/channel/empty?topic=many&channel=none")
        yield running


def test_a_node_that_is_gone_is_named_and_the_others_are_shown(run: Run, here: str) -> None:
    both = ("--nsqd-http-address", here, "--nsqd-http-address", GONE)
    code, out, _ = run("node", "list", "--json", *QUICK, *both)
    rows = json.loads(out)["nodes"]
    assert (code, rows[here]["health"]) == (1, "OK")
    assert "refused" in rows[GONE]["error"]
    assert "refused" in run("node", "list", *QUICK, *both)[1]
    code, out, _ = run("channel", "report", *QUICK, *both)
    assert (code, "refused" in out, "many/all" in out) == (1, True, True)
    code, _, err = run("node", "show", *QUICK, *both)
    assert (code, err) == (1, f"penstock node: name one; there are {here}, {GONE}\n")
    code, _, err = run("node", "show", GONE, *QUICK, *both)
    assert (code, err.startswith(f"penstock node: {GONE}: no answer")) == (1, True)


def test_channels_with_the_deepest_first(run: Run) -> None:
    code, out, err = run("channel", "report", *QUICK)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["many/all", "3"], ["few/all", "1"], ["many/none", "0"],
    ]  # fmt: skip
    limited = run("channel", "report", "--sort", "name", "--limit", "1", *QUICK)[1]
    assert limited.splitlines()[1].startswith("few/all")
    topics = as_json(run("channel", "report", "many", "--json", *QUICK))["topics"]
    assert list(topics) == ["many"]
    row = topics["many"]["channels"]["all"]
    assert (row["depth"], row["empty_seconds"], row["oldest_age_seconds"] > 0) == (3, None, True)
    assert topics["many"]["channels"]["none"]["empty_seconds"] == 0.0
    assert run("channel", "report", "gone", *QUICK)[2] == (
        "penstock channel: no such channel: gone\n"
    )
    assert run("stats", "gone")[::2] == (1, "penstock stats: no such topic: gone\n")


NAMES = {"topics", "channels", "nodes"}  # whose keys are names


def keys_of(document: Any, above: str = "") -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from [] if above in NAMES else [key]
            yield from keys_of(value, "" if above in NAMES else key)
    elif isinstance(document, list):
        for value in document:
            yield from keys_of(value)


@pytest.mark.parametrize(
    "verb",
    [
        ("stats",),
        ("topic", "list"),
        ("channel", "list", "many"),
        ("channel", "report", "few", "all", *QUICK),
        ("node", "list", *QUICK),
        ("node", "show", *QUICK),
        ("check",),
        ("context", "list"),
        ("topic", "create", "few"),
        ("pub", "few", "x"),
        ("pipeline", "list"),
    ],
    ids=lambda verb: " ".join(verb[:2]),
)
def test_the_keys_are_documented(run: Run, daemon: Daemon, verb: tuple[str, ...]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
    with daemon.client() as client:
        client.identify()
        client.sub("few", "all")
        found = set(keys_of(as_json(run(*verb, "--json"))))
    assert found
    assert {key for key in found if f"`{key}`" not in text} == set()


# --- without a daemon ---


COUNTS = {"depth": 5, "in_flight_count": 3, "deferred_count": 2, "message_count": 9,
          "client_count": 1, "paused": False}  # fmt: skip


def node_with(channel: dict[str, Any], **topic: Any) -> dict[str, Any]:
    """Its /stats."""
    row = {**COUNTS, "topic_name": "t", "channels": [{**COUNTS, **channel}], **topic}
    return {"health": "OK", "version": "1", "start_time": 1, "topics": [row]}


def one_look(time_s: float, finished: int, messages: int) -> Snapshot:
    client = {"client_id": "c", "remote_address": "r:1", "finish_count": finished}
    channel = {"channel_name": "c", "message_count": messages, "clients": [client]}
    document = node_with(channel, message_count=messages)
    node = NodeState("a", NsqdAddress("", "a", 0, 0, ""), document, time_s)
    return make(time_s, {"a": node}, (), (), Snapshot())


def test_rates_are_between_two_looks() -> None:
    before, now = one_look(10.0, 5, 100), one_look(12.0, 25, 120)
    rated = with_rates(now, before)
    (channel,) = rated.channels()
    assert (channel.in_rate, channel.finish_rate) == (10.0, 10.0)
    (client,) = consumers(rated, before)
    assert (client["out_rate"], client["finish_count"]) == (10.0, 25)
    assert chosen(rated, "in", 0) == [channel]


def test_a_channel_that_keeps_up_is_empty_now_and_not_never() -> None:
    def state(**given: Any) -> ChannelState:
        return ChannelState("t", "c", **given)

    keeps_up = state(in_flight=40, in_rate=100.0, finish_rate=100.0)
    assert empty_s(keeps_up) == 0
    assert empty_s(state(depth=20, in_rate=100.0, finish_rate=100.0)) == 0
    assert empty_s(state(depth=900, in_rate=100.0, finish_rate=100.0)) is None
    assert empty_s(state(depth=3)) is None
    assert empty_s(state(depth=900, in_rate=10.0, finish_rate=100.0)) == 10


def checked_node(**topic: Any) -> dict[str, Any]:
    return node_with({"channel_name": "c"}, **topic)


Found = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Found:
    """`penstock check` on nodes that say this, or whose error is this."""

    def call(nodes: dict[str, Any], *words: str) -> list[tuple[str, str]]:
        states = {at: NodeState(at, NsqdAddress("", at, 0, 0, "")) for at in nodes}
        for at, output in nodes.items():
            setattr(states[at], "error" if isinstance(output, str) else "document", output)
        monkeypatch.setattr(check, "look", lambda *_: make(0, states, (), (), Snapshot()))
        main(["check", *words, "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [(one["level"], one["text"]) for one in findings]

    return call


def test_bounds_of_a_channel(found: Found) -> None:
    nodes = {"a": checked_node(), "b": checked_node()}  # sums over nodes
    above = "t/c: 10 waiting, above 9"
    assert found(nodes, "--depth-warn=9") == [("WARNING", above)]
    assert found(nodes, "--depth-warn=1", "--depth-crit=9") == [("CRITICAL", above)]
    assert found(nodes, "--depth-warn=10", "--in-flight-crit=6", "--delayed-crit=4") == []
    assert found(nodes, "--in-flight-warn=5") == [("WARNING", "t/c: 6 in flight, above 5")]
    assert found(nodes, "--consumers=3") == [("CRITICAL", "t/c: 2 consumers, below 3")]


def test_findings_that_are_always_critical(found: Found) -> None:
    sick = checked_node(refusal="disk space", damaged=[{"from": 1}]) | {"health": "NOK - broken"}
    assert found({"m": "no answer", "n": sick}) == [("CRITICAL", text) for text in (
        "m: no answer",
        "n: NOK - broken",
        "n: topic t refuses publishes: disk space",
        "n: topic t has damaged data",
    )]  # fmt: skip


def test_a_topic_that_is_not_there(found: Found) -> None:
    empty = {**checked_node(), "topics": None}
    assert found({"n": empty}, "t", "c") == [("CRITICAL", "no topic t c")]


# --- exit codes, as docs/tools.md lists them ---


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
NOBODY = "--nsqd-http-address=127.0.0.1:1"


@each("verb", VERBS)
def test_an_unknown_flag(verb: str) -> None:
    assert main([verb, "--nix"]) == (3 if verb == "check" else 2)
    assert main([verb, "--help"]) == 0


@each(
    ("line", "code", "output"),
    [
        (f"stats \udcff {NOBODY}", 1, "no answer"),
        (f"channel report {NOBODY}", 1, "no answer"),
        ("node list --lookupd-http-address=127.0.0.1:1", 1, ":1: no answer: Connection refused"),
        (f"stats {NOBODY} --lookupd-http-address=127.0.0.1:1", 2, ""),
        ("stats --context=nix", 1, "there is no context 'nix'"),
        (f"topic delete t {NOBODY}", 1, "give --yes"),
        (f"topic config t x {NOBODY}", 2, ""),
        (f"channel redrive t c --count=-1 {NOBODY}", 2, "'--count'"),
        ("migrate /nix", 2, "penstock migrate"),
        ("log", 2, "log"),
        ("log verify", 2, "Missing argument"),
        ("log verify /nix", 2, "/nix"),
        ("log mend .", 2, "mend"),
        ("log dump /nix", 2, "/nix"),
        ("bundle gather --nix", 2, "--nix"),
        ("bundle gather --nsqd-http-address=http://a:b@h:1", 1, "a user and a password"),
        ("bundle gather --nsqd-http-address=/run/nsqd.sock", 1, "no socket"),
        ("bundle gather --tls-root-ca-file=/nowhere", 1, "cannot be used"),
        ("bundle analyze /nix.zip", 3, "No such file"),
        (f"bundle analyze {__file__}", 3, "no zip"),
        ("check --nsqd-http-address=a..b:1", 2, ""),  # critical
        (f"check {NOBODY} --lookupd-http-address=127.0.0.1:1", 3, ""),
        ("check --context=nix", 3, ""),
        (f"check {NOBODY} --http-secret-file=/nix", 3, ""),
        ("trace", 2, "give a message id, or --trace-id"),
        ("trace 0d1c000000000000 --trace-id=1", 2, "give a message id, or --trace-id"),
        ("trace xyz", 2, "'xyz' is neither a message id (16 hex digits) nor"),
        ("trace --trace-id=0", 2, "where N is 1 to 2^64 - 1"),
        ("trace --trace-id=4bf92f3577b34da6", 2, "or the 32 hex digits of a W3C trace id"),
        ("trace 0d1c000000000000 --since=noon", 2, "'noon' is no time, as 2026"),
        ("trace 0d1c000000000000 --data-path=/nix", 1, "/nix holds no topic _trace"),
        ("sql 'select 1' --limit 0", 2, "limit"),
        ("sql ' ; '", 2, "no statement"),
        ("sql 'select \udcff'", 1, "no UTF-8"),
        ("log dump . --count=-1", 2, "'--count'"),
        ("stats --limit=-1", 2, "'--limit'"),
        ("sql 'select 1' --lake /nothing/there", 1, "/nothing/there"),
        ("sql 'select 1' --table x", 2, "archive=/data"),
        ("sql 'select 1' --json --csv", 2, "two forms"),
        ("bench latency --count=0", 2, "'--count'"),
    ],
)
def test_wrong_use_is_said(
    line: str, code: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == code
    assert output in capsys.readouterr().err


def test_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADRESS", "127.0.0.1:1")
    assert main(["stats"]) == 2
    assert main(["bundle", "gather"]) == 2
    assert main(["check"]) == 3
    assert main(["bundle", "analyze", "x"]) == 3


def test_the_document_lists_them() -> None:
    text = DOCUMENT.read_text()
    assert re.findall(r"^\| (\d+) \| ", text, re.MULTILINE) == ["0", "1", "2", "130"]


def test_the_line_of_a_check_names_the_worst() -> None:
    found = [*(check.Finding(1, f"w{n}") for n in range(25)), check.Finding(2, "bad")]
    output = check.verdict(lambda: found)
    (line,) = output.lines
    assert line.startswith("PENSTOCK CRITICAL - bad; w0; ")
    assert line.endswith("; w18; 6 more")
    assert len(output.document["findings"]) == 26
