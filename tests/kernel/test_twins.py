"""The two forms side by side: one random history, and after every step the same of everything.

What a step does is drawn from a seed, so a failure can be played again: it names its seed. Beside
the comparison each window's journal is replayed as docs/formats.md says, and must come to the same
state as a snapshot taken at that moment.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from penstock import limits
from penstock.kernel import (
    TRACE_ALL,
    Filter,
    Held,
    Locality,
    Order,
    Rule,
    Section,
    Stray,
    StrayRecord,
)

from .turns import (
    MS,
    SECOND,
    entries,
    fin,
    log_name,
    mpub,
    mpub_ext,
    pub,
    pub_ext,
)
from .twinworld import CONSUMERS_MAX, TIMEOUTS_NS, World

FILTERS = (
    None,
    None,
    None,
    Filter((Rule(b"n", b"1"),)),
    Filter((Rule(b"n", b"2"), Rule(b"n", b"", re.compile("[03]").search)), inverse=True),
)

# Rounds of one flush decide which of a consumer's windows has its room; publishers that wait for
# several batches go on in the order of the last ones (two); a publish is held while its topic
# comes to ask for a partition or a key; one step takes more than twenty turns; a stray comes to
# wait while the cursor moves, in a turn whose share of strays was all of it; nothing is sent to a
# consumer that has output held back (two).
ODD_SEEDS = (
    200948788430469, 275843599143232, 91694769505729, 24415098149415, 144908726616116,
    220569805179486, 162569778185420, 223683101059280,
)  # fmt: skip
FIXED_SEEDS = (*range(12), *ODD_SEEDS)
STEPS = 250
TURNS_MAX = 200  # after a step; a filter may leave out one message in each
FRESH_SECONDS = 4.0


# --- steps: each draws with `dice` alone, so that both forms do the same ---


def publish(world: World, dice: random.Random) -> None:
    conn = dice.choice(world.publishers)
    topic = dice.choice([b"t", b"t", b"t 0", b"t 1", b"t -1", b"u"])
    bodies = [dice.randbytes(dice.randrange(1, 40)) for _ in range(dice.randrange(1, 9))]
    conn.feed(mpub(topic, bodies) if dice.random() < 0.5 else pub(topic, bodies[0]))


def publish_with_headers(world: World, dice: random.Random) -> None:
    """By key, which may lead to either partition of `t`; some have a trace id."""
    conn = dice.choice(world.publishers)
    target = dice.choice([b"t", b"t", b"t 1", b"u"])
    choices = [b"", b"{}", b'{"key":"a"}', b'{"key":"b"}', b'{"key":"c","##trace_id":"7"}']
    messages = [
        (dice.choice(choices), dice.randbytes(dice.randrange(1, 40)))
        for _ in range(dice.randrange(1, 6))
    ]
    single = dice.random() < 0.4
    conn.feed(pub_ext(target, *messages[0]) if single else mpub_ext(target, messages))


def choose_headers(world: World, dice: random.Random) -> None:
    world.side.engine.set_extended(dice.choice([b"t", b"u"]), dice.random() < 0.5)
    world.side.engine.set_hash_partitions(b"t", dice.choice([1, 2]))
    world.side.engine.set_placed(b"t", dice.random() < 0.2)


def publish_delayed(world: World, dice: random.Random) -> None:
    tail = dice.choice(world.tails)
    tail.append(
        b"later %d" % dice.randrange(100), world.side.wall_ns + dice.randrange(-9, 3 * SECOND)
    )


def publish_traced(world: World, dice: random.Random) -> None:
    """Some by a client, some by nobody in particular."""
    trace = {Section.TRACE: dice.randrange(1, 9)}
    tag = dice.choice([b"", b',"##client_dispatch_tag":"a"', b',"##client_dispatch_tag":"b"'])
    headers = {Section.HEADERS: b'{"n":"%d"%b}' % (dice.randrange(4), tag)}
    sections = dice.choice([trace, {**trace, **headers}, {Section.KEY: b"k"}, headers])
    conn = dice.choice([None, world.publishers[0]])
    dice.choice(world.tails).append(b"%d" % dice.randrange(100), 0, sections, conn)


def publish_keyed(world: World, dice: random.Random) -> None:
    """A batch of few keys; some of it is due later, or brings an id or attempts along."""
    tail = dice.choice(world.tails)
    for _ in range(dice.randrange(1, 12)):
        sections: dict[int, Any] = {Section.KEY: b"key %d" % dice.randrange(5)}
        if dice.random() < 0.1:
            sections[Section.ATTEMPTS] = dice.randrange(1, 4)
        due_ns = world.side.wall_ns + SECOND if dice.random() < 0.1 else 0
        tail.append(b"keyed %d" % dice.randrange(100), due_ns, sections)


def choose_order(world: World, dice: random.Random) -> None:
    window = dice.choice(world.windows)
    window.order = dice.choice([Order.NONE, Order.KEY, Order.KEY, Order.STRICT])
    window.aside_max = dice.choice([0, 2, 1 << 16])


def choose_sample(world: World, dice: random.Random) -> None:
    some = dice.choice([0, 0, dice.getrandbits(64), TRACE_ALL])
    dice.choice([*world.tails, *world.windows]).trace_below = some


def refuse(world: World, dice: random.Random) -> None:
    """Publishes pass it by while there is another, and lift it else."""
    tail = dice.choice(world.tails)
    if not any(publisher.pending for publisher in world.publishers):
        tail.refusing = not tail.refusing


def commit(world: World, dice: random.Random) -> None:
    world.side.commit()


def seal(world: World, dice: random.Random) -> None:
    tail = dice.choice(world.tails)
    if tail.open_count and tail.sealed_batches < tail.sealed_max:
        world.side.seal(tail)


def decide(world: World, dice: random.Random) -> None:
    """Some of the sealed batches are safe, or the last of them failed."""
    tail = dice.choice(world.tails)
    stored = dice.random() < 0.8
    if not tail.sealed_batches:
        return
    place = dice.randrange(tail.sealed_batches) - tail.sealed_batches
    written = world.side.written[log_name(tail)]
    header = world.side.kernel.decode_header(written[place], 0)
    if stored:
        tail.commit_to(header.base_offset + header.count)
    else:
        tail.fail_from(header.base_offset)
        del written[place:]


def join(world: World, dice: random.Random) -> None:
    if len(world.consumers) < CONSUMERS_MAX:
        conn = world.side.connect()
        conn.timeout_ns = dice.choice(TIMEOUTS_NS)
        conn.sample_rate = dice.choice([0, 0, 0, 1, 30, 90, 99])
        conn.locality = dice.choice([Locality.UNKNOWN, Locality.UNKNOWN, *Locality])
        conn.extended, conn.detailed = dice.random() < 0.3, dice.random() < 0.2
        conn.enveloped = dice.random() < 0.2
        conn.tag = dice.choice([b"", b"", b"", b"a", b"b"])
        conn.set_filter(dice.choice(FILTERS))
        for _ in range(dice.choice([1, 1, 2, 5])):
            subscribe(world, dice, conn)
        conn.rdy = dice.choice([1, 3, 10, 100])
        world.consumers.append(conn)


def subscribe(world: World, dice: random.Random, conn: Any) -> None:
    """One more window, of a partition that it has none of yet."""
    window = dice.choice(world.windows)
    if window.tail not in [other.tail for other in conn.windows]:
        conn.subscribe(window)


def join_or_leave_one(world: World, dice: random.Random) -> None:
    if world.consumers:
        conn = dice.choice(world.consumers)
        if len(conn.windows) > 1 and dice.random() < 0.5:
            conn.leave(dice.choice(conn.windows))
        else:
            subscribe(world, dice, conn)


def part(world: World, dice: random.Random) -> None:
    if world.consumers:
        conn = world.consumers.pop(dice.randrange(len(world.consumers)))
        dice.choice([conn.close, conn.leave, conn.feed_eof])()


def change_rdy(world: World, dice: random.Random) -> None:
    if world.consumers:
        conn = dice.choice(world.consumers)
        conn.feed(b"RDY %d\n" % dice.choice([0, 1, 2, 5, 70, 200]))


def pick(world: World, dice: random.Random) -> tuple[Any, Any, int] | None:
    """A consumer and an id: mostly one that it holds."""
    if not world.consumers:
        return None
    conn = dice.choice(world.consumers)
    ids = world.held.get(conn.serial, [])
    if not ids:
        return None
    place = dice.randrange(len(ids))
    id = ids[place] if dice.random() < 0.1 else ids.pop(place)
    if dice.random() < 0.05:
        conn = dice.choice(world.consumers)
    return conn.find(id) or dice.choice(world.windows), conn, id


def finish(world: World, dice: random.Random) -> None:
    for _ in range(dice.randrange(1, 12)):
        picked = pick(world, dice)
        if picked:
            _, conn, id = picked
            conn.feed(fin(id))


def requeue(world: World, dice: random.Random) -> Held | None:
    picked = pick(world, dice)
    delay_ns = dice.choice([0, 0, dice.randrange(1, 2 * SECOND)])
    if picked is None:
        return None
    window, conn, id = picked
    return Held(window.requeue(conn.serial, id, delay_ns, world.side.wall_ns))


def touch(world: World, dice: random.Random) -> Held | None:
    picked = pick(world, dice)
    if picked is None:
        return None
    window, conn, id = picked
    return Held(window.touch(conn.serial, id, world.side.mono_ns))


def pass_time(world: World, dice: random.Random) -> int:
    world.side.pass_time(
        dice.choice([1, MS, 100 * MS, 700 * MS, 2 * SECOND]) + dice.randrange(1000)
    )
    return world.side.tick() > 0


def pause(world: World, dice: random.Random) -> None:
    window = dice.choice(world.windows)
    window.paused = not window.paused


def toggle_handing(world: World, dice: random.Random) -> None:
    tail = dice.choice(world.tails)
    tail.handing = not tail.handing
    if dice.random() < 0.5:
        tail.hand()


def move_cursor(world: World, dice: random.Random) -> None:
    window = dice.choice(world.windows)
    kind = dice.randrange(10)
    if kind == 0:
        window.empty()
    elif kind == 1:
        window.seek(dice.randint(0, window.tail.handed_end))
    elif window.tail.handed_end:
        start = dice.randrange(window.tail.handed_end)
        window.skip(start, min(start + dice.randrange(1, 6), window.tail.handed_end))


def outdate(world: World, dice: random.Random) -> int:
    window = dice.choice(world.windows)
    return int(window.outdate(dice.randint(0, window.tail.handed_end)))


def limit_attempts(world: World, dice: random.Random) -> None:
    dice.choice(world.windows).attempts_max = dice.choice([0, 1, 2, 4])


def take_exhausted(world: World, dice: random.Random) -> list[StrayRecord]:
    window = dice.choice(world.windows)
    taken: list[StrayRecord] = window.take_exhausted(dice.randrange(1, 5))
    for record in taken:
        if dice.random() < 0.8:
            assert window.settle_exhausted(record.id, dice.random() < 0.7)
    return taken


def settle_by_hand(world: World, dice: random.Random) -> list[Any]:
    """What an operator does: look, and settle one message, wherever it is."""
    window = dice.choice(world.windows)
    state = dice.choice([Stray.WAITING, Stray.DELAYED, Stray.EXHAUSTED, Stray.BEHIND])
    records = window.stray_records(state, dice.randrange(4))
    flying = sorted(id for _, id, *_ in window.in_flight_records(10_000))
    ids = [record.id for record in records] + flying[: dice.randrange(3)] + [dice.getrandbits(60)]
    id = dice.choice(ids)
    due_ns = dice.choice([-1, 0, world.side.wall_ns + dice.randrange(1, 2 * SECOND)])
    holder = window.holder(id)
    below = window.unfinished_below(window.next - dice.randrange(5))
    if holder and dice.random() < 0.5:
        return [records, holder, below, window.finish(holder, id)]
    return [records, holder, below, window.settle_stray(id, due_ns)]


def bound(world: World, dice: random.Random) -> None:
    """One publisher at a time meets the bound: in which order two are let go on is free."""
    tail, conn = dice.choice(world.tails), dice.choice(world.publishers)
    if not any(publisher.pending for publisher in world.publishers):
        tail.append_end_max = tail.written_end + tail.open_count + dice.randrange(3)
        conn.feed(b"".join(pub(tail.topic, b"%d" % n) for n in range(3)))
        world.take(world.side.poll())
        tail.append_end_max = 0


def search(world: World, dice: random.Random) -> list[Any]:
    """A few steps, or all of it: then nothing that is delayed counts as depth."""
    window = dice.choice(world.windows)
    steps = dice.choice([1, 2, 1_000_000])
    world.side.search(window, steps)
    if steps > 2:
        assert window.unparked >= world.side.delayed_ahead(window)
    taken = world.side.engine.take_searches()
    return sorted(world.windows.index(one) for one in taken if one in world.windows)


def recount(world: World, dice: random.Random) -> bool:
    """With the other searches done, a pass leaves the count as it is in truth."""
    window = dice.choice(world.windows)
    world.side.search(window)
    window.recount(world.side.wall_ns)
    begun = bool(window.search_start < window.search_end)
    world.side.search(window)
    if begun:
        assert window.unparked == world.side.delayed_ahead(window)
    return begun


def limit_parked(world: World, dice: random.Random) -> None:
    dice.choice(world.windows).parked_max = dice.choice([0, 1, 3, 1 << 20])


def restart(world: World, dice: random.Random) -> None:
    """The channel comes back from what its journal says."""
    number = dice.randrange(len(world.windows))
    old, recovery = world.windows[number], world.recoveries[number]
    recovery.apply(entries(old.take_journal()))
    for conn in list(world.consumers):
        if old in conn.windows:
            conn.close()
            world.consumers.remove(conn)
    world.take(world.side.flush())
    recovery.apply(entries(old.take_journal()))
    searched = old.searched
    world.side.engine.forget_window(old)
    window = world.side.engine.window(old.tail, recovery.low)
    window.attempts_max = old.attempts_max
    window.order = old.order
    window.aside_max = old.aside_max
    window.measures_latency = old.measures_latency
    window.trace_below = old.trace_below
    finished, strays = recovery.records()
    window.restore(recovery.low, recovery.next, finished, strays)
    window.searched = searched
    window.parked_max = old.parked_max
    for id, (offset, attempts, state, due_ns) in recovery.strays.items():
        if state == Stray.IN_FLIGHT:  # it waits now; that needs no entry
            recovery.strays[id] = (offset, attempts, Stray.WAITING, due_ns)
    world.windows[number] = window
    world.side.windows = world.windows


WEIGHTS: dict[Callable[[World, random.Random], Any], int] = {
    publish: 20,
    publish_with_headers: 8,
    choose_headers: 2,
    publish_delayed: 4,
    publish_traced: 4,
    publish_keyed: 10,
    choose_order: 3,
    refuse: 2,
    choose_sample: 3,
    commit: 14,
    seal: 5,
    decide: 5,
    join: 6,
    join_or_leave_one: 3,
    part: 2,
    change_rdy: 8,
    finish: 20,
    requeue: 8,
    touch: 4,
    pass_time: 10,
    pause: 2,
    toggle_handing: 2,
    move_cursor: 2,
    outdate: 2,
    limit_attempts: 2,
    take_exhausted: 6,
    settle_by_hand: 6,
    bound: 2,
    search: 5,
    recount: 3,
    limit_parked: 2,
    restart: 1,
}


def step(world: World, action: Callable[..., Any], seed: int) -> tuple[Any, ...]:
    """One action and a turn; all that can be seen of it."""
    dice = random.Random(seed)
    outcome = action(world, dice)
    events: list[Any] = []
    outputs = world.outputs()
    for turn in range(TURNS_MAX):  # in which turn of a few it happens is not what matters
        events += world.take(world.side.poll())
        events += world.take(world.side.flush())
        outputs = [a + b for a, b in zip(outputs, world.outputs(), strict=True)]
        if turn > 2 and not world.side.engine.busy:
            break
    for place, conn in enumerate(world.publishers):
        if conn.closing:  # its batch failed; another takes its place
            world.publishers[place] = world.side.connect()
    world.side.validate()
    events.sort(key=lambda event: str(event[1]))  # the order counts within one connection
    seen = outcome, events, outputs, world.trace(), world.state()
    return *seen, world.journals(), world.latencies()


def play(compiled: SimpleNamespace, pure: SimpleNamespace, seed: int) -> None:
    dice = random.Random(seed)
    memory = dice.choice([0, 600, 1 << 20])
    bounds = {
        "RECENT_MEMORY_BYTES_MAX": dice.choice([0, 300, 1 << 20]),
        "SHARED_MEMORY_BYTES_MAX": dice.choice([800, 1500, 1 << 20]),
    }
    sealed_max = dice.choice([1, 2, 5])
    draws = dice.getrandbits(64)
    with mock.patch.multiple(limits, **bounds):
        worlds = [World(form, memory, sealed_max, draws) for form in (compiled, pure)]
    try:
        for number in range(STEPS):
            (action,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
            step_seed = dice.getrandbits(32)
            one, two = (step(world, action, step_seed) for world in worlds)
            assert one == two, f"seed {seed}, step {number}: {action.__name__}"
    finally:
        for world in worlds:
            world.close()


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_a_fixed_history(compiled: SimpleNamespace, pure: SimpleNamespace, seed: int) -> None:
    play(compiled, pure, seed)


def test_fresh_histories(compiled: SimpleNamespace, pure: SimpleNamespace) -> None:
    end = time.monotonic() + FRESH_SECONDS
    while time.monotonic() < end:
        play(compiled, pure, random.SystemRandom().getrandbits(48))


def test_a_difference_would_be_seen(pure: SimpleNamespace) -> None:
    """The comparison itself: two histories that differ in one message do not look alike."""
    worlds = [World(pure, 0) for _ in range(2)]
    worlds[1].tails[0].append(b"one more")
    one, two = (step(world, commit, 1) for world in worlds)
    assert one != two
    for world in worlds:
        world.close()
