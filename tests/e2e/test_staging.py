"""Commits under kill -9: a client that asks until it is answered, and each message once."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from cases import fresh_seed
from penstock.kernel import encode_batch

from .asker import ANSWER_S_MAX, Asker, ask_through_kills, in_the_log
from .daemon import Daemon

ROUNDS = 6
APPS = 3
Place = tuple[str, int]  # topic, partition
TOPICS: tuple[Place, ...] = (("t", 0), ("u", 0))
PARTITIONS: tuple[Place, ...] = (("t", 0), ("t", 1), ("t", 2), ("t", 3))


class Committer(Asker):
    """Stages for all places and commits, one version after another, over connections that break. It
    asks for the same again until it is answered, and stops after a whole version."""

    def __init__(self, number: int, places: tuple[Place, ...], rng: random.Random) -> None:
        super().__init__(rng, dropped=0.1)
        self.places = places
        self.app = f"app {number}"
        self.number = number
        self.version = 0  # the next one

    def said(self, place: Place, version: int) -> list[bytes]:
        """The last one has most."""
        topic, partition = place
        count = 27 if place == PARTITIONS[-1] else 5
        where = b"%d-%s%d-%d" % (self.number, topic.encode(), partition, version)
        return [b"%s-%d" % (where, n) for n in range(count)]

    @property
    def done(self) -> int:
        return self.version

    def step(self) -> None:
        named, count = [], 0
        for place in self.places:
            topic, partition = place
            said = self.said(place, self.version)
            count += len(said)
            for part in range(2):
                name = f"{self.app}/{self.version}/{part}"
                batches = b"".join(encode_batch([one], 0, 0, 0) for one in said[part::2])
                where = f"topic={topic}&partition={partition}"
                self._answer(f"/stage?{where}&stage={name.replace(' ', '%20')}", batches)
                named.append({"topic": topic, "partition": partition, "stage": name})
        body = json.dumps({"stages": named}).encode()
        target = f"/stage/commit?app={self.app.replace(' ', '%20')}&version={self.version}"
        answer = self._answer(target, body)
        self.repeats += answer["repeated"]
        assert answer["repeated"] or answer["messages"] == count
        self.version += 1

    def _answer(self, target: str, body: bytes) -> Any:
        deadline_s = time.monotonic() + 2 * ANSWER_S_MAX
        while True:
            answer = self._once(target, body)
            if answer is not None:
                return answer
            assert time.monotonic() < deadline_s
            time.sleep(0.005)

    def _once(self, target: str, body: bytes) -> Any:
        answer = self.ask(target, body)
        if answer is None:
            return None
        if answer.status == 404 and "/commit" not in target:
            raise AssertionError(answer)
        if answer.status != 200:
            # a commit whose stages went with a version that was committed meanwhile is a repeat
            assert answer.status == 503, (target, answer)
            return None
        return json.loads(answer.body)


@pytest.mark.parametrize(
    ("durability", "places"),
    [
        ("os", TOPICS),
        ("disk", PARTITIONS),
        pytest.param("disk", TOPICS, marks=pytest.mark.long),
    ],
)
def test_commits_under_load_and_kills(
    tmp_path: Path, durability: str, places: tuple[Place, ...]
) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability}")
    data_path = tmp_path / "data"
    with Daemon(data_path, f"--durability={durability}") as daemon:
        if places == PARTITIONS:
            daemon.post(f"/topic/create?topic=t&partition_num={len(PARTITIONS)}")
        committers = [Committer(n, places, random.Random(rng.random())) for n in range(APPS)]
        ask_through_kills(daemon, committers, ROUNDS, rng)
        modes = {path.stat().st_mode & 0o777 for path in (data_path / "commits").glob("*.json")}
        assert modes == {0o600}
        assert (data_path / "stages").stat().st_mode & 0o777 == 0o700
        assert daemon.stop() == 0
    for place in places:
        found = in_the_log(data_path, *place)
        for committer in committers:
            mine = [one for one in found if one.startswith(b"%d-" % committer.number)]
            wanted = []
            for version in range(committer.version):
                said = committer.said(place, version)
                wanted += said[0::2] + said[1::2]
            assert mine == wanted
            assert committer.version > 0
        each = len(committers[0].said(place, 0))
        assert len(found) == each * sum(committer.version for committer in committers)
