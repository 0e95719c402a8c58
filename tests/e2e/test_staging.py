"""Commits under kill -9: a client that asks until it is answered, and each message once."""

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cases import fresh_seed
from penstock.kernel import decode_bodies, encode_batch
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog

from .daemon import Daemon
from .lookupd import eventually

ROUNDS = 6
APPS = 3
ANSWER_S_MAX = 40.0
DROPPED = 0.1  # of the connections, before the answer comes
Target = tuple[str, int]  # topic, partition
TOPICS: tuple[Target, ...] = (("t", 0), ("u", 0))
PARTITIONS: tuple[Target, ...] = (("t", 0), ("t", 1), ("t", 2), ("t", 3))


class Committer(threading.Thread):
    """Stages for all targets and commits, one version after another, over connections that break.
    It asks for the same again until it is answered, and stops after a whole version."""

    def __init__(
        self, daemon: Daemon, number: int, targets: tuple[Target, ...], rng: random.Random
    ) -> None:
        super().__init__(daemon=True)
        self.app = f"app {number}"
        self.number = number
        self.version = 0  # the next one
        self.repeats = 0
        self.quit = threading.Event()
        self.failure: BaseException | None = None
        self._nsqd, self._targets, self._rng = daemon, targets, rng

    def run(self) -> None:
        try:
            while not self.quit.is_set():
                self._commit()
        except BaseException as error:
            self.failure = error

    def bodies_of(self, target: Target, version: int) -> list[bytes]:
        """The last one has most."""
        topic, partition = target
        count = 27 if target == PARTITIONS[-1] else 5
        where = b"%d-%s%d-%d" % (self.number, topic.encode(), partition, version)
        return [b"%s-%d" % (where, n) for n in range(count)]

    def _commit(self) -> None:
        named, count = [], 0
        for target in self._targets:
            topic, partition = target
            bodies = self.bodies_of(target, self.version)
            count += len(bodies)
            for part in range(2):
                name = f"{self.app}/{self.version}/{part}"
                batches = b"".join(encode_batch([one], 0, 0, 0) for one in bodies[part::2])
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
        while (answer := self._once(target, body)) is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
        return answer

    def _once(self, target: str, body: bytes) -> Any:
        """None: it has to be asked again."""
        connection = http.client.HTTPConnection("127.0.0.1", self._nsqd.http_port, ANSWER_S_MAX)
        try:
            connection.request("POST", target, body)
            if self._rng.random() < DROPPED:
                return None
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        # A commit whose stages went with a version that was committed meanwhile is a repeat.
        assert response.status in (200, 503), (target, response.status, answer)
        return json.loads(answer) if response.status == 200 else None


def commit_through_kills(daemon: Daemon, committers: list[Committer], rng: random.Random) -> None:
    """All of them commit while nsqd is killed, and until something has come about by each of them,
    which a loaded machine needs longer for."""
    for committer in committers:
        committer.start()
    for _ in range(ROUNDS):
        time.sleep(rng.uniform(0.1, 0.4))
        daemon.kill()
        daemon.start()
    eventually(
        lambda: (
            any(one.repeats for one in committers)
            and all(one.version or one.failure for one in committers)
        )
    )
    for committer in committers:
        committer.quit.set()
    for committer in committers:
        committer.join(3 * ANSWER_S_MAX)
        assert not committer.is_alive()
        assert committer.failure is None, repr(committer.failure)


def in_the_log(data_path: Path, topic: str, partition: int = 0) -> list[bytes]:
    log = PartitionLog.open(OsDisk(), data_path / "topics" / topic / f"{partition}")
    found: list[bytes] = []
    for _, batch in log.batches(0):
        found += decode_bodies(batch, 0)
    log.close()
    return found


@pytest.mark.parametrize(
    ("durability", "targets"),
    [("os", TOPICS), ("disk", PARTITIONS), pytest.param("disk", TOPICS, marks=pytest.mark.long)],
)
def test_commits_under_load_and_kills(
    tmp_path: Path, durability: str, targets: tuple[Target, ...]
) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability}")
    data_path = tmp_path / "data"
    with Daemon(data_path, f"--durability={durability}") as daemon:
        if targets == PARTITIONS:
            daemon.post(f"/topic/create?topic=t&partition_num={len(PARTITIONS)}")
        dice = [random.Random(rng.random()) for _ in range(APPS)]
        committers = [Committer(daemon, n, targets, dice[n]) for n in range(APPS)]
        commit_through_kills(daemon, committers, rng)
        modes = {path.stat().st_mode & 0o777 for path in (data_path / "commits").glob("*.json")}
        assert modes == {0o600}
        assert (data_path / "stages").stat().st_mode & 0o777 == 0o700
        assert daemon.stop() == 0
    for target in targets:
        found = in_the_log(data_path, *target)
        for committer in committers:
            mine = [one for one in found if one.startswith(b"%d-" % committer.number)]
            wanted = []
            for version in range(committer.version):
                bodies = committer.bodies_of(target, version)
                wanted += bodies[0::2] + bodies[1::2]
            assert mine == wanted
            assert committer.version > 0
        each = len(committers[0].bodies_of(target, 0))
        assert len(found) == each * sum(committer.version for committer in committers)
