"""What the tools tell of a topic with several partitions, most of it in one of them, and of a
channel that lags there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd.skewed import COUNTS, HEAVY, lagging, skewed
from nsqd.world import Running
from penstock.tools.main import main
from penstock.tools.topic import conceded

from .utilities import Run, as_json, err_of, out_of

QUICK = ("--interval", "0.1")
ALL = sum(COUNTS)


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        lagging(running)
        running.request("POST", "/channel/create?topic=one&channel=c")
        running.request("POST", "/pub?topic=one", b"alone")
        yield running


@pytest.fixture
def here(nsqd: Running) -> str:
    return f"127.0.0.1:{nsqd.daemon.http_address.port}"


def test_stats_for_programs_have_rows_by_partition(run: Run, here: str) -> None:
    topics = as_json(run("stats", "--json"))["topics"]
    rows = topics["t"]["partitions"]
    assert [(one["node"], one["partition"], one["message_count"]) for one in rows] == [
        (here, number, count) for number, count in enumerate(COUNTS)
    ]
    waits = [one["depth"] for one in topics["t"]["channels"]["slow"]["partitions"]]
    assert waits == [COUNTS[HEAVY] if number == HEAVY else 0 for number in range(len(COUNTS))]
    assert "partitions" not in topics["one"]
    assert "partitions" not in topics["one"]["channels"]["c"]


def lines(result: tuple[int, str, str]) -> list[list[str]]:
    code, out, err = result
    assert (code, err) == (0, "")
    return [line.split() for line in out.splitlines()]


# --- topic show ---


def test_a_topic_and_what_waits_in_each_partition(run: Run, here: str) -> None:
    heads, *rows, total = lines(run("topic", "show", "t", *QUICK))
    assert heads[-2:] == ["quick", "slow"]
    assert [row[:4] for row in rows] == [
        [str(n), here, str(count), f"0-{count}"] for n, count in enumerate(COUNTS)
    ]
    assert [row[-2:] for row in rows] == [["0", "0"], ["0", "36"], ["0", "0"]]
    assert (total[0], total[1], total[-2:]) == ("total", str(ALL), ["0", "36"])


def test_a_topic_with_one_partition_shows_its_number(run: Run, here: str) -> None:
    heads, row = lines(run("topic", "show", "one", *QUICK))
    assert (heads[0], row[:2]) == ("PARTITION", ["0", here])
    code, _, err = run("topic", "show", "one", "--partition", "3", *QUICK)
    assert (code, "topic one has no partition 3" in err) == (1, True)


# --- reports and checks ---


def test_a_report_names_the_partition_that_lags(run: Run) -> None:
    _, *rows = lines(run("channel", "report", *QUICK))
    assert {row[0]: row[-2:] for row in rows}["t/slow"] == ["1:", "36"]
    assert {row[0]: row[-1] for row in rows}["t/quick"] == "-"
    assert rows[0][0] == "t/slow"
    alone = lines(run("channel", "report", "one", *QUICK))
    assert "BEHIND" not in alone[0]


def test_a_check_names_the_partition_that_has_most(run: Run) -> None:
    code, out, _ = run("check", "t", "--depth-warn", "10")
    assert (code, out) == (
        1,
        "PENSTOCK WARNING - t/slow: 36 waiting (36 in partition 1), above 10\n",
    )


def test_a_check_names_a_partition_that_refuses(tmp_path: Path, capsys: Any) -> None:
    with Running(tmp_path / "data") as nsqd:
        skewed(nsqd, "t", (1, 1))
        stop = nsqd.daemon.broker.topics["t"].leader(1).group.stop
        nsqd.call(lambda: stop("a bad disk"))
        at = f"127.0.0.1:{nsqd.daemon.http_address.port}"
        assert main(("check", "--nsqd-http-address", at)) == 2
        assert "topic t refuses publishes in partition 1: " in capsys.readouterr().out


# --- messages ---


def test_of_one_partition(run: Run) -> None:
    of_one = ("topic", "peek", "t", "--partition", "1")
    assert [row[-1] for row in lines(run(*of_one, "--count", "2"))] == ["1:34", "1:35"]
    place = lines(run(*of_one, "--offset", "34", "--count", "9"))
    assert [row[-1] for row in place] == ["1:34", "1:35"]
    code, _, err = run("topic", "peek", "t", "--offset", "0")
    assert (code, "is a position in one partition: --partition" in err) == (2, True)
    assert "topic t has no partition 9" in err_of(run("topic", "peek", "t", "--partition", "9"), 1)


def test_a_channel_is_moved_in_the_partition_that_is_named(run: Run, nsqd: Running) -> None:
    nsqd.request("POST", "/channel/create?topic=t&channel=moved")
    nsqd.request("POST", "/channel/empty?topic=t&channel=moved")
    code, out, _ = run("channel", "seek", "t", "moved", "back:4", "--partition", "1")
    assert (code, "partition 1 offset 32, 4 come again" in out) == (0, True)
    assert nsqd.channel("t", "moved")["depth"] == 4
    code, out, _ = run("channel", "seek", "t", "moved", "earliest", "--dry-run")
    assert "partition 0 offset 0, partition 1 offset 0, partition 2 offset 0, 36 would" in out
    assert "MISSING_ARG_PARTITION" in err_of(run("channel", "seek", "t", "moved", "offset:1"), 1)


def test_a_channel_is_skipped_in_the_partition_that_is_named(
    run: Run, nsqd: Running, here: str
) -> None:
    nsqd.request("POST", "/channel/create?topic=t&channel=skipped")
    nsqd.request("POST", "/channel/setoffset?topic=t&channel=skipped", b"earliest")
    before = nsqd.channel("t", "skipped")["depth"]
    of_one = ("t", "skipped", "--partition", f"{HEAVY}")
    name = f"partition {HEAVY} of channel skipped of topic t"
    assert f"skip {name} on {here}: give --yes" in err_of(run("channel", "skip", *of_one), 1)
    assert run("channel", "skip", *of_one, "--yes") == (0, f"{here}: skip {name}: done\n", "")
    shown = nsqd.channel("t", "skipped")
    assert (shown["depth"], shown["skipped_partitions"]) == (before - COUNTS[HEAVY], [HEAVY])
    assert run("channel", "unskip", *of_one)[0] == 0
    assert "skipped_partitions" not in nsqd.channel("t", "skipped")
    assert run("channel", "skip", "t", "skipped", "--yes")[0] == 0  # all of them
    assert nsqd.channel("t", "skipped")["skipped"] is True
    assert run("channel", "unskip", "t", "skipped")[0] == 0
    code, out, _ = run("channel", "unskip", "t", "skipped", "--partition", "77")
    assert (code, "E_BAD_PARTITION" in out) == (1, True)


# --- making topics of a shape from the command line, changing it, and publishing into a place ---


def test_a_topic_is_made_with_partitions_and_gets_more(nsqd: Running, run: Run) -> None:
    assert run("topic", "create", "wide", "--partitions", "3")[0] == 0
    assert run("topic", "create", "wide")[0] == 0
    assert "a node by itself" in out_of(run("topic", "create", "copied", "--replicas", "3"), 1)
    code, out, _ = run("topic", "create", "wide", "--partitions", "4")
    assert code == 1
    assert "topic wide has 3" in out
    assert run("topic", "expand", "wide", "--partitions", "5")[0] == 0
    _, shape = nsqd.ask("GET", "/topic/config?topic=wide")
    assert (shape["partitions"], shape["hash_partitions"]) == (5, 3)
    assert run("topic", "expand", "wide", "--partitions", "5", "--rehash")[0] == 0
    assert nsqd.ask("GET", "/topic/config?topic=wide")[1]["hash_partitions"] == 5


def test_headers_are_allowed_at_creation_or_later(run: Run) -> None:
    assert run("topic", "create", "headed", "--extended")[0] == 0
    run("topic", "create", "plain")
    code, out, _ = run("topic", "create", "plain", "--extended")
    assert code == 1
    assert "NOT_EXTENDED" in out
    assert run("topic", "extend", "plain")[0] == 0
    assert run("topic", "create", "plain", "--extended")[0] == 0


# --- `penstock topic concede`, at a daemon that waits for nothing, and its report ---


def test_a_node_by_itself_waits_for_nothing(run: Run) -> None:
    code, out, err = run("topic", "concede", "t", "--yes")
    assert (code, err) == (0, "")
    assert out.endswith(": nothing is waited for\n")
    found = as_json(run("topic", "concede", "t", "--partition", "1", "--json", "--yes"))
    assert [node["conceded"] for node in found["nodes"].values()] == [[]]


CONCEDED = [
    ("t", 1, "give --yes"),  # it asks first
    ("none --yes", 1, "TOPIC_NOT_FOUND"),
    ("t --partition 7 --yes", 1, "E_BAD_PARTITION"),
    ("t --partition 255 --yes", 2, "'--partition'"),
]


def test_refused_concessions(run: Run) -> None:
    for words, code, output in CONCEDED:
        found, _, err = run("topic", "concede", *words.split())
        assert (found, output in err) == (code, True), words


def test_the_report_names_the_offsets() -> None:
    found = [{"partition": 2, "from": 100, "to": 164}, {"partition": 3, "from": 7, "to": 8}]
    assert list(conceded("a:4151", {"conceded": found})) == [
        "a:4151: partition 2: offsets 100 to 163 are given up",
        "a:4151: partition 3: offset 7 is given up",
    ]
