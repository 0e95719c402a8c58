"""Random histories of the kernel against the model of tails and channels (`model.py`).

Every delivery has to be one that the model allows at that instant. After every step the counts
agree, no message waits while a consumer has room for it, and what a window has written to its
journal amounts to what it is: a start goes on from that. In the end all is drained, and nothing is
missing. A history is a seed: a failure names it, and `History(seed).play()` shows it.
"""

import os
import random
import time
from typing import Any

import pytest

from cases import IS_LONG, fresh_seed, seeds
from penstock import limits
from penstock.kernel import Event, Held, Order, Section
from penstock.log.fold import fold_entries

from .model import Answer, ChannelModel, ConsumerModel, Forbidden, State, Stored, TailModel
from .turns import MS, SECOND, Message, Side, fin, log_name, messages

STEPS = 60
CONSUMERS_MAX = 4
SEALED_MAX = 3
KEYS = (b"", b"a", b"b", b"c")
TAGS = (b"", b"x", b"y")
DELAYS_NS = (0, 0, 0, 0, 70 * MS, SECOND, 6 * SECOND)
TIMEOUTS_NS = (700 * MS, 2 * SECOND, 7 * SECOND + 1)
JOURNAL_BYTES_MAX = 8_000  # then it is written anew, as a broker does
TOUCH_MAX_NS = 3 * SECOND  # below the longest timeout
ODD_SEEDS = (81, 155, 214)  # keys of what was sent before an order began, or is exhausted
RUN_S = 3.5  # of histories in the ordinary run
LONG_S = float(os.environ.get("PENSTOCK_MODEL_S", "120"))
ANSWERS = {
    Held.DONE: Answer.DONE,
    Held.NOT_IN_FLIGHT: Answer.NOT_IN_FLIGHT,
    Held.NOT_OWNER: Answer.NOT_OWNER,
}


