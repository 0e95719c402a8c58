"""Staging and committing in a world of its own: what a client does, and what is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.broker.commits.commit import Committed
from penstock.broker.commits.stage_file import StageHead
from penstock.errors import PenstockError
from penstock.kernel import decode_bodies, encode_batch
from sim.disk import SimDisk

from .world import World

T = TypeVar("T")
Disk = TypeVar("Disk", bound=SimDisk)
TURNS_MAX = 400


def empty(disk: Disk) -> Disk:
    """With an empty data path, for `on`."""
    disk.mkdir("/data")
    disk.sync_directory("/")
    return disk


def on(disk: SimDisk, **options: object) -> World:
    """A broker on what that disk has in /data."""
    return World.start(Path("/data"), [], disk=disk, **options)


class Block(NamedTuple):
    head: StageHead  # but for its topic
    body: bytes


def block(name: str, *text: bytes, batch_max: int = 2, partition: int = 0) -> Block:
    """Batches of two messages each."""
    appends = [text[at : at + batch_max] for at in range(0, len(text), batch_max)]
    data = b"".join(encode_batch(list(append), 0, 0, 0) for append in appends)
    return Block(StageHead("", "", name, len(text), len(data), 0, partition), data)


class Answers:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, outcome: Any) -> None:
        self.answers.append(outcome)

    @property
    def error(self) -> PenstockError | None:
        outcome = self.answers[0] if self.answers else None
        return outcome if isinstance(outcome, PenstockError) else None


def settle(world: World) -> None:
    """Turns until nothing is left to do."""
    for _ in range(TURNS_MAX):
        world.turn()
        if not world.threads.outstanding and not world.broker.commits.busy:
            return
    raise AssertionError("work that does not end")


def pass_ns(world: World, ns: int = limits.SECOND) -> None:
    """Time goes by, and what is tried again then ends."""
    world.pass_ns(ns)
    settle(world)


def put(world: World, topic: str, one: Block) -> Answers:
    answers = Answers()
    begin(world, topic, one, answers)
    settle(world)
    return answers


def begin(world: World, name: str, one: Block, answers: Answers) -> None:
    topic = world.broker.topic(name)
    of_topic = {"topic": name, "identity": topic.identity, "created_ns": world.clock.wall_ns()}
    world.broker.commits.stages.put(topic, replace(one.head, **of_topic), one.body, answers)


def stage_in_both(world: World, *text: bytes) -> None:
    """A stage `x` in topic `a`, and one in `b`."""
    for topic in ("a", "b"):
        put(world, topic, block("x", *text))


def commit(
    world: World, app: str, version: int, *refs: tuple[str, str, *tuple[int, ...]]
) -> Answers:
    answers = Answers()
    world.broker.commits.commit(app, version, [Ref(*ref) for ref in refs], answers)
    settle(world)
    return answers


def step_by_step(world: World, answers: Answers, look: Callable[[], T]) -> set[T]:
    """One job of the sync threads a turn, until it is told; what was seen after each turn."""
    seen = set()
    for _ in range(TURNS_MAX):
        world.turn()
        seen.add(look())
        if answers.answers:
            return seen
        job, *rest = world.threads.waiting
        world.threads.held, world.threads.waiting = False, [job]
        world.threads.run()
        world.threads.held, world.threads.waiting = True, [*world.threads.waiting, *rest]
    raise AssertionError("nothing was told")


def done(messages: int) -> list[Any]:
    return [Committed(False, messages)]


REPEATED = [Committed(True, 0)]


def stored(world: World, topic: str, partition: int = 0) -> list[bytes]:
    """All that can be seen in the log."""
    found: list[bytes] = []
    leader = world.broker.topic(topic).leader(partition)
    log = leader.log
    for header, data in log.batches(log.start_offset) if log.written_end else ():
        if header.base_offset < leader.tail.committed_end:
            found += decode_bodies(data, 0)
    return found
