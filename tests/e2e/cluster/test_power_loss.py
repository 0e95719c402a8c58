"""The power goes on one node, between pauses of the others: its disk holds what was synced, its
memory is gone, and the system that comes up is another one.

The node's calls to the system are recorded (`e2e/syscalls.py`). A kill ends the process; its
directory is then replaced by one that a disk may hold after the record, and the machine's boot id
by another, in a mount namespace of the node's own.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from cases import fresh_seed
from e2e.syscalls import LosesAll, Trace, compile_library

from .processes import Cluster, Node
from .test_stories import check
from .traffic import KeyedPublisher, Publisher, Traffic

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOUND = f'mount --bind "$1" {BOOT_ID} && shift && exec env "$@"'


class Machine(Node):
    """A node that can lose its power."""

    library: Path

    def spawn(self) -> Machine:
        self._boot.write_text(f"{uuid.uuid4()}\n")
        self._trace.unlink(missing_ok=True)
        shutil.rmtree(self._before, ignore_errors=True)
        self.data_path.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.data_path, self._before)
        super().spawn()
        return self

    def command(self) -> list[str]:
        recorded = [
            f"LD_PRELOAD={self.library}",
            f"SYSCALLS_ROOT={self.data_path}",
            f"SYSCALLS_TRACE={self._trace}",
        ]
        bound = ["unshare", "-m", "sh", "-c", BOUND, "sh", str(self._boot)]
        return [*bound, *recorded, *super().command()]

    def lose_power(self, fates: random.Random) -> None:
        self.kill()
        self.restore(fates)

    def restore(self, fates: random.Random) -> None:
        """What the disk holds of the directory."""
        trace = Trace(self._trace.read_bytes(), self.data_path, self._before)
        shutil.rmtree(self.data_path)
        trace.image(len(trace.calls), fates, self.data_path)

    @property
    def _boot(self) -> Path:
        return self.data_path.with_suffix(".boot")

    @property
    def _trace(self) -> Path:
        return self.data_path.with_suffix(".trace")

    @property
    def _before(self) -> Path:
        return self.data_path.with_suffix(".before")


class Machines(Cluster):
    def node(self, number: int, *flags: str) -> Node:
        return Machine(self.path / str(number), number, self.etcd, *flags)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    allowed = subprocess.run(
        ["unshare", "-m", "mount", "--bind", "/proc/uptime", BOOT_ID], capture_output=True
    )
    if allowed.returncode:
        pytest.skip("mounting needs a privilege that this account does not have")
    Machine.library = compile_library(tmp_path)
    return Machine.library


def machines(cluster: Cluster, dice: random.Random) -> list[Machine]:
    """In any order."""
    found = [node for node in cluster.nodes if isinstance(node, Machine)]
    dice.shuffle(found)
    return found


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_the_power_goes_between_pauses_of_the_others(
    tmp_path: Path, library: Path, durability: str
) -> None:
    dice = random.Random(1)
    with Machines(tmp_path, 3, f"--durability={durability}") as cluster:
        with Traffic(cluster, "power") as traffic:
            cluster.until(lambda: cluster.is_whole("power"))
            for _ in range(3):
                victim, *others = machines(cluster, dice)
                with ExitStack() as stack:
                    stack.enter_context(others[0].paused())
                    time.sleep(8 * dice.random())  # it leaves the in-sync set, or is in it still
                    victim.lose_power(LosesAll())
                with others[1].paused():
                    victim.start()
                    time.sleep(8 * dice.random())
                cluster.until(lambda: cluster.is_whole("power"))
        check(traffic.report())


def test_a_node_that_lost_its_memory_does_not_lead_even_alone(
    tmp_path: Path, library: Path
) -> None:
    dice = random.Random(3)
    with Machines(tmp_path, 3, "--durability=os") as cluster:
        with Traffic(cluster, "power") as traffic:
            cluster.until(lambda: cluster.is_whole("power"))
            victim, other, absent = machines(cluster, dice)
            absent.kill()
            cluster.until(lambda: len(cluster.partition("power")["in_sync"]) == 2)
            time.sleep(3)
            other.kill()
            victim.lose_power(LosesAll())
            victim.start()
            time.sleep(8)
            assert cluster.partition("power")["offline"]
            other.start()
            absent.start()
            cluster.until(lambda: cluster.is_whole("power"))
        check(traffic.report())


# --- all of it, in any order ---


def kill_most(cluster: Cluster, dice: random.Random) -> None:
    killed = dice.sample(machines(cluster, dice), dice.choice([1, 1, 2, 3]))
    for node in killed:
        node.kill()
        time.sleep(dice.random())
    time.sleep(4 * dice.random())
    for node in killed:
        node.start()


def stop_in_order(cluster: Cluster, dice: random.Random) -> None:
    node = machines(cluster, dice)[0]
    assert node.stop() == 0
    time.sleep(8 * dice.random())
    node.start()


def hang(cluster: Cluster, dice: random.Random) -> None:
    with machines(cluster, dice)[0].paused():
        time.sleep(12 * dice.random())


def lose_power(cluster: Cluster, dice: random.Random) -> None:
    """Of one node, while another hangs or none does."""
    victim, other, _ = machines(cluster, dice)
    with ExitStack() as stack:
        if dice.random() < 0.5:
            stack.enter_context(other.paused())
            time.sleep(7 * dice.random())
        victim.lose_power(dice.choice([LosesAll(), dice]))
    victim.start()


def etcd_hangs(cluster: Cluster, dice: random.Random) -> None:
    cluster.etcd.signal(signal.SIGSTOP)
    time.sleep(15 * dice.random())
    cluster.etcd.signal(signal.SIGCONT)


def etcd_starts_again_and_a_node_is_killed(cluster: Cluster, dice: random.Random) -> None:
    cluster.etcd.kill()
    node = machines(cluster, dice)[0]
    node.kill()
    time.sleep(10 * dice.random())
    cluster.etcd.start()
    node.start()


TROUBLES = [
    kill_most, kill_most, stop_in_order, hang, lose_power, lose_power, etcd_hangs,
    etcd_starts_again_and_a_node_is_killed,
]  # fmt: skip


SPARE = "topic=any&channel=spare"
CALLS = (
    "/topic/create?topic=brief&partition_num=2", "/topic/delete?topic=brief",
    f"/channel/create?{SPARE}", f"/channel/create?{SPARE}", f"/channel/delete?{SPARE}",
    f"/channel/empty?{SPARE}", f"/channel/skip?{SPARE}", f"/channel/unskip?{SPARE}",
    f"/channel/pause?{SPARE}", f"/channel/unpause?{SPARE}", f"/channel/emptydelayed?{SPARE}",
    f"/channel/config?{SPARE}&max_attempts=2&dead_letter_topic=brief", f"/channel/redrive?{SPARE}",
    f"/channel/config?{SPARE}&order=key", f"/channel/config?{SPARE}&order=none",
    "/cluster/node?node=2&state=maintenance", "/cluster/node?node=2&state=active",
    "/topic/partition/expand?topic=keyed&partition_num=2",
)  # fmt: skip
QUESTIONS = (
    "/stats?format=json", "/metrics", "/cluster", "/log/positions?topic=any", "/stage/list",
    f"/channel/config?{SPARE}", f"/channel/messages?{SPARE}&count=20", "/topic/config?topic=any",
)  # fmt: skip


class Operator(threading.Thread):
    """Somebody who tries every verb at any node, whatever happens to it. A refusal is an answer."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.over, self.faults = threading.Event(), list[str]()
        self._cluster, self._dice = cluster, dice

    def run(self) -> None:
        while not self.over.wait(self._dice.random()):
            node, path = self._dice.choice(self._cluster.nodes), self._dice.choice(CALLS)
            for method, asked in (("POST", path), ("GET", self._dice.choice(QUESTIONS))):
                with suppress(OSError, HTTPException):
                    if node.status(asked, method) == 500:
                        self.faults.append(f"{method} {asked}")