class History:
    """One tail, one or two channels on it, and up to four consumers of each."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.side = Side(seed=seed)
        start = dice.choice((0, 7))
        self.tail = self.side.tail(b"t", start, memory=dice.choice((0, 300, 1 << 20)))
        self.tail.sealed_max = SEALED_MAX
        self.model = TailModel(start)
        self.channels: list[tuple[Any, ChannelModel]] = []
        self.consumers: dict[int, tuple[Any, Any, ChannelModel]] = {}
        self.seen: dict[tuple[str, bytes], int] = {}  # channel and body: id
        self.published = 0
        self.journals: dict[str, bytes] = {}  # by channel
        self.tags = dice.choice((TAGS, (b"",), (b"",)))  # of messages and consumers
        for name in ("one", "two")[: dice.choice((1, 1, 2))]:
            window = self.side.window(self.tail)
            window.order = order = Order.NONE if len(self.tags) > 1 else dice.choice(list(Order))
            window.touch_max_ns = TOUCH_MAX_NS
            self.channels.append((window, ChannelModel(name, order=order)))
            self.journals[name] = b""

    def play(self) -> None:
        steps = (
            [self.publish] * 4
            + [self.settle_sealed, self.ready, self.finish, self.finish, self.finish]
            + [self.requeue, self.touch, self.wait, self.wait, self.trouble]
            + [self.configure] * 2
            + [self.connect] * len(self.tags)
        )
        try:
            self.connect()
            for _ in range(STEPS):
                self.dice.choice(steps)()
                self.look()
            self.drain()
        finally:
            self.side.close()

    # --- publishers ---

    def publish(self) -> None:
        """A batch, which is committed at once or later, or fails."""
        if len(self.model.sealed) == SEALED_MAX:
            return
        batch = []
        delays_ns = self.dice.choice((DELAYS_NS, (0,)))
        for _ in range(self.dice.choice((1, 2, 5, 30))):
            self.published += 1
            delay_ns = self.dice.choice(delays_ns)
            due_ns = self.side.wall_ns + delay_ns if delay_ns else 0
            key, tag = self.dice.choice(KEYS), self.dice.choice(self.tags)
            sections: dict[int, int | bytes] = {Section.KEY: key} if key else {}
            if tag:
                sections[Section.HEADERS] = b'{"##client_dispatch_tag":"%b"}' % tag
            one = Stored(b"%d" % self.published, due_ns, key, tag)
            self.tail.append(one.body, due_ns, sections)
            batch.append(one)
        self.side.seal(self.tail)
        self.model.seal(batch)
        if self.dice.random() < 0.7:
            self.settle_sealed()

    def settle_sealed(self) -> None:
        if not self.model.sealed:
            return
        count = self.dice.randrange(len(self.model.sealed) + 1)
        ends = [self.model.ends[1]]
        for batch in self.model.sealed:
            ends.append(ends[-1] + len(batch))
        if self.dice.random() < 0.2:
            self.tail.fail_from(ends[count])
            written = self.side.written[log_name(self.tail)]
            del written[len(written) - len(self.model.sealed) + count :]
            self.model.fail_from(count)
        else:
            self.tail.commit_to(ends[count])
            self.model.commit(count)

    # --- consumers ---

    def connect(self) -> None:
        window, channel = self.dice.choice(self.channels)
        if len(channel.consumers) < CONSUMERS_MAX:
            timeout_ns, tag = self.dice.choice(TIMEOUTS_NS), self.dice.choice(self.tags)
            conn = self.join(window, channel, timeout_ns, tag)
            self.set_rdy(conn, channel, self.dice.choice((0, 1, 2, 20)))

    def join(self, window: Any, channel: ChannelModel, timeout_ns: int, tag: bytes) -> Any:
        conn = self.side.connect()
        self.settle()
        conn.timeout_ns, conn.tag = timeout_ns, tag
        conn.subscribe(window)
        channel.consumers[conn.serial] = ConsumerModel(conn.serial, timeout_ns, tag=tag)
        self.consumers[conn.serial] = conn, window, channel
        return conn

    def set_rdy(self, conn: Any, channel: ChannelModel, rdy: int) -> None:
        conn.feed(b"RDY %d\n" % rdy)
        channel.consumers[conn.serial].rdy = rdy

    def someone(self) -> tuple[Any, Any, ChannelModel] | None:
        return self.dice.choice(list(self.consumers.values())) if self.consumers else None

    def ready(self) -> None:
        if found := self.someone():
            self.set_rdy(found[0], found[2], self.dice.choice((0, 1, 2, 7, 50)))

    def some_message(self, conn: Any, channel: ChannelModel) -> tuple[bytes, int] | None:
        """Most often one that the consumer has in flight; else anything that was ever seen."""
        held = [copy.body for copy in channel.held_by(conn.serial)]
        if held and self.dice.random() < 0.9:
            body = self.dice.choice(held)
        else:
            known = [body for name, body in self.seen if name == channel.name]
            if not known:
                return None
            body = self.dice.choice(known)
        return body, self.seen[channel.name, body]

    def finish(self) -> None:
        """Some by the window's call, whose answer is compared, some as a command, and some as the
        commands of a consumer that finishes what it has in the order in which it came."""
        found = self.someone()
        if found is None:
            return
        conn, window, channel = found
        if self.dice.random() < 0.3:
            return self.finish_row(conn, channel)
        for _ in range(self.dice.choice((1, 1, 3, 20))):
            one = self.some_message(conn, channel)
            if one is None:
                break
            answer = channel.finish(conn.serial, one[0])
            if self.dice.random() < 0.5:
                assert ANSWERS[window.finish(conn.serial, one[1])] is answer
            else:
                conn.feed(fin(one[1]))
                kinds = [event[0] for event in self.hear()]
                assert kinds.count(Event.FIN_FAILED) == (answer is not Answer.DONE)

    def finish_row(self, conn: Any, channel: ChannelModel) -> None:
        copies = (
            channel.held_by(conn.serial) if self.dice.random() < 0.8 else channel.copies.values()
        )
        bodies = [copy.body for copy in sorted(copies, key=lambda copy: copy.offset)]
        chosen = bodies[self.dice.randrange(len(bodies) // 2 + 1) :][: self.dice.choice((2, 9, 30))]
        if chosen and self.dice.random() < 0.3:
            chosen.insert(self.dice.randrange(len(chosen)), self.dice.choice(chosen))
        if chosen and self.dice.random() < 0.3:
            del chosen[self.dice.randrange(len(chosen))]
        lines = []
        for body in chosen:
            if id := self.seen.get((channel.name, body)):
                lines.append((b"%016x" % id, channel.finish(conn.serial, body)))
        conn.feed(b"".join(b"FIN %b\n" % text for text, _ in lines))
        failed = [event[2:] for event in self.hear() if event[0] == Event.FIN_FAILED]
        expected = [line for line in lines if line[1] is not Answer.DONE]
        assert [(text, ANSWERS[Held(held)]) for text, held in failed] == expected

    def requeue(self) -> None:
        found = self.someone()
        one = self.some_message(found[0], found[2]) if found else None
        if found is None or one is None:
            return
        conn, window, channel = found
        delay_ns = self.dice.choice(DELAYS_NS)
        answer = channel.requeue(conn.serial, one[0], delay_ns, self.side.wall_ns)
        assert ANSWERS[window.requeue(conn.serial, one[1], delay_ns, self.side.wall_ns)] is answer

    def touch(self) -> None:
        found = self.someone()
        one = self.some_message(found[0], found[2]) if found else None
        if found is None or one is None:
            return
        conn, window, channel = found
        answer = channel.touch(conn.serial, one[0], TOUCH_MAX_NS, self.side.mono_ns)
        assert ANSWERS[window.touch(conn.serial, one[1], self.side.mono_ns)] is answer

    # --- time and trouble ---

    def wait(self) -> None:
        self.side.pass_time(self.dice.choice((1, 10 * MS, 400 * MS, SECOND, 3 * SECOND)))

    def trouble(self) -> None:
        window, channel = self.dice.choice(self.channels)
        found = self.someone()
        kind = self.dice.choice(
            ("pause", "unpause", "hand", "hand", "empty", "seek", "close", "hang up", "restart")
        )
        if kind in ("pause", "unpause"):
            window.paused = channel.paused = kind == "pause"
        elif kind == "hand":
            self.tail.handing = self.model.handing = not self.model.handing
            if self.model.handing:
                self.tail.hand()
        elif kind == "empty":
            window.empty()
            channel.empty()
        elif kind == "seek":
            offset = self.dice.randint(self.model.start, self.model.ends[0])
            window.seek(offset)
            self.model.seek(channel, offset, self.side.wall_ns)
        elif kind == "restart":
            self.restart(window, channel)
        elif found is not None and kind == "close":
            found[0].closing = True
            found[2].consumers[found[0].serial].closing = True
        elif found is not None:
            self.leave(found[0].serial)

    def configure(self) -> None:
        window, channel = self.dice.choice(self.channels)
        kind = self.dice.choice(("order", "order", "aside", "attempts", "attempts"))
        if kind == "order" and len(self.tags) == 1:
            order = self.dice.choice(list(Order))
            window.order = order
            channel.keep_order(order)
        elif kind == "aside":
            window.aside_max = self.dice.choice((0, 1, 5, limits.ASIDE_MAX))
            window.paused = channel.paused  # it looks again
        elif kind == "attempts":
            window.attempts_max = attempts_max = self.dice.choice((0, 0, 1, 2, 3))
            channel.limit_attempts(attempts_max)

    def leave(self, serial: int) -> None:
        """What it has in flight stays so until it times out."""
        conn, _, channel = self.consumers.pop(serial)
        conn.close()
        del channel.consumers[serial]

    def restart(self, window: Any, channel: ChannelModel) -> None:
        """Another window begins with what the journal of the one before amounts to."""
        for serial in list(channel.consumers):
            self.leave(serial)
        self.settle()
        self.note(window, channel)
        state = fold_entries(self.journals[channel.name])
        self.side.engine.forget_window(window)
        self.side.windows.remove(window)
        again = self.side.window(self.tail, state.low)
        again.order, again.touch_max_ns, again.paused = window.order, TOUCH_MAX_NS, window.paused
        again.aside_max, again.attempts_max = window.aside_max, window.attempts_max
        again.restore(state.low, state.next, state.finished, state.strays)
        again.searched = window.searched
        self.channels[self.channels.index((window, channel))] = again, channel
        channel.restart()
        assert fold_entries(self.journals[channel.name] + again.take_journal()) == state
        self.journals[channel.name] = again.snapshot()

    def note(self, window: Any, channel: ChannelModel) -> None:
        self.journals[channel.name] += window.take_journal()
        written = fold_entries(self.journals[channel.name])
        assert written == fold_entries(window.snapshot()), channel.name
        if len(self.journals[channel.name]) > JOURNAL_BYTES_MAX:
            self.journals[channel.name] = window.snapshot()

    # --- what the kernel did ---

    def look(self) -> None:
        self.model.hand([channel for _, channel in self.channels], self.side.wall_ns)
        for _, channel in self.channels:
            channel.pass_time(self.side.mono_ns, self.side.wall_ns)
        self.side.tick()
        self.hear()
        self.side.validate()
        ends = (self.tail.handed_end, self.tail.committed_end, self.tail.written_end)
        assert ends == self.model.ends
        for window, channel in self.channels:
            self.compare(window, channel)
            self.note(window, channel)

    def settle(self) -> list[tuple[Any, ...]]:
        """Turns, with blocks loaded and delayed messages searched, until nothing is left to do."""
        events: list[tuple[Any, ...]] = []
        for _ in range(200):
            more = self.side.settle()
            events += more
            failed = [event[1] for event in more if event[0] == Event.FIN_FAILED]
            for conn in failed:
                conn.resume()
            needs = [*self.side.serve_needs(more), *failed]
            for window in self.side.engine.take_searches():
                self.side.search(window)
                needs.append((0, 0))
            if not needs:
                return events
        raise AssertionError("the kernel needs something for ever")

    def hear(self) -> list[tuple[Any, ...]]:
        """All that consumers get, until they get no more; returns the events."""
        events = self.settle()
        got = True
        while got:
            got = False
            for conn, _, channel in self.consumers.values():
                for message in messages(conn.take_output()):
                    self.delivered(conn, channel, message)
                    got = True
            events += self.settle()
        return events

    def delivered(self, conn: Any, channel: ChannelModel, message: Message) -> None:
        key = (channel.name, message.body)
        if self.seen.setdefault(key, message.id) != message.id:
            raise Forbidden(f"{message.body!r} has another id")
        channel.deliver(
            conn.serial, message.body, message.attempts, self.side.mono_ns, self.side.wall_ns
        )

    def compare(self, window: Any, channel: ChannelModel) -> None:
        waiting, delayed, flying, exhausted = (
            channel.in_state(state)
            for state in (State.WAITING, State.DELAYED, State.IN_FLIGHT, State.EXHAUSTED)
        )
        # What is exhausted counts as depth until it is its turn.
        counts = (window.depth + window.exhausted, window.delayed, window.in_flight)
        assert counts == (len(waiting) + len(exhausted), len(delayed), len(flying))
        assert (window.requeue_count, window.timeout_count) == (channel.requeues, channel.timeouts)
        if not channel.paused:
            # With too many aside, the cursor waits at a key that is busy.
            end = window.next + 1 if window.behind >= window.aside_max else self.tail.handed_end
            stuck = [
                copy
                for copy in waiting
                if copy.offset < end and channel.must_go(copy) and channel.has_room(copy)
            ]
            assert stuck == [], "a consumer has room"

    def drain(self) -> None:
        """All that was committed comes, sooner or later, until it is finished."""
        self.tail.handing = self.model.handing = True
        self.tail.hand()
        for serial in list(self.consumers):
            self.leave(serial)
        for window, channel in self.channels:
            window.paused = channel.paused = False
            window.attempts_max = 0
            channel.limit_attempts(0)
        self.look()
        for window, channel in self.channels:
            for conn in [self.join(window, channel, SECOND, tag) for tag in self.tags]:
                self.set_rdy(conn, channel, 50)
            rounds = 0
            while channel.copies:
                self.look()
                for conn, _, _ in self.consumers.values():
                    for copy in channel.held_by(conn.serial):
                        conn.feed(fin(self.seen[channel.name, copy.body]))
                        channel.finish(conn.serial, copy.body)
                self.look()
                self.side.pass_time(SECOND)
                rounds += 1
                assert rounds < 500, f"{len(channel.copies)} messages never come"


def play(seed: int) -> None:
    try:
        History(seed).play()
    except BaseException:
        print(f"seed {seed}")
        raise


def play_for(seconds: float) -> int:
    end = time.monotonic() + seconds
    dice = random.Random(fresh_seed())
    played = 0
    while played < 10 or time.monotonic() < end:
        play(dice.getrandbits(48))
        played += 1
    return played


@pytest.mark.timeout(LONG_S + 300)
def test_histories() -> None:
    """Some that are always the same, and fresh ones."""
    for seed in (*seeds(10, 20), *ODD_SEEDS):
        play(seed)
    print(play_for(LONG_S if IS_LONG else RUN_S), "histories")
