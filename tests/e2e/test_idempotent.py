"""Producers that retry, kill -9, and a log in which every message stands once and in order."""

import random
import time
from pathlib import Path

import pytest

from cases import fresh_seed, seeds

from .asker import ANSWER_S_MAX, Asker, ask_through_kills, in_the_log
from .daemon import Daemon

ROUNDS = 5  # of each history
PRODUCERS = 4


class Retrier(Asker):
    """Sends the next message, or the last one again, over connections that it drops at will."""

    def __init__(self, number: int, rng: random.Random) -> None:
        super().__init__(rng, dropped=0.3)
        self.number = number
        self.sent = 0  # acknowledged

    @property
    def done(self) -> int:
        return self.sent

    def step(self) -> None:
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
        answer = self.ask(target, body)
        if answer is None:
            return False
        assert answer.status == 200, answer
        self.repeats += answer.repeated
        return True


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("number", seeds(1, 2))
def test_retries_under_load_and_kills(tmp_path: Path, durability: str, number: int) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability} {number}")
    with Daemon(tmp_path / "data", f"--durability={durability}") as daemon:
        retriers = [Retrier(n + 1, random.Random(rng.random())) for n in range(PRODUCERS)]
        ask_through_kills(daemon, retriers, ROUNDS, rng)
        assert daemon.stop() == 0
    found = in_the_log(tmp_path / "data", "t")
    for retrier in retriers:
        mine = [one for one in found if one.startswith(b"%d-" % retrier.number)]
        assert mine == [b"%d-%d" % (retrier.number, n) for n in range(retrier.sent)]
        assert retrier.sent > 0
    assert len(found) == sum(retrier.sent for retrier in retriers)
