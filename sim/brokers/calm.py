"""What must follow when nothing fails any more.

| promise | | within |
|---|---|---|
| L-a | every partition has a leader leading | LED_S |
| L-c | every replica that is wanted is a member | WHOLE_S |
| I36, L-g | every publish was answered, and every request for a channel | ANSWERED_S |
| I18, L-d | every channel has finished everything that was answered OK | DRAINED_S |
| L-e | no record changes any more | for STILL_S |
| I3 | the replicas of a partition have the same bytes | |
| I14 | no log reports damage, for no disk has broken its word | |
| I21 | all lose their power, and nothing comes again | QUIET_S |
"""

from collections.abc import Callable

from penstock.cluster import keys
from penstock.errors import LogDamaged
from penstock.limits import SECOND
from penstock.log.partition import PartitionLog
from sim.brokers.trouble import start
from sim.brokers.world import TIMEOUT_NS, BrokersWorld
from sim.histories import Breach

LED_S = 45.0
WHOLE_S = 200.0  # a node that was dropped often waits so long before it counts again
ANSWERED_S = 20.0
DRAINED_S = 60.0
STILL_S = 10.0
QUIET_S = 3.0


def calm(world: BrokersWorld) -> None:
    heal(world)
    _within(world, LED_S, world.is_led, "L-a", "a partition has no leader leading")
    world.publishes = False
    _within(world, ANSWERED_S, world.is_answered, "L-g", "a publish waits")
    world.observer.check_answered()
    _within(world, WHOLE_S, world.is_whole, "L-c", "a replica is no member")
    drain(world)
    be_still(world)
    check_logs(world)
    lose_all_power(world)


def heal(world: BrokersWorld) -> None:
    world.be_calm()
    cluster = world.cluster
    cluster.heal()
    cluster.away.clear()
    for node in cluster.nodes:
        node.disk.faults.clear()
        cluster.wake(node.number)
    start(world)
    restart_stopped(world)


def restart_stopped(world: BrokersWorld) -> None:
    """A replica that has stopped is copied again by itself, but a second time within ten minutes
    only after a start."""
    for node in world.cluster.up():
        if world.has_stopped(node):
            world.cluster.kill(node.number)
            world.note_ended(node.incarnation)
            world.cluster.start(node.number)


def _within(
    world: BrokersWorld, seconds: float, holds: Callable[[], object], promise: str, what: str
) -> None:
    if not world.within(seconds, holds):
        raise Breach(promise, f"{what} after {seconds:g} s of calm")


def drain(world: BrokersWorld) -> None:
    world.drain()
    world.run(TIMEOUT_NS / SECOND + 1)
    observer = world.observer
    feeds = world.feeds()
    world.within(DRAINED_S, lambda: not any(observer.unfinished(feed) for feed in feeds))
    for feed in feeds:
        observer.check_kept(feed)
        if left := observer.unfinished(feed):
            raise Breach("L-d", f"{feed.channel} has not finished {sorted(left)[:3]!r}")
    world.latecomers.check(observer)
    _within(world, DRAINED_S, world.is_drained, "L-d", "a channel has a depth")


def be_still(world: BrokersWorld) -> None:
    before = _records(world)
    world.run(STILL_S)
    if _records(world) != before:
        raise Breach("L-e", "a record changes, and nothing is wrong")


def _records(world: BrokersWorld) -> list[int]:
    return [entry.revision for entry in world.cluster.store.entries_of(keys.PARTITIONS)]


def check_logs(world: BrokersWorld) -> None:
    for name, number in world.topics.all_partitions():
        topics = [node.broker.topics[name] for node in world.cluster.up()]
        logs = [topic.replicas[number].log for topic in topics]
        start = max(log.start_offset for log in logs)
        if len({_content(log, start) for log in logs}) > 1:
            raise Breach("I3", f"the replicas of {name}:{number} are not the same")


def _content(log: PartitionLog, start: int) -> bytes:
    try:
        return b"".join(bytes(data) for _, data in log.batches(start))
    except LogDamaged as error:
        raise Breach("I14", f"{log.path} is corrupt: {error}") from error


def lose_all_power(world: BrokersWorld) -> None:
    for node in world.cluster.up():
        world.cluster.kill(node.number, power=True)
        world.note_ended(node.incarnation)
    start(world)
    _within(world, LED_S, world.is_led, "L-a", "a partition has no leader leading")
    before = world.received_count()
    world.run(QUIET_S)
    if world.received_count() != before:
        raise Breach("I21", "what was finished came again")