def test_random_failures(tmp_path: Path, library: Path) -> None:
    """PENSTOCK_TEST_ROUNDS makes it longer, PENSTOCK_TEST_SEED repeats one, as far as processes
    can."""
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    dice = random.Random(seed)
    rounds = int(os.environ.get("PENSTOCK_TEST_ROUNDS") or 12)
    with Machines(tmp_path, 3, f"--durability={dice.choice(['disk', 'os'])}") as cluster:
        node = cluster.nodes[0]
        for topic, order in (("strict", "strict"), ("keyed", "key")):
            cluster.make(f"/topic/create?topic={topic}")
            cluster.make(f"/channel/create?topic={topic}&channel=work")
            node.ask(f"/channel/config?topic={topic}&channel=work&order={order}", "POST")
        names = ("any", "strict", "keyed")
        publishers = (Publisher, Publisher, KeyedPublisher)
        traffics = [
            Traffic(cluster, name, publisher=made)
            for name, made in zip(names, publishers, strict=True)
        ]
        operator = Operator(cluster, random.Random(seed))
        with ExitStack() as stack:
            for traffic in traffics:
                stack.enter_context(traffic)
            cluster.make("/topic/config?topic=any&trace_rate=1")
            operator.start()
            for _ in range(rounds):
                trouble = dice.choice(TROUBLES)
                print(f"{time.strftime('%H:%M:%S')} {trouble.__name__}")
                trouble(cluster, dice)
                # A node that was dropped often is kept out of the set for eleven minutes at most.
                cluster.until(lambda: all(cluster.is_whole(name) for name in names), 780)
            operator.over.set()
            operator.join()
            cluster.make("/cluster/node?node=2&state=active")
        assert operator.faults == cluster.faults() == []
        for traffic in traffics:
            report = traffic.report()
            check(report)
            if traffic is not traffics[0]:
                assert report.order_broken == []
