"""Commits under kill -9: a client that asks until it is answered, and each message once."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel import decode_bodies, encode_batch
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog

from .daemon import Daemon
from .harness import fresh_seed

ROUNDS = 6
APPS = 3
TOPICS = ("t", "u")
ANSWER_S_MAX = 40.0


class Committer(threading.Thread):
    """Stages for both topics and commits, one version after another, over connections that break.
    It asks for the same again until it is answered, and stops after a whole version."""

    def __init__(self, number: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.app = f"app {number}"
        self.number = number
        self.version = 0  # the next one
        self.repeats = 0
        self.port = 0
        self.quit = threading.Event()
        self.failure: BaseException | None = None
        self._rng = rng

    def run(self) -> None:
        try:
            while not self.quit.is_set():
                self._commit()
        except BaseException as error:
            self.failure = error

    def said(self, topic: str, version: int) -> list[bytes]:
        return [b"%d-%s-%d-%d" % (self.number, topic.encode(), version, n) for n in range(5)]

    def _commit(self) -> None:
        named = []
        for topic in TOPICS:
            said = self.said(topic, self.version)
            for part in range(2):
                name = f"{self.app}/{self.version}/{part}"
                batches = b"".join(encode_batch([one], 0, 0, 0) for one in said[part::2])
                self._ask(f"/stage?topic={topic}&stage={name.replace(' ', '%20')}", batches)
                named.append({"topic": topic, "partition": 0, "stage": name})
        body = json.dumps({"stages": named}).encode()
        target = f"/stage/commit?app={self.app.replace(' ', '%20')}&version={self.version}"
        answer = self._ask(target, body)
        self.repeats += answer["repeated"]
        assert answer["repeated"] or answer["messages"] == 10
        self.version += 1

    def _ask(self, target: str, body: bytes) -> Any:
        deadline_s = time.monotonic() + 2 * ANSWER_S_MAX
        while True:
            answer = self._once(target, body)
            if answer is not None:
                return answer
            assert time.monotonic() < deadline_s
            time.sleep(0.005)

    def _once(self, target: str, body: bytes) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, ANSWER_S_MAX)
        try:
            connection.request("POST", target, body)
            if self._rng.random() < 0.1:
                return None  # gone before the answer
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if response.status == 404 and "/commit" not in target:
            raise AssertionError(data)
        if response.status != 200:
            # a commit whose stages went with a version that was committed meanwhile is a repeat
            assert response.status == 503, (target, response.status, data)
            return None
        return json.loads(data)


def is_enough(committers: list[Committer]) -> bool:
    """Something to look at has come about, by all of them: a loaded machine needs longer."""
    return any(committer.repeats for committer in committers) and all(
        committer.version or committer.failure for committer in committers
    )


def in_the_log(path: Path, topic: str) -> list[bytes]:
    log = PartitionLog.open(OsDisk(), path / "topics" / topic / "0")
    found: list[bytes] = []
    for _, batch in log.batches(0):
        found += decode_bodies(batch, 0)
    log.close()
    return found


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_commits_under_load_and_kills(tmp_path: Path, durability: str) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability}")
    data_path = tmp_path / "data"
    with Daemon(data_path, f"--durability={durability}") as daemon:
        committers = [Committer(n, random.Random(rng.random())) for n in range(APPS)]
        for committer in committers:
            committer.port = daemon.http_port
            committer.start()
        for _ in range(ROUNDS):
            time.sleep(rng.uniform(0.1, 0.4))
            daemon.kill()
            daemon.start()
            for committer in committers:
                committer.port = daemon.http_port
        enough_by_s = time.monotonic() + ANSWER_S_MAX
        while not is_enough(committers) and time.monotonic() < enough_by_s:
            time.sleep(0.05)
        for committer in committers:
            committer.quit.set()
        for committer in committers:
            committer.join(3 * ANSWER_S_MAX)
            assert committer.failure is None, repr(committer.failure)
        modes = {path.stat().st_mode & 0o777 for path in (data_path / "commits").iterdir()}
        assert modes == {0o600}
        assert (data_path / "stages").stat().st_mode & 0o777 == 0o700
        assert daemon.stop() == 0
    assert sum(committer.repeats for committer in committers) > 0
    for topic in TOPICS:
        found = in_the_log(data_path, topic)
        for committer in committers:
            mine = [one for one in found if one.startswith(b"%d-" % committer.number)]
            wanted = []
            for version in range(committer.version):
                said = committer.said(topic, version)
                wanted += said[0::2] + said[1::2]
            assert mine == wanted
            assert committer.version > 0
        assert len(found) == 5 * sum(committer.version for committer in committers)
