"""A commit that is interrupted at every call to the disk: all or nothing, each message once."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import limits
from sim.clock import FakeClock
from sim.threads import SlowThreads

from ..staging import REPEATED, block, commit, done, empty, on, put, stored
from ..tripwire import Tripwire, interrupted, steps_of
from ..world import World

pytestmark = pytest.mark.usefixtures("quiet")

Target = tuple[str, int]  # topic, partition
TOPICS: tuple[Target, ...] = (("a", 0), ("b", 0), ("c", 0))
PARTITIONS: tuple[Target, ...] = (("a", 2), ("a", 0), ("a", 1), ("a", 3))
VERSIONS = 3


def bodies_of(targets: tuple[Target, ...], target: Target, version: int) -> list[bytes]:
    """The first one has most."""
    count = 5 if target == targets[0] else 1
    topic, partition = target
    return [b"%s%d-%d-%d" % (topic.encode(), partition, version, n) for n in range(count)]


class Writer:
    """Commits one version after another into several topics or partitions, and sends again what it
    does not know the outcome of. Others publish beside it."""

    def __init__(
        self,
        disk: Tripwire,
        targets: tuple[Target, ...],
        durability: str,
        rng: random.Random | None,
    ) -> None:
        self.disk = disk
        self.targets = targets
        self.rng = rng
        self.options = {"durability": durability, "segment_bytes_max": 700}
        self.clock = FakeClock()
        self.version = 0  # the next one
        self.committed = 0  # below it, all were answered
        self.plain = 0

    def open(self) -> World:
        threads = SlowThreads(self.rng) if self.rng else None
        world = on(self.disk, clock=self.clock, threads=threads, **self.options)
        self.check_whole(world)
        return world

    def check_whole(self, world: World) -> None:
        """Each version is in all targets or in none, whole and in its place."""
        last = world.broker.commits.last("app")
        assert self.committed <= (0 if last is None else last + 1) <= self.version + 1
        for target in self.targets:
            topic, _ = target
            if topic not in world.broker.topics:
                assert last is None
                continue
            found = [one for one in stored(world, *target) if one.startswith(topic.encode())]
            versions = range(0 if last is None else last + 1)
            assert found == [one for v in versions for one in bodies_of(self.targets, target, v)]

    def run(self) -> None:
        world = self.open()
        while self.version < VERSIONS:
            version = self.version
            named = []
            for target in self.targets:
                topic, partition = target
                world.broker.topic(topic, sum(one == topic for one, _ in self.targets))
                halves = bodies_of(self.targets, target, version)
                for number, half in enumerate((halves[:3], halves[3:])):
                    if half:
                        name = f"{version}-{number}"
                        one = block(name, *half, partition=partition)
                        assert put(world, topic, one).answers == [None]
                        named.append((topic, name, partition))
                world.publish(topic, b"plain-%d" % self.plain)  # not yet synced in `os`
                self.plain += 1
            total = sum(len(bodies_of(self.targets, target, version)) for target in self.targets)
            assert commit(world, "app", version, *named).answers in (done(total), REPEATED)
            self.committed = self.version = version + 1
            self.check_whole(world)
            world.publish("a", b"plain-%d" % self.plain)
            self.plain += 1
            world.pass_ns(limits.SECOND)
        self.check_whole(world)
        world.broker.close()


def written(
    steps: Sequence[int],
    seed: int | None,
    durability: str,
    rng: random.Random | None = None,
    targets: tuple[Target, ...] = TOPICS,
) -> bool:
    """`rng`: syncs end in any order, late."""
    writer = Writer(empty(Tripwire()), targets, durability, rng)
    ended = interrupted(writer.disk, steps, seed, writer.run)
    writer.run()
    world = writer.open()
    assert world.broker.commits.last("app") == VERSIONS - 1
    assert world.broker.commits.unfinished_count == 0
    world.broker.close()
    return ended


@pytest.mark.parametrize(
    ("seed", "durability", "targets"),
    [
        (None, "disk", TOPICS),
        (1, "disk", TOPICS),
        (None, "os", TOPICS),
        (2, "os", TOPICS),
        (None, "disk", PARTITIONS),  # of one topic: they show it together
        (5, "os", PARTITIONS),
    ],
    ids=["killed", "power", "killed os", "power os", "partitions killed", "partitions power os"],
)
def test_ended_at_every_step_and_begun_again(
    seed: int | None, durability: str, targets: tuple[Target, ...]
) -> None:
    assert steps_of(lambda steps: written(steps, seed, durability, targets=targets)) > 150


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=5),
    st.integers(0, 1 << 20),
    st.sampled_from(["disk", "os"]),
    st.sampled_from([TOPICS, PARTITIONS]),
)
def test_interrupted_again_and_again(
    steps: list[int], seed: int, durability: str, targets: tuple[Target, ...]
) -> None:
    """Also while a start finishes what was decided."""
    written(steps, seed, durability, targets=targets)


@pytest.mark.parametrize(("seed", "durability"), [(3, "os"), (4, "disk")])
def test_ended_at_every_step_while_syncs_end_in_any_order(seed: int, durability: str) -> None:
    assert steps_of(lambda steps: written(steps, seed, durability, random.Random(seed))) > 150
