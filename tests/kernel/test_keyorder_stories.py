"""Random histories of ordered windows, and a model that knows what order means.

A history has publishes, several consumers with a little room each, FIN, REQ with and without delay,
TOUCH, timeouts, disconnections, restarts from the journal, seeks, pauses, changes of the bound for
what is aside and of that for attempts, and messages that outlive the memory. After each step the
model looks at all that came: when a message comes, everything of its key that stands before it in
the log is done, and nothing else of its key is in flight. So it is, too, of what was sent while the
window had no order or another, once it comes again. And nothing waits behind what has used its
attempts and stands after it. At the end everything is done, once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from cases import each
from penstock.kernel import Held, Order, Section, Stray

from .recovery import Recovery
from .turns import MS, SECOND, Message, Side, entries, fin, messages

STEPS = 150
KEYS = 4
ODD_SEEDS = (75, 127, 236, 246, 276)  # what was scheduled comes due before an exhausted message
SEEDS = (*range(20), *ODD_SEEDS)
TIMEOUT_NS = 2 * SECOND


class Disorder(Exception):
    """What the model does not allow."""


class Model:
    def __init__(self, order: int) -> None:
        self.order = order
        self.keys: list[bytes | None] = []  # by offset
        self.scheduled: set[int] = set()  # offsets that have no order until they are due
        self.done: set[int] = set()
        self.finished: Counter[int] = Counter()

    def key(self, offset: int) -> bytes | None:
        if self.order == Order.NONE:
            return None
        return b"all" if self.order == Order.STRICT else self.keys[offset]

    def sent(self, offset: int, in_flight: list[int]) -> None:
        """`in_flight` are offsets, this one among them."""
        if offset in self.done:
            raise Disorder(f"offset {offset} was done, and comes again")
        key = self.key(offset)
        if key is None:
            return
        beside = [other for other in in_flight if other != offset and self.key(other) == key]
        if beside:
            raise Disorder(f"offset {offset} comes while {beside} of its key are in flight")
        before = set(range(offset)) - self.done - self.scheduled
        missing = [other for other in sorted(before) if self.key(other) == key]
        if missing and offset not in self.scheduled:
            raise Disorder(f"offset {offset} comes before {missing} of its key")

    def stuck(self, behind: list[int], exhausted: list[int]) -> None:
        """`behind` are offsets that wait for others of their keys."""
        for offset in behind:
            before = [other for other in exhausted if other > offset]
            held_up = [other for other in before if self.key(other) == self.key(offset)]
            if held_up and self.key(offset) is not None:
                raise Disorder(f"offset {offset} waits behind {held_up}, which are exhausted")

    def finish(self, offset: int) -> None:
        self.done.add(offset)
        self.finished[offset] += 1

    def seek(self, offset: int) -> None:
        """What is below is not sent any more."""
        self.done = set(range(offset))
        self.finished.clear()


class Story:
    def __init__(self, kernel: ModuleType, order: int, seed: int) -> None:
        self.dice = random.Random(seed)
        self.side = Side(kernel, rdy_count_max=200)
        self.model = Model(order)
        self.tail = self.side.tail(memory=self.dice.choice([0, 500, 1 << 20]))
        self.window = self.side.window(self.tail)
        self.window.order = order
        self.recovery = Recovery(0)
        self.conns = [self.join() for _ in range(3)]
        self.held: dict[Any, list[int]] = {}  # ids
        self.home: dict[int, int] = {}  # offsets, by id

    def join(self) -> Any:
        conn = self.side.connect()
        self.side.poll()
        conn.subscribe(self.window)
        conn.timeout_ns = TIMEOUT_NS
        conn.rdy = self.dice.choice([1, 2, 5, 50])
        return conn

    # --- steps ---

    def publish(self) -> None:
        for _ in range(self.dice.randrange(1, 8)):
            key = b"%d" % self.dice.randrange(KEYS) if self.dice.random() < 0.9 else None
            due_ns = self.side.wall_ns + SECOND if self.dice.random() < 0.08 else 0
            if due_ns:
                self.model.scheduled.add(len(self.model.keys))
            self.model.keys.append(key)
            self.tail.append(
                b"%d" % len(self.model.keys), due_ns, {Section.KEY: key} if key else {}
            )
        self.side.commit()

    def pick(self) -> tuple[Any, int] | None:
        holding = [conn for conn in self.conns if self.held.get(conn)]
        if not holding:
            return None
        conn = self.dice.choice(holding)
        return conn, self.held[conn].pop(self.dice.randrange(len(self.held[conn])))

    def finish(self) -> None:
        picked = self.pick()
        if picked:
            conn, id = picked
            offset = self.home[id]
            if self.window.holder(id) == conn.serial:
                self.model.finish(offset)
            conn.feed(fin(id))
            self.side.poll()

    def requeue(self) -> None:
        picked = self.pick()
        if picked:
            conn, id = picked
            delay_ns = self.dice.choice([0, 0, SECOND])
            Held(self.window.requeue(conn.serial, id, delay_ns, self.side.wall_ns))

    def touch(self) -> None:
        picked = self.pick()
        if picked:
            conn, id = picked
            self.held[conn].append(id)
            self.window.touch(conn.serial, id, self.side.mono_ns)

    def pass_time(self) -> None:
        self.side.pass_time(self.dice.choice([MS, 500 * MS, TIMEOUT_NS]))
        self.side.tick()

    def change_rdy(self) -> None:
        self.dice.choice(self.conns).rdy = self.dice.choice([0, 1, 3, 50])

    def disconnect(self) -> None:
        place = self.dice.randrange(len(self.conns))
        self.conns[place].close()
        self.conns[place] = self.join()

    def pause(self) -> None:
        self.window.paused = not self.window.paused

    def bound(self) -> None:
        self.window.aside_max = self.dice.choice([0, 1, 5, 1 << 16])

    def limit(self) -> None:
        """What has used its attempts stays, until it may have more."""
        self.window.attempts_max = self.dice.choice([0, 0, 2, 3])

    def seek(self) -> None:
        offset = self.dice.randint(0, self.tail.handed_end)
        self.window.seek(offset)
        self.model.seek(offset)

    def switch(self) -> None:
        """To no order and back, with nothing sent in between: no message may jump ahead."""
        order, paused = self.window.order, self.window.paused
        self.window.paused = True
        self.window.order = Order.NONE
        self.side.validate()
        self.window.order = order
        self.window.paused = paused

    def loosen(self) -> None:
        """No order, until some more is sent; then an order begins with that in flight."""
        self.model.order = self.window.order = Order.NONE
        self.look()
        for name in self.dice.choices(["publish", "finish", "requeue", "pass_time"], k=4):
            getattr(self, name)()
            self.look()
        self.model.order = self.window.order = self.dice.choice([Order.KEY, Order.STRICT])

    def restart(self) -> None:
        self.recovery.apply(entries(self.window.take_journal()))
        for conn in self.conns:
            conn.close()
        old = self.window
        self.side.engine.forget_window(old)
        self.window = self.side.engine.window(self.tail, self.recovery.low)
        self.side.windows[:] = [self.window]
        self.window.order, self.window.aside_max = old.order, old.aside_max
        self.window.attempts_max = old.attempts_max
        self.window.restore(self.recovery.low, self.recovery.next, *self.recovery.records())
        self.window.searched = old.searched
        self.recovery = Recovery(0)
        self.recovery.apply(entries(self.window.snapshot()))
        self.conns = [self.join() for _ in range(3)]

    # --- what comes ---

    def look(self) -> None:
        for _ in range(100):
            events = self.side.turn()
            self.side.serve_needs(events)
            if self.window.search_start < self.window.search_end:
                self.side.search(self.window)
            come = [(conn, message) for conn in self.conns for message in self.come(conn)]
            if not come and not self.side.engine.busy:
                break
            in_flight = [record[0] for record in self.window.in_flight_records(10_000)]
            for conn, message in sorted(come, key=lambda pair: pair[1].body):
                offset = int(message.body) - 1
                self.home[message.id] = offset
                self.held.setdefault(conn, []).append(message.id)
                self.model.sent(offset, in_flight)
        self.side.validate()
        self.model.stuck(self.waiting(Stray.BEHIND), self.waiting(Stray.EXHAUSTED))
        self.recovery.apply(entries(self.window.take_journal()))

    def waiting(self, state: Stray) -> list[int]:
        """Offsets of strays in this state; none while keys may still have to be looked up."""
        has_room = any(conn.rdy > conn.in_flight for conn in self.conns)
        if self.window.paused or not has_room:
            return []
        return [record.offset for record in self.window.stray_records(state, 10_000)]

    def come(self, conn: Any) -> list[Message]:
        return messages(conn.take_output())

    # --- the whole ---

    STEPS_BY_WEIGHT: tuple[tuple[str, int], ...] = (
        ("publish", 12),
        ("finish", 30),
        ("requeue", 8),
        ("touch", 3),
        ("pass_time", 6),
        ("change_rdy", 4),
        ("disconnect", 2),
        ("pause", 2),
        ("bound", 2),
        ("seek", 1),
        ("switch", 1),
        ("loosen", 3),
        ("limit", 2),
        ("restart", 2),
    )

    def play(self) -> None:
        names = [name for name, _ in self.STEPS_BY_WEIGHT]
        weights = [weight for _, weight in self.STEPS_BY_WEIGHT]
        for _ in range(STEPS):
            (name,) = self.dice.choices(names, weights)
            step: Callable[[], None] = getattr(self, name)
            step()
            self.look()
        self.drain()

    def drain(self) -> None:
        """Everything is finished at last."""
        self.window.paused = False
        self.window.attempts_max = 0
        for _ in range(4 * len(self.model.keys) + 100):
            for conn in self.conns:
                conn.rdy = 50
            self.look()
            while any(self.held.get(conn) for conn in self.conns):
                self.finish()
                self.look()
            if self.window.depth + self.window.in_flight + self.window.delayed == 0:
                break
            self.side.pass_time(TIMEOUT_NS)
            self.side.tick()
        assert self.model.done == set(range(len(self.model.keys)))
        assert set(self.model.finished.values()) <= {1}
        assert (self.window.low, self.window.behind) == (len(self.model.keys), 0)


@each("order", [Order.KEY, Order.STRICT])
@each("seed", SEEDS)
def test_the_order_holds_in_every_history(kernel: ModuleType, order: Order, seed: int) -> None:
    story = Story(kernel, order, seed)
    story.play()
    story.side.close()


def test_the_model_finds_a_window_without_order(kernel: ModuleType) -> None:
    """The check itself: where the window keeps none, it is missed."""
    story = Story(kernel, Order.KEY, seed=1)
    story.window.order = Order.NONE
    story.STEPS_BY_WEIGHT = tuple(step for step in story.STEPS_BY_WEIGHT if step[0] != "loosen")
    with pytest.raises(Disorder, match="of its key"):
        story.play()
    story.side.close()
