"""/stats, /metrics and statsd of a topic with several partitions, one of them with most messages
and one channel that lags in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.nsqd.statsd import Lines, StatsdOptions

from .skewed import COUNTS, HEAVY, skewed
from .test_metrics import samples
from .world import Running, ok

ALL = sum(COUNTS)


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Channel `slow` has nothing of the heavy partition, `quick` has all."""
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        skewed(running, "t")
        for channel in ("quick", "slow"):
            name = f"?topic=t&channel={channel}"
            assert running.request("POST", f"/channel/create{name}").status == 200
            assert running.request("POST", f"/channel/empty{name}").status == 200
        back = f"/channel/setoffset?topic=t&channel=slow&partition={HEAVY}"
        assert running.request("POST", back, b"earliest").status == 200
        running.request("POST", "/topic/create?topic=one")
        yield running


def topic(nsqd: Running, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = nsqd.stats(f"&topic=t{query}")["topics"][0]
    return found


def test_the_topic_adds_up_its_partitions(nsqd: Running) -> None:
    row = topic(nsqd)
    parts = row["partitions"]
    assert [next(iter(part.items())) for part in parts] == [("partition", n) for n in range(3)]
    assert [part["message_count"] for part in parts] == list(COUNTS)
    assert [part["committed_end"] for part in parts] == list(COUNTS)
    for key in ("depth", "message_count", "message_bytes", "stored_bytes", "committed_end"):
        assert row[key] == sum(part[key] for part in parts), key
    assert (row["message_count"], row["start_offset"], row["damaged"]) == (ALL, 0, [])
    assert list(row)[-1] == "partitions"


def test_a_channel_says_in_which_partition_it_lags(nsqd: Running) -> None:
    quick, slow = topic(nsqd)["channels"]
    assert [part["depth"] for part in quick["partitions"]] == [0, 0, 0]
    assert [part["depth"] for part in slow["partitions"]] == [0, COUNTS[HEAVY], 0]
    assert (slow["depth"], slow["next"]) == (COUNTS[HEAVY], ALL - COUNTS[HEAVY])
    ages = [part["oldest_age_seconds"] for part in slow["partitions"]]
    assert (ages[0], ages[2]) == (None, None)
    assert ages[HEAVY] > 0
    assert slow["oldest_age_seconds"] > 0  # of its oldest anywhere


def test_with_one_there_is_nothing_below(nsqd: Running) -> None:
    row = nsqd.stats("&topic=one")["topics"][0]
    assert "partitions" not in row


@pytest.mark.parametrize("partition", range(3))
def test_one_partition_alone(nsqd: Running, partition: int) -> None:
    row = topic(nsqd, f"&partition={partition}&include_clients=false")
    assert (row["partition"], row["message_count"]) == (partition, COUNTS[partition])
    assert "partitions" not in row
    slow = row["channels"][1]
    lag = COUNTS[HEAVY] if partition == HEAVY else 0
    assert (slow["partition"], slow["depth"]) == (partition, lag)


def test_topics_that_have_it_are_left(nsqd: Running) -> None:
    def names(partition: int) -> list[str]:
        return [row["topic_name"] for row in nsqd.stats(f"&partition={partition}")["topics"]]

    assert (names(0), names(2), names(3)) == (["one", "t"], ["t"], [])
    assert names(-1) == ["one", "t"]


@pytest.mark.parametrize("text", ["x", "255", "-2"])
def test_a_partition_that_is_none(nsqd: Running, text: str) -> None:
    answer = nsqd.request("GET", f"/stats?partition={text}")
    assert answer.status == 400
    assert json.loads(answer.body)["message"].startswith(f"INVALID_ARG_PARTITION '{text}'")


def test_the_text_has_a_line_for_each(nsqd: Running) -> None:
    lines = nsqd.request("GET", "/stats?topic=t").body.decode().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("   [t "))
    assert f"msgs: {ALL} " in lines[at]
    assert [line.split()[:2] for line in lines[at + 1 : at + 4]] == [
        ["partition", str(number)] for number in range(3)
    ]
    assert lines[at + 2].endswith(f"offsets: 0-{COUNTS[HEAVY]}")
    slow = next(number for number, line in enumerate(lines) if "[slow " in line)
    assert f"depth: {COUNTS[HEAVY]}" in lines[slow + 1 + HEAVY]
    alone = nsqd.request("GET", "/stats?topic=one").body.decode()
    assert "partition" not in alone


def test_metrics_by_partition_have_names_of_their_own(nsqd: Running) -> None:
    found = samples(nsqd.request("GET", "/metrics").body.decode())
    for partition, count in enumerate(COUNTS):
        place = f'topic="t",partition="{partition}"'
        assert found[f"nsqd_topic_partition_messages_total{{{place}}}"] == count
        assert found[f"nsqd_topic_partition_end_offset{{{place}}}"] == count
    place = f'topic="t",channel="slow",partition="{HEAVY}"'
    assert found[f"nsqd_channel_partition_depth{{{place}}}"] == COUNTS[HEAVY]
    assert found[f"nsqd_channel_partition_oldest_age_seconds{{{place}}}"] > 0
    assert found['nsqd_topic_messages_total{topic="t"}'] == ALL
    assert not [name for name in found if 'topic="one"' in name and "partition" in name]


def test_statsd_has_totals(nsqd: Running) -> None:
    lines = Lines(StatsdOptions("", 1, "", 508, memory=False, exclude_ephemeral=False))
    told = nsqd.call(lambda: b"".join(lines.push(nsqd.daemon.broker))).decode().splitlines()
    assert f"topic.t.message_count:{ALL}|c" in told
    assert f"topic.t.channel.slow.depth:{COUNTS[HEAVY]}|g" in told
    assert not [line for line in told if "partition" in line]


def test_consumers_of_one_partition_are_counted_there(nsqd: Running) -> None:
    skewed(nsqd, "chosen")
    with nsqd.client() as one, nsqd.client() as all_:
        assert one.ask(b"SUB chosen c 1\n") == ok()
        assert all_.ask(b"SUB chosen c\n") == ok()
        row = nsqd.stats("&topic=chosen")["topics"][0]["channels"][0]
        assert row["client_count"] == 2
        assert [part["client_count"] for part in row["partitions"]] == [1, 2, 1]
        assert [client.get("partition") for client in row["clients"]] == [1, None]
        listed = json.loads(nsqd.request("GET", "/connections").body)["connections"]
        found = [client for client in listed if client.get("topic") == "chosen"]
        assert sorted(client.get("partition", -1) for client in found) == [-1, 1]
