"""Kill -9 of everybody at every step of a batch: the driver, a Python worker, the broker.

A query copies one topic into another. In each round messages are published, and when a certain
request comes by, somebody is killed: before nsqd has the request, or when nsqd has done what it
asks and the answer is lost. The query goes on by itself (tasks and requests are tried again) or is
started again from its checkpoint, as a supervisor would do. Then all messages are in the other
topic, once, and in order inside each of its four partitions.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import each
from e2e.daemon import Daemon
from e2e.lookupd import eventually
from pipelines.node import bodies_of

from . import quickjvm
from .faultproxy import Fault, FaultProxy

# A driver takes ten seconds to start, a minute on a busy machine.
pytestmark = pytest.mark.timeout(600)

SCRIPT = Path(__file__).with_name("killdriver.py")
PARTITIONS = 4
MESSAGES = 300  # of a round: two batches, two tasks each, several blocks a task
WAIT_S_MAX = 200.0

STEPS = {
    "plan": ("/log/positions", False),
    "plan, answer lost": ("/log/positions", True),
    "read": ("/log/fetch", False),
    "read, answer lost": ("/log/fetch", True),
    "stage": ("/stage", False),
    "stage, answer lost": ("/stage", True),
    "before the commit": ("/stage/commit", False),
    "after the commit": ("/stage/commit", True),
}
ROUNDS = [
    ("worker", "plan"),
    ("broker", "plan"),
    ("broker", "plan, answer lost"),
    ("driver", "plan"),
    ("worker", "read"),
    ("worker", "read, answer lost"),
    ("broker", "read"),
    ("broker", "read, answer lost"),
    ("driver", "read"),
    ("worker", "stage"),
    ("worker", "stage, answer lost"),
    ("broker", "stage"),
    ("driver", "stage, answer lost"),
    ("broker", "stage, answer lost"),
    ("worker", "before the commit"),
    ("broker", "before the commit"),
    ("driver", "before the commit"),
    ("worker", "after the commit"),
    ("broker", "after the commit"),
    ("driver", "after the commit"),
]
DRIVERS = 1 + sum(who == "driver" for who, _ in ROUNDS)


class Driver:
    """A driver that stands by until it is told to go."""

    def __init__(self, url: str, path: Path, number: int) -> None:
        self.text = path / f"driver-{number}.out"
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.text.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), url, str(path / "checkpoint"), quickjvm.options()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def go(self) -> None:
        eventually(
            lambda: "ready" in self.text.read_text(),
            WAIT_S_MAX,
            lambda: self.text.read_text()[-4000:],
        )
        assert self.process.stdin
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """The driver and its JVM, which are a group of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


class Arena:
    """Broker, proxy, and the driver that is at work; another one stands by."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.daemon = Daemon(path / "nsqd")
        self.proxy = FaultProxy(lambda: self.daemon.http_port if self.daemon.running else 0)
        self.published: list[bytes] = []
        self.copied: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.driver_count = 0
        self.standby: Driver | None = None

    def start(self) -> None:
        self.daemon.start()
        self.proxy.__enter__()
        self.daemon.post("/topic/create?topic=orders")
        self.daemon.post(f"/topic/create?topic=copy&partition_num={PARTITIONS}")
        self.driver = self.new_driver()
        self.driver.go()
        self.standby = self.new_driver()

    def stop(self) -> None:
        for driver in (self.driver, self.standby):
            if driver is not None:
                driver.kill()
        self.proxy.__exit__()
        self.daemon.kill()

    def new_driver(self) -> Driver:
        self.driver_count += 1
        return Driver(self.proxy.url, self.path, self.driver_count)

    def publish(self) -> None:
        bodies = [b"%d" % n for n in range(len(self.published), len(self.published) + MESSAGES)]
        self.daemon.post("/mpub?topic=orders", b"\n".join(bodies))
        self.published += bodies

    def kill(self, who: str, asker: int) -> None:
        if who == "worker":
            os.kill(asker, signal.SIGKILL)
        elif who == "driver":
            self.driver.kill()
        else:
            self.daemon.kill()

    def recover(self, who: str) -> None:
        if who == "driver":
            self.driver, self.standby = self.standby or self.new_driver(), None
            self.driver.go()
            if self.driver_count < DRIVERS:
                self.standby = self.new_driver()
        elif who == "broker":
            self.daemon.start()

    def read_copies(self) -> int:
        """How many there are by now."""
        self.copied = bodies_of(f"http://127.0.0.1:{self.daemon.http_port}", "copy")
        return sum(map(len, self.copied))

    def story(self) -> str:
        text = [f"{each}: {each.read_text()[-3000:]}" for each in self.path.glob("driver-*.out")]
        copied = [len(each) for each in self.copied]
        return "\n".join([f"{copied} of {len(self.published)} copied", *sorted(text)])


@pytest.fixture(scope="module")
def arena(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    arena = Arena(tmp_path_factory.mktemp("kills"))
    arena.start()
    try:
        yield arena
    finally:
        arena.stop()


@each(("who", "step"), ROUNDS)
def test_every_message_is_copied_once(arena: Arena, who: str, step: str) -> None:
    path, answered = STEPS[step]
    fault = Fault(path, answered, lambda asker: arena.kill(who, asker))
    arena.publish()
    arena.proxy.fault = fault
    eventually(fault.hit.is_set, WAIT_S_MAX, arena.story)
    arena.recover(who)
    eventually(lambda: arena.read_copies() >= len(arena.published), WAIT_S_MAX, arena.story)
    numbers = [[int(body) for body in each] for each in arena.copied]
    assert sorted(n for each in numbers for n in each) == list(range(len(arena.published)))
    assert all(each == sorted(each) for each in numbers), arena.story()
    assert sum(map(bool, numbers)) > 1, arena.story()
