"""Producers that retry, kill -9, and a log in which every message stands once and in order."""

from __future__ import annotations

import http.client
import random
import threading
import time
from pathlib import Path

import pytest

from penstock.kernel import decode_bodies
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog

from .daemon import Daemon
from .harness import fresh_seed

ROUNDS = 5  # of each history: twenty in all
PRODUCERS = 4
ANSWER_S_MAX = 40.0


class Retrier(threading.Thread):
    """Sends the next message, or the last one again, over connections that it drops at will."""

    def __init__(self, number: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.sent = 0  # acknowledged
        self.repeats = 0
        self.port = 0
        self.quit = threading.Event()
        self.failure: BaseException | None = None
        self._rng = rng

    def run(self) -> None:
        try:
            while not self.quit.is_set():
                self._step()
        except BaseException as error:
            self.failure = error

    def _step(self) -> None:
        count = self._rng.randint(1, 3)
        body = b"\n".join(b"%d-%d" % (self.number, self.sent + n) for n in range(count))
        target = f"/mpub?topic=t&producer_id={self.number}&sequence={self.sent}"
        while not self._answered(target, body):
            if self.quit.wait(0.005):
                # it may be stored: send this very publish until that is certain
                self.quit.clear()
                self._finish(target, body)
                self.quit.set()
                break
        self.sent += count

    def _finish(self, target: str, body: bytes) -> None:
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while not self._answered(target, body):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def _answered(self, target: str, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, ANSWER_S_MAX)
        try:
            connection.request("POST", target, body)
            if self._rng.random() < 0.3:
                return False  # gone before the answer
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        assert response.status == 200, response.status
        self.repeats += response.getheader("X-Penstock-Repeated") == "true"
        return True


def is_enough(retriers: list[Retrier]) -> bool:
    """Something to look at has come about, by all of them: a loaded machine needs longer."""
    return any(retrier.repeats for retrier in retriers) and all(
        retrier.sent or retrier.failure for retrier in retriers
    )


def in_the_log(path: Path) -> list[bytes]:
    log = PartitionLog.open(OsDisk(), path / "topics" / "t" / "0")
    found: list[bytes] = []
    for _, batch in log.batches(0):
        found += decode_bodies(batch, 0)
    log.close()
    return found


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("number", range(2))
def test_retries_under_load_and_kills(tmp_path: Path, durability: str, number: int) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability} {number}")
    with Daemon(tmp_path / "data", f"--durability={durability}") as daemon:
        retriers = [Retrier(n + 1, random.Random(rng.random())) for n in range(PRODUCERS)]
        for retrier in retriers:
            retrier.port = daemon.http_port
            retrier.start()
        for _ in range(ROUNDS):
            time.sleep(rng.uniform(0.1, 0.4))
            daemon.kill()
            daemon.start()
            for retrier in retriers:
                retrier.port = daemon.http_port
        enough_by_s = time.monotonic() + ANSWER_S_MAX
        while not is_enough(retriers) and time.monotonic() < enough_by_s:
            time.sleep(0.05)
        for retrier in retriers:
            retrier.quit.set()
        for retrier in retriers:
            retrier.join(2 * ANSWER_S_MAX)
            assert retrier.failure is None, repr(retrier.failure)
        assert daemon.stop() == 0
    found = in_the_log(tmp_path / "data")
    assert sum(retrier.repeats for retrier in retriers) > 0
    for retrier in retriers:
        mine = [one for one in found if one.startswith(b"%d-" % retrier.number)]
        assert mine == [b"%d-%d" % (retrier.number, n) for n in range(retrier.sent)]
        assert retrier.sent > 0
    assert len(found) == sum(retrier.sent for retrier in retriers)
