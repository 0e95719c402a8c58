"""/stats as JSON and as text, on a daemon of its own whose every number is known."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock import __version__, limits
from penstock.nsqd.http.about import short_duration
from penstock.nsqd.stats import View, json_parts

from .skewed import COUNTS, HEAVY, skewed
from .skewed import lagging as make_it_lag
from .test_metrics import samples
from .world import V2, Running, eventually, mpub, ok, pub, running_with

nsqd = running_with()

TOPIC_KEYS = [
    "topic_name", "channels", "depth", "backend_depth", "message_count", "message_bytes",
    "paused", "e2e_processing_latency",
]  # fmt: skip
CHANNEL_KEYS = [
    "channel_name", "depth", "backend_depth", "in_flight_count", "deferred_count",
    "message_count", "requeue_count", "timeout_count", "client_count", "clients", "paused",
    "e2e_processing_latency",
]  # fmt: skip
CLIENT_KEYS = [
    "client_id", "hostname", "version", "remote_address", "state", "ready_count",
    "in_flight_count", "message_count", "finish_count", "requeue_count", "connect_ts",
    "sample_rate", "deflate", "snappy", "user_agent", "topology_zone", "topology_region", "tls",
    "tls_cipher_suite", "tls_version", "tls_negotiated_protocol",
    "tls_negotiated_protocol_is_mutual",
]  # fmt: skip


@pytest.fixture
def consumer(nsqd: Running) -> Iterator[V2]:
    """Of topic `st`: three messages, one in flight, one requeued for later, one waiting."""
    with nsqd.client(client_id="me", hostname="hn", user_agent="ua/1") as client:
        client.send(mpub("st", [b"ab", b"cd", b"ef"]) + b"SUB st ch\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.send(b"REQ %b 60000\n" % client.message().id)
        client.message()
        yield client


def test_keys_and_numbers(nsqd: Running, consumer: V2) -> None:
    document = nsqd.stats()
    keys = ["version", "health", "start_time", "topics", "memory", "producers", "disk"]
    assert list(document) == keys
    topic = next(row for row in document["topics"] if row["topic_name"] == "st")
    assert list(topic)[: len(TOPIC_KEYS)] == TOPIC_KEYS
    assert (topic["message_count"], topic["message_bytes"], topic["depth"]) == (3, 6, 0)
    channel = topic["channels"][0]
    assert [key for key in channel if key != "global_msg_count"][
        : len(CHANNEL_KEYS)
    ] == CHANNEL_KEYS
    numbers = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count")
    assert [channel[key] for key in numbers] == [1, 1, 1, 3, 1]
    assert channel["global_msg_count"] == 2
    assert channel["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    (client,) = channel["clients"]
    assert [key for key in client if key != "pub_counts"] == CLIENT_KEYS
    assert client["pub_counts"] == [{"topic": "st", "count": 3}]
    assert (client["client_id"], client["hostname"], client["user_agent"]) == ("me", "hn", "ua/1")
    assert (client["state"], client["ready_count"], client["in_flight_count"]) == (3, 1, 1)
    assert (client["message_count"], client["requeue_count"], client["version"]) == (2, 1, "V2")
    host, port = consumer.socket.getsockname()
    assert client["remote_address"] == f"{host}:{port}"
    assert nsqd.stats("&topic=st&channel=other")["topics"] == []
    assert nsqd.stats("&topic=unknown")["topics"] is None
    assert nsqd.request("GET", "/stats?format=%zz").status == 400


def connections(nsqd: Running) -> dict[str, dict[str, Any]]:
    rows = json.loads(nsqd.request("GET", "/connections").body)["connections"]
    assert len({row["serial"] for row in rows}) == len(rows)
    return {row["remote_address"]: row for row in rows}


def address(client: V2) -> str:
    host, port = client.socket.getsockname()
    return f"{host}:{port}"


def test_every_connection_is_listed_with_what_it_does(nsqd: Running, consumer: V2) -> None:
    with nsqd.client(client_id="idle", snappy=False) as idle:
        idle.send(b"NOP\n")
        eventually(lambda: address(idle) in connections(nsqd))
        found, place = connections(nsqd), address(idle)
    row = found[address(consumer)]
    assert (row["topic"], row["channel"], row["client_id"]) == ("st", "ch", "me")
    numbers = ("ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count")
    assert [row[key] for key in numbers] == [1, 1, 2, 0, 1]
    assert row["pub_counts"] == [{"topic": "st", "count": 3}]
    quiet = found[place]
    assert quiet["client_id"] == "idle"
    assert not {"topic", "channel", "pub_counts", "tls", "snappy"} & quiet.keys()


def test_the_text(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client(hostname="hn", user_agent="ua/1") as client:
        port = client.socket.getsockname()[1]
        client.send(mpub("st", [b"ab", b"cd"]) + b"SUB st ch\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        client.message()
        nsqd.post("/topic/create?topic=zz", "/topic/pause?topic=zz")
        answer = nsqd.request("GET", "/stats?include_mem=false")
        lines = answer.body.decode().splitlines()
        assert re.fullmatch(rf"nsqd v{re.escape(__version__)} \(built w/python\d.*\)", lines[0])
        assert re.fullmatch(r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", lines[1])
        assert re.fullmatch(r"uptime [\d.]+(ms|s|µs)", lines[2])
        head = f"hn:{port} ua/1"
        since = re.search(r"connected: (\d+s)", lines[9]).group(1)  # type: ignore[union-attr]
        assert lines[3:] == [
            "",
            "Health: OK",
            "",
            "Topics:",
            "   [st             ] depth: 0     be-depth: 0     msgs: 2        e2e%: ",
            "      [ch                       ] depth: 1     be-depth: 0     inflt: 1    def: 0    "
            "re-q: 0     timeout: 0     msgs: 2        e2e%: ",
            f"        [V2 {head:<21}] state: 3 inflt: 1    rdy: 1    fin: 0        re-q: 0        "
            f"msgs: 1        connected: {since}",
            "",
            "*P [zz             ] depth: 0     be-depth: 0     msgs: 0        e2e%: ",
            "",
            "Producers:",
            f"   [V2 {head:<21}] msgs: 2        topics: st=2 connected: {since}",
        ]
        assert b"Memory:\n   heap_objects             \t" in nsqd.request("GET", "/stats").body
        assert b"Topics: None" in nsqd.request("GET", "/stats?topic=none").body
        text = nsqd.request("GET", "/stats?include_clients=false").body
        assert b"Producers: None" in text


def test_a_large_document_is_made_in_slices_and_is_whole(
    nsqd: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        nsqd.post(f"/topic/create?topic=t{number}")
        nsqd.post(*(f"/channel/create?topic=t{number}&channel={name}" for name in "ab"))
    with nsqd.client() as one, nsqd.client() as other:
        for client in (one, other):
            assert client.ask(pub("t1", b"x")) == ok()
            assert client.ask(b"SUB t1 a\n") == ok()
        at_once = {form: nsqd.request("GET", f"/stats?format={form}") for form in ("json", "")}
        turns = []

        def count_turns() -> None:
            turns.append(1)
            nsqd.daemon._loop.call_soon(count_turns)

        monkeypatch.setattr(limits, "STATS_SLICE_NS", 0)  # every part in a turn of its own
        nsqd.call(lambda: nsqd.daemon._loop.call_soon(count_turns))
        before = len(turns)
        document = nsqd.stats("&include_mem=false")
        assert len(turns) - before > 30 * 3
        sliced = {form: nsqd.request("GET", f"/stats?format={form}") for form in ("json", "")}
    rows = document["topics"]
    assert [row["topic_name"] for row in rows] == sorted(f"t{n}" for n in range(30))
    assert all([c["channel_name"] for c in row["channels"]] == ["a", "b"] for row in rows)
    assert [len(c["clients"]) for c in rows[1]["channels"]] == [2, 0]
    assert len(document["producers"]) == 2
    for form in ("json", ""):
        assert len(sliced[form].body) == pytest.approx(len(at_once[form].body), abs=40)


def test_a_topic_that_goes_while_the_document_is_made_is_left_out(nsqd: Running) -> None:
    nsqd.post(*(f"/topic/create?topic={name}" for name in "abc"))

    def look() -> bytes:
        view = View(nsqd.daemon.broker, nsqd.daemon.protocol.sessions, 0)
        parts = json_parts(view)
        first = [next(parts), next(parts), next(parts)]
        nsqd.daemon.broker.delete_topic("b")
        return b"".join([*first, *parts])

    names = [row["topic_name"] for row in json.loads(nsqd.call(look))["topics"]]
    assert names == ["a", "c"]


def test_text_that_is_no_text_can_be_shown(nsqd: Running) -> None:
    with nsqd.client(user_agent="\ud800") as client:
        assert client.ask(b"SUB odd c\n") == ok()
        (row,) = nsqd.channel("odd", "c")["clients"]
        assert row["user_agent"] in ("?", "\ufffd")


@each(
    ("duration_ns", "text"),
    [(0, "0.0ns"), (999, "999.0ns"), (2_800_000, "2.8ms"), (1_500, "1.5us"), (3e9, "3.0s")],
)
def test_short_durations(duration_ns: float, text: str) -> None:
    assert short_duration(duration_ns) == text


def test_the_disk_and_the_oldest_message(nsqd: Running) -> None:
    nsqd.post("/topic/create?topic=aged", "/channel/create?topic=aged&channel=c")
    assert nsqd.channel("aged", "c")["oldest_age_seconds"] is None
    nsqd.request("POST", "/pub?topic=aged", b"x")
    assert 0 <= nsqd.channel("aged", "c")["oldest_age_seconds"] < 60
    disk = nsqd.stats("&include_mem=false")["disk"]
    assert 0 < disk["free_bytes"] < disk["size_bytes"]
    assert 0 < disk["sync_slowest_seconds"] < 60
    assert 0 <= disk["last_sync_seconds_ago"] < 60


# --- /stats ---


ALL = sum(COUNTS)


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        make_it_lag(running)
        yield running


def topic(lagging: Running, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = lagging.stats(f"&topic=t{query}")["topics"][0]
    return found


def test_the_topic_adds_up_its_partitions(lagging: Running) -> None:
    row = topic(lagging)
    parts = row["partitions"]
    assert [next(iter(part.items())) for part in parts] == [("partition", n) for n in range(3)]
    assert [part["message_count"] for part in parts] == list(COUNTS)
    assert [part["committed_end"] for part in parts] == list(COUNTS)
    for key in ("depth", "message_count", "message_bytes", "stored_bytes", "committed_end"):
        assert row[key] == sum(part[key] for part in parts), key
    assert (row["message_count"], row["start_offset"], row["damaged"]) == (ALL, 0, [])
    assert list(row)[-1] == "partitions"


def test_a_channel_says_in_which_partition_it_lags(lagging: Running) -> None:
    quick, slow = topic(lagging)["channels"]
    assert [part["depth"] for part in quick["partitions"]] == [0, 0, 0]
    assert [part["depth"] for part in slow["partitions"]] == [0, COUNTS[HEAVY], 0]
    assert (slow["depth"], slow["next"]) == (COUNTS[HEAVY], ALL - COUNTS[HEAVY])
    ages = [part["oldest_age_seconds"] for part in slow["partitions"]]
    assert (ages[0], ages[2]) == (None, None)
    assert ages[HEAVY] > 0
    assert slow["oldest_age_seconds"] > 0  # of its oldest anywhere


def test_only_topics_with_the_channel_are_shown(lagging: Running) -> None:
    def names(partition: int) -> list[str]:
        return [row["topic_name"] for row in lagging.stats(f"&partition={partition}")["topics"]]

    assert (names(0), names(2), names(3)) == (["one", "t"], ["t"], [])
    assert names(-1) == ["one", "t"]


def test_the_text_has_a_line_for_each(lagging: Running) -> None:
    lines = lagging.request("GET", "/stats?topic=t").body.decode().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("   [t "))
    assert f"msgs: {ALL} " in lines[at]
    assert [line.split()[:2] for line in lines[at + 1 : at + 4]] == [
        ["partition", str(number)] for number in range(3)
    ]
    assert lines[at + 2].endswith(f"offsets: 0-{COUNTS[HEAVY]}")
    slow = next(number for number, line in enumerate(lines) if "[slow " in line)
    assert f"depth: {COUNTS[HEAVY]}" in lines[slow + 1 + HEAVY]
    alone = lagging.request("GET", "/stats?topic=one").body.decode()
    assert "partition" not in alone


def test_metrics_by_partition_have_names_of_their_own(lagging: Running) -> None:
    found = samples(lagging.request("GET", "/metrics").body.decode())
    for partition, count in enumerate(COUNTS):
        place = f'topic="t",partition="{partition}"'
        assert found[f"nsqd_topic_partition_messages_total{{{place}}}"] == count
        assert found[f"nsqd_topic_partition_end_offset{{{place}}}"] == count
    place = f'topic="t",channel="slow",partition="{HEAVY}"'
    assert found[f"nsqd_channel_partition_depth{{{place}}}"] == COUNTS[HEAVY]
    assert found[f"nsqd_channel_partition_oldest_age_seconds{{{place}}}"] > 0
    assert found['nsqd_topic_messages_total{topic="t"}'] == ALL
    assert not [name for name in found if 'topic="one"' in name and "partition" in name]


def test_consumers_of_one_partition_are_counted_there(lagging: Running) -> None:
    skewed(lagging, "chosen")
    with lagging.client() as one, lagging.client() as all_:
        assert one.ask(b"SUB chosen c 1\n") == ok()
        assert all_.ask(b"SUB chosen c\n") == ok()
        row = lagging.stats("&topic=chosen")["topics"][0]["channels"][0]
        assert row["client_count"] == 2
        assert [part["client_count"] for part in row["partitions"]] == [1, 2, 1]
        assert [client.get("partition") for client in row["clients"]] == [1, None]
        listed = json.loads(lagging.request("GET", "/connections").body)["connections"]
        found = [client for client in listed if client.get("topic") == "chosen"]
        assert sorted(client.get("partition", -1) for client in found) == [-1, 1]


@each("partition", range(3))
def test_one_partition_alone(lagging: Running, partition: int) -> None:
    row = topic(lagging, f"&partition={partition}&include_clients=false")
    assert (row["partition"], row["message_count"]) == (partition, COUNTS[partition])
    assert "partitions" not in row
    slow = row["channels"][1]
    lag = COUNTS[HEAVY] if partition == HEAVY else 0
    assert (slow["partition"], slow["depth"]) == (partition, lag)


def test_messages_stay_in_the_zone_then_in_the_region(tmp_path: Path) -> None:
    flags = ("--topology-region=eu", "--topology-zone=eu-1")
    aware = "--enable-experiment=topology-aware-consumption"
    with Running(tmp_path, *flags, aware) as nsqd, ExitStack() as stack:
        for region, zone, rdy in (("us", "us-1", 50), ("eu", "eu-2", 5), ("eu", "eu-1", 10)):
            client = nsqd.client(topology_region=region, topology_zone=zone)
            assert stack.enter_context(client).ask(b"SUB t c\n") == ok()
            client.send(b"RDY %d\n" % rdy)

        def ready() -> list[int]:
            return sorted(one["ready_count"] for one in nsqd.channel("t", "c")["clients"])

        eventually(lambda: ready() == [5, 10, 50])
        assert stack.enter_context(nsqd.client()).ask(mpub("t", [b"x"] * 18)) == ok()
        eventually(lambda: nsqd.channel("t", "c")["in_flight_count"] == 18)
        row = nsqd.channel("t", "c")
    keys = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    assert [row[key] for key in keys] == [10, 5, 3]
    reply = {one["topology_zone"]: [one.get(key) for key in keys] for one in row["clients"]}
    assert reply == {"eu-1": [10, None, None], "eu-2": [None, 5, None], "us-1": [None, None, 3]}
