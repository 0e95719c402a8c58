"""Clients that ask nsqd over HTTP until they are answered, while it is killed again and again."""

import http.client
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.kernel import decode_bodies
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog

from .daemon import Daemon

ANSWER_S_MAX = 40.0


class Answer(NamedTuple):
    status: int
    body: bytes
    repeated: bool  # by its header


class Asker(threading.Thread):
    """Does `step` after step until it is told to quit. It drops this share of its connections
    before the answer comes."""

    def __init__(self, rng: random.Random, dropped: float) -> None:
        super().__init__(daemon=True)
        self.port = 0
        self.quit = threading.Event()
        self.failure: BaseException | None = None
        self.repeats = 0
        self._rng = rng
        self._dropped = dropped

    @property
    def done(self) -> int:
        """How much was acknowledged."""
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            while not self.quit.is_set():
                self.step()
        except BaseException as error:
            self.failure = error

    def ask(self, target: str, body: bytes) -> Answer | None:
        """None when the answer did not come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, ANSWER_S_MAX)
        try:
            connection.request("POST", target, body)
            if self._rng.random() < self._dropped:
                return None
            response = connection.getresponse()
            repeated = response.getheader("X-Penstock-Repeated") == "true"
            return Answer(response.status, response.read(), repeated)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def ask_through_kills(
    daemon: Daemon, askers: Sequence[Asker], rounds: int, rng: random.Random
) -> None:
    """All of them work while nsqd is killed so many times, and end their step."""
    for asker in askers:
        asker.port = daemon.http_port
        asker.start()
    for _ in range(rounds):
        time.sleep(rng.uniform(0.1, 0.4))
        daemon.kill()
        daemon.start()
        for asker in askers:
            asker.port = daemon.http_port
    enough_by_s = time.monotonic() + ANSWER_S_MAX
    while not _is_enough(askers) and time.monotonic() < enough_by_s:
        time.sleep(0.05)
    for asker in askers:
        asker.quit.set()
    for asker in askers:
        asker.join(3 * ANSWER_S_MAX)
        assert not asker.is_alive()
        assert asker.failure is None, repr(asker.failure)
    assert sum(asker.repeats for asker in askers) > 0


def _is_enough(askers: Sequence[Asker]) -> bool:
    """Something to look at has come about, by all of them: a loaded machine needs longer."""
    return any(asker.repeats for asker in askers) and all(
        asker.done or asker.failure for asker in askers
    )


def in_the_log(data_path: Path, topic: str, partition: int = 0) -> list[bytes]:
    log = PartitionLog.open(OsDisk(), data_path / "topics" / topic / f"{partition}")
    found: list[bytes] = []
    for _, batch in log.batches(0):
        found += decode_bodies(batch, 0)
    log.close()
    return found
