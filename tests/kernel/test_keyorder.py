"""Order of a channel in a partition: of each key, and of everything."""

import random
from collections import Counter
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.kernel import Held, Order, Section, Stray
from penstock.log.fold import fold_entries

from .model import Forbidden
from .turns import MS, SECOND, Side, fin, messages


@pytest.fixture
def window(side: Side) -> Any:
    window = side.window(side.tail())
    window.order = Order.KEY
    return window


def say(side: Side, window: Any, words: str) -> list[int]:
    """Publish "a1 b1 -": one message a word in one batch, its first letter the key, "-" without.
    Returns the ids."""
    for word in words.split():
        sections = {} if word.startswith("-") else {Section.KEY: word[:1].encode()}
        window.tail.append(word.encode(), 0, sections)
    first_id = side.next_id
    side.commit()
    return [first_id + number for number, _ in enumerate(words.split())]


def heard(side: Side, conn: Any) -> str:
    return b" ".join(message.body for message in side.received(conn)).decode()


def done(side: Side, conn: Any, *ids: int) -> str:
    assert side.said(conn, fin(*ids)) == []
    return heard(side, conn)


def test_what_is_aside_can_be_settled_by_hand(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, a3, _ = say(side, window, "a1 a2 a3 a4")
    assert heard(side, conn) == "a1"
    assert [r.offset for r in window.stray_records(Stray.BEHIND, 10)] == [1, 2, 3]
    assert window.settle_stray(a2, -1)
    assert window.settle_stray(a3, 0)  # it still has to wait for those before it
    assert (window.behind, heard(side, conn)) == (2, "")
    assert done(side, conn, a1) == "a3"
    assert window.settle_stray(a3, -1) is False
    assert done(side, conn, a3) == "a4"


def test_what_is_delayed_by_hand_before_it_was_sent_loses_its_place(
    side: Side, window: Any
) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, *_ = say(side, window, "a1 a2 a3")
    heard(side, conn)
    assert window.settle_stray(a2, side.wall_ns + SECOND)
    assert (window.behind, window.delayed) == (1, 1)
    assert done(side, conn, a1) == "a3"
    window.paused = True
    window.requeue(conn.serial, a1 + 2, 0, side.wall_ns)
    assert window.settle_stray(a1 + 2, side.wall_ns + SECOND)  # it was sent, and holds its key
    window.paused = False
    side.pass_time(SECOND)
    side.tick()
    assert heard(side, conn) == "a3"


def test_skipped_and_outdated_messages_free_their_key(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    say(side, window, "a1 a2 a3 a4")
    heard(side, conn)
    assert window.lose_range(1, 2) == 1
    assert window.outdate(3) == 1
    assert (window.behind, window.in_flight) == (1, 1)
    side.pass_time(61 * SECOND)
    side.tick()
    assert heard(side, conn) == "a4"


def test_a_hot_key_stops_the_cursor_at_the_bound(side: Side, window: Any) -> None:
    assert window.aside_max == limits.ASIDE_MAX
    window.aside_max = 3
    ids = say(side, window, "a1 a2 a3 a4 a5 a6 b1")
    conn = side.consumer(window, rdy=10)
    assert heard(side, conn) == "a1"
    assert (window.behind, window.next, window.depth) == (3, 4, 6)
    assert done(side, conn, ids[0]) == "a2"
    assert (window.behind, window.next) == (3, 5)
    assert window.lose_range(2, 3) == 1  # there is room again
    window.paused = False
    assert heard(side, conn) == "b1"
    assert window.behind == 3
    say(side, window, "a7 -1")
    assert heard(side, conn) == ""
    window.empty()
    say(side, window, "a8")
    assert heard(side, conn) == "a8"


# --- after a restart, and when the order is changed ---


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_what_was_delayed_before_a_restart_stands_behind_the_cursor(
    side: Side, tail: Any, order: Order
) -> None:
    """The order begins after the restart, when nothing before it was sent again."""
    ids = say(side, side.window(tail), "a1 a2 a3")
    window = side.window(tail, 0)
    window.restore(0, 3, [], [(2, ids[2], 1, Stray.DELAYED, side.wall_ns + SECOND, 0)])
    window.order = order
    conn = side.consumer(window, rdy=10)
    assert heard(side, conn) == ""
    side.pass_time(SECOND)
    side.tick()
    assert heard(side, conn) == "a1"
    assert done(side, conn, ids[0]) == "a2"
    assert done(side, conn, ids[1]) == "a3"


def spent(side: Side, order: Order) -> tuple[Any, ...]:
    """A window whose order begins while `a1` is in flight and `a2` has used its attempts."""
    window = side.window(side.tail())
    window.attempts_max = 2
    one = side.consumer(window, rdy=10)
    a1, a2 = say(side, window, "a1 a2")
    assert heard(side, one) == "a1 a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert heard(side, one) == "a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert window.exhausted == 1
    assert [record.id for record in window.take_exhausted(9)] == [a2]
    one.rdy = 0
    window.order = order
    return window, one, side.consumer(window, rdy=10), a1, a2


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
@pytest.mark.parametrize("settled", [True, False])
def test_what_was_taken_before_it_went_behind_can_be_settled(
    side: Side, order: Order, settled: bool
) -> None:
    window, one, _, a1, a2 = spent(side, order)
    side.settle()
    assert window.behind == 1
    assert window.settle_exhausted(a2, settled)
    side.said(one, fin(a1))
    assert [record.id for record in window.take_exhausted(9)] == ([] if settled else [a2])
    assert window.settle_exhausted(a2, True) == (not settled)
    assert (window.depth, window.exhausted) == (0, 0)


# --- random histories of ordered windows, and a model that knows what order means ---


STEPS = 150
KEYS = 4
ODD_SEEDS = (75, 127, 236, 246, 276)  # what was scheduled comes due before an exhausted message
SEEDS = (*range(20), *ODD_SEEDS)
TIMEOUT_NS = 2 * SECOND


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
            raise Forbidden(f"offset {offset} was done, and comes again")
        key = self.key(offset)
        if key is None:
            return
        beside = [other for other in in_flight if other != offset and self.key(other) == key]
        if beside:
            raise Forbidden(f"offset {offset} comes while {beside} of its key are in flight")
        before = set(range(offset)) - self.done - self.scheduled
        missing = [other for other in sorted(before) if self.key(other) == key]
        if missing and offset not in self.scheduled:
            raise Forbidden(f"offset {offset} comes before {missing} of its key")

    def stuck(self, behind: list[int], exhausted: list[int]) -> None:
        """`behind` are offsets that wait for others of their keys."""
        for offset in behind:
            key = self.key(offset)
            same = [other for other in exhausted if self.key(other) == key]
            if key is not None and same and min(same) > offset:
                raise Forbidden(f"offset {offset} waits behind {same}, which are exhausted")

    def finish(self, offset: int) -> None:
        self.done.add(offset)
        self.finished[offset] += 1

    def seek(self, offset: int) -> None:
        """What is below is not sent any more."""
        self.done = set(range(offset))
        self.finished.clear()


class Story:
    def __init__(self, order: int, seed: int) -> None:
        self.dice = random.Random(seed)
        self.side = Side(rdy_count_max=200)
        self.model = Model(order)
        self.tail = self.side.tail(memory=self.dice.choice([0, 500, 1 << 20]))
        self.window = self.side.window(self.tail)
        self.window.order = order
        self.journal = b""
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
        for step in self.dice.choices(
            [self.publish, self.finish, self.requeue, self.pass_time], k=4
        ):
            step()
            self.look()
        self.model.order = self.window.order = self.dice.choice([Order.KEY, Order.STRICT])

    def restart(self) -> None:
        state = fold_entries(self.journal + self.window.take_journal())
        for conn in self.conns:
            conn.close()
        old = self.window
        self.side.engine.forget_window(old)
        self.window = self.side.engine.window(self.tail, state.low)
        self.side.windows[:] = [self.window]
        self.window.order, self.window.aside_max = old.order, old.aside_max
        self.window.attempts_max = old.attempts_max
        self.window.restore(state.low, state.next, state.finished, state.strays)
        self.window.searched = old.searched
        self.journal = self.window.snapshot()
        self.conns = [self.join() for _ in range(3)]

    # --- what comes ---

    def look(self) -> None:
        for _ in range(100):
            events = self.side.turn()
            self.side.serve_needs(events)
            if self.window.search_start < self.window.search_end:
                self.side.search(self.window)
            come = [
                (conn, message) for conn in self.conns for message in messages(conn.take_output())
            ]
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
        self.journal += self.window.take_journal()

    def waiting(self, state: Stray) -> list[int]:
        """Offsets of strays in this state; none while keys may still have to be looked up."""
        has_room = any(conn.rdy > conn.in_flight for conn in self.conns)
        if self.window.paused or not has_room:
            return []
        return [record.offset for record in self.window.stray_records(state, 10_000)]

    # --- the whole ---

    def play(self) -> None:
        weights = {
            self.publish: 12, self.finish: 30, self.requeue: 8, self.touch: 3, self.pass_time: 6,
            self.change_rdy: 4, self.disconnect: 2, self.pause: 2, self.bound: 2, self.seek: 1,
            self.switch: 1, self.loosen: 3, self.limit: 2, self.restart: 2,
        }  # fmt: skip
        for _ in range(STEPS):
            (step,) = self.dice.choices(list(weights), list(weights.values()))
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
def test_the_order_holds_in_every_history(order: Order, seed: int) -> None:
    story = Story(order, seed)
    story.play()
    story.side.close()
