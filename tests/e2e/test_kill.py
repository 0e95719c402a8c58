"""kill -9 in the middle of everything, and what must be true after it."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import fresh_seed, seeds

from .daemon import Daemon
from .harness import Load, load_on

TOPIC = "t"
HISTORIES = seeds(1, 5)  # of each durability
KILLS = len(seeds(3, 5))  # that count, in one history
VOID_ROUNDS_MAX = 5  # rounds with too little traffic, which are run again
ROUND_S_MAX = 10.0
TIMEOUT_MS = 700


def one_round(load: Load, rng: random.Random) -> bool:
    """Load until the kill, and until there was enough of it, which a loaded machine needs longer
    for. False when there was too little all the same."""
    load.connect()
    ends_s = time.monotonic() + rng.uniform(0.08, 0.6)
    patience_s = time.monotonic() + ROUND_S_MAX
    while (now_s := time.monotonic()) < ends_s or (
        now_s < patience_s and not load.traffic.is_enough()
    ):
        load.run(min(0.1, max(0.02, ends_s - now_s)))
        if rng.random() < 0.1:
            load.replace_consumer()
    load.kill()
    return load.traffic.is_enough()


def start_again(load: Load, rng: random.Random) -> None:
    """Sometimes the start is killed too."""
    if rng.random() < 0.25:
        load.daemon.spawn()
        time.sleep(rng.uniform(0.05, 0.3))
        load.kill()
    load.restart()


def one_history(load: Load, rng: random.Random) -> None:
    load.daemon.start()
    load.make_channel("first")
    load.make_channel("second")
    counted, void = 0, 0
    while counted < KILLS:
        if one_round(load, rng):
            counted += 1
        else:
            void += 1
            assert void <= VOID_ROUNDS_MAX, f"too little traffic in {void} rounds: {load.traffic}"
        start_again(load, rng)
        if counted == 2 and len(load.channels) == 2:
            load.make_channel("third")  # it gets only what comes from now on
    load.drain()
    load.judge()
    assert load.daemon.stop() == 0


@pytest.mark.parametrize("number", HISTORIES)
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, durability: str, number: int) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability} {number}")
    load = load_on(tmp_path / "data", rng, TIMEOUT_MS, f"--durability={durability}")
    try:
        one_history(load, rng)
    except BaseException as error:
        error.add_note(f"the daemon said:\n{load.daemon.stderr()[-4000:]}")
        raise
    finally:
        load.hang_up()
        load.daemon.kill()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", "--msg-timeout=30s") as daemon:
        yield daemon


def kill_and_start(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


def counts(daemon: Daemon, channel: str) -> tuple[int, int, int]:
    row = daemon.channel_stats(TOPIC, channel)
    return row["depth"], row["in_flight_count"], row["deferred_count"]


def test_pauses_and_empty_channels_survive(daemon: Daemon) -> None:
    daemon.post("/topic/create?topic=t")
    for channel in ("paused", "drained", "emptied"):
        daemon.post(f"/channel/create?topic=t&channel={channel}")
    daemon.post("/topic/create?topic=halted")
    daemon.post("/channel/create?topic=halted&channel=ch")
    with daemon.client() as client:
        client.sub(TOPIC, "drained")
        client.mpub(TOPIC, [b"a", b"b", b"c"])
        client.rdy(3)
        client.fin(*(message.id for message in client.messages(3)))
        client.settle()
    daemon.post("/channel/pause?topic=t&channel=paused")
    daemon.post("/channel/empty?topic=t&channel=emptied")
    daemon.post("/topic/pause?topic=halted")
    with daemon.client() as client:
        client.pub("halted", b"waits in the topic")
    kill_and_start(daemon)

    topics = {row["topic_name"]: row for row in daemon.stats()["topics"]}
    channels = {row["channel_name"]: row for row in topics["t"]["channels"]}
    assert {name: (row["depth"], row["paused"]) for name, row in channels.items()} == {
        "paused": (3, True),
        "drained": (0, False),
        "emptied": (0, False),
    }
    assert (topics["t"]["paused"], topics["halted"]["paused"]) == (False, True)
    assert topics["halted"]["depth"] == 1
    assert topics["halted"]["channels"][0]["depth"] == 0
    with daemon.client() as client:
        client.sub(TOPIC, "paused")
        client.rdy(3)
        assert client.message(0.2) is None
        daemon.post("/channel/unpause?topic=t&channel=paused")
        assert [message.body for message in client.messages(3)] == [b"a", b"b", b"c"]
    with daemon.client() as client:
        client.sub("halted", "ch")
        client.rdy(1)
        assert client.message(0.2) is None
        daemon.post("/topic/unpause?topic=halted")
        assert client.messages(1)[0].body == b"waits in the topic"


def test_what_was_deleted_stays_away(daemon: Daemon) -> None:
    with daemon.client() as client:
        client.mpub("gone", [b"a", b"b"])
        client.mpub(TOPIC, [b"a", b"b"])
    daemon.post("/channel/create?topic=t&channel=stays")
    daemon.post("/channel/create?topic=t&channel=goes")
    daemon.post("/channel/delete?topic=t&channel=goes")
    daemon.post("/topic/delete?topic=gone")
    kill_and_start(daemon)
    assert [row["topic_name"] for row in daemon.stats()["topics"]] == [TOPIC]
    assert [row["channel_name"] for row in daemon.topic_stats(TOPIC)["channels"]] == ["stays"]
    assert counts(daemon, "stays") == (2, 0, 0)
