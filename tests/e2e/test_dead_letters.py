"""Dead letters with real processes: kill -9 while messages are given up, then the count."""

import random
import time
from pathlib import Path

from cases import fresh_seed

from .daemon import Daemon
from .v2client import V2Client

TOPIC, CHANNEL, DEAD = "t", "ch", "t.ch.dead"
MESSAGES = 400
KILLS = 4
SETTLED_S_MAX = 60.0
FEW = 20  # of these every one is good


def configure(daemon: Daemon) -> None:
    daemon.post(f"/topic/create?topic={TOPIC}")
    for channel in (CHANNEL, "other"):
        daemon.post(f"/channel/create?topic={TOPIC}&channel={channel}")
    daemon.post(f"/channel/config?topic={TOPIC}&channel={CHANNEL}&max_attempts=3")


def is_good(body: bytes) -> bool:
    return int(body) % FEW == 0


def work(client: V2Client, ends_s: float, finished: set[bytes], sent: dict[bytes, int]) -> None:
    """Finish the good ones, give back all others."""
    while (left_s := ends_s - time.monotonic()) > 0:
        message = client.message(min(left_s, 0.1))
        if message is None:
            continue
        sent[message.body] = max(sent.get(message.body, 0), message.attempts)
        if is_good(message.body):
            client.fin(message.id)
            finished.add(message.body)
        else:
            client.req(message.id, 0)


def everything_is_settled(daemon: Daemon) -> bool:
    row = daemon.channel_stats(TOPIC, CHANNEL)
    return not (row["depth"] or row["in_flight_count"] or row["deferred_count"])


def dead_bodies(daemon: Daemon) -> list[bytes]:
    with daemon.client() as client:
        client.sub(DEAD, "redrive")
        client.rdy(2500)
        return [message.body for message in client.drain(0.3)]


def test_none_is_lost_and_none_is_sent_too_often(tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} dead letters")
    finished: set[bytes] = set()
    sent: dict[bytes, int] = {}
    with Daemon(tmp_path / "data", "--msg-timeout=5s") as daemon:
        configure(daemon)
        with daemon.client() as publisher:
            publisher.mpub(TOPIC, [b"%d" % number for number in range(MESSAGES)])
        for _ in range(KILLS):
            with daemon.client() as client:
                client.sub(TOPIC, CHANNEL)
                client.rdy(rng.randrange(1, 50))
                work(client, time.monotonic() + rng.uniform(0.02, 0.1), finished, sent)
                daemon.kill()
            daemon.start()
        with daemon.client() as client:
            client.sub(TOPIC, CHANNEL)
            client.rdy(100)
            patience_s = time.monotonic() + SETTLED_S_MAX
            while time.monotonic() < patience_s:
                work(client, time.monotonic() + 0.2, finished, sent)
                if everything_is_settled(daemon):
                    break
        assert everything_is_settled(daemon)
        dead = dead_bodies(daemon)
        bodies = {b"%d" % number for number in range(MESSAGES)}
        assert finished | set(dead) == bodies
        assert {body for body in bodies if not is_good(body)} <= set(dead)
        assert max(sent.values()) <= 3
        assert daemon.channel_stats(TOPIC, "other")["depth"] == MESSAGES
