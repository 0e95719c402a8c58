"""However the bytes of a client are cut, the same things happen.

A script is a row of commands of one consuming and publishing client, intact or damaged. It is
played whole and in random pieces; events, log and output must not differ.
"""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from cases import fresh_seed
from penstock import kernel
from penstock.kernel import BadPub, Event

from .turns import FIRST_ID, MAGIC, Side, fin, log_name, mpub, mpub_ext, pub, pub_ext, size

DELIVERED = 5
BODY_MAX = 300


class Play:
    """One conversation, answered by rule, with all that came of it written down."""

    def __init__(self) -> None:
        self.side = Side(message_bytes_max=100, body_bytes_max=BODY_MAX)
        self.happened: list[tuple[Any, ...]] = []
        tail = self.side.tail()
        self.side.tail(b"u")
        for number in range(3):
            self.side.tail(b"w", partition=number)
        self.side.engine.set_extended(b"w", True)
        window = self.side.window(tail)
        self.conn = self.side.engine.open_detached()
        self.conn.subscribe(window)
        self.conn.rdy = DELIVERED
        self.side.publish(tail, *[b"to be finished"] * DELIVERED)
        self.side.flush()
        self.output = bytes(self.conn.take_output())
        self.conn.rdy = 0

    def hear(self, data: bytes) -> None:
        self.conn.feed(data)
        self.poll()

    def poll(self) -> None:
        events = self.side.poll()
        while events:
            for event in events:
                self.answer(event)
            events = self.side.poll()

    def answer(self, event: tuple[Any, ...]) -> None:
        kind, conn, *rest = event
        given = [log_name(member) if hasattr(member, "topic") else member for member in rest]
        self.happened.append((int(kind), *given))
        if kind == Event.LINE and rest[0][0] == b"IDENTIFY":
            conn.read_body(BODY_MAX)
        elif kind in (Event.LINE, Event.BODY):
            conn.reply(0, b"answer")
            conn.resume()
        elif kind == Event.TOPIC:
            self.side.tail(rest[1])
            conn.resume()
        elif kind == Event.TRACED:
            conn.reply(0, b"traced")
            conn.resume()
        elif kind == Event.FIN_FAILED:
            conn.resume()
        elif kind == Event.BAD_PUB and rest[1] == BadPub.HEADER_REFUSED:
            conn.reply(1, b"refused")
            conn.resume()
        elif kind in (Event.BAD_PUB, Event.BODY_SIZE, Event.BAD_MAGIC):
            conn.reply(1, b"error")

    def end(self) -> tuple[Any, ...]:
        """Commit, until nothing more comes of it."""
        for _ in range(50):
            self.side.commit()
            for event in self.side.flush():
                self.answer(event)
            if Event.CLOSED not in [event[0] for event in self.happened]:
                self.output += self.conn.take_output()
            self.poll()
            if not (self.side.engine.busy or self.side.engine.dirty_tails()):
                break
        self.side.validate()
        outcome = (
            self.happened,
            self.output,
            {
                topic: [body for batch in batches for body in kernel.decode_bodies(batch, 0)]
                for topic, batches in self.side.written.items()
            },
            (self.conn.rdy, self.conn.in_flight, self.conn.finish_count, self.conn.pending),
            self.conn.published,
            self.side.windows[0].take_journal(),
        )
        self.side.close()
        return outcome


def comparable(outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    """RDY and FIN may overtake what waits for an answer, so soft errors are told apart."""
    happened = outcome[0]
    soft = [event for event in happened if event[0] == Event.FIN_FAILED]
    rest = [event for event in happened if event[0] != Event.FIN_FAILED]
    return (soft, rest, *outcome[1:])


@pytest.mark.parametrize(("chunk", "count"), [(1, 3_000), (7, 30_000), (1000, 30_000)])
def test_a_long_mpub_in_small_pieces_is_not_read_again_and_again(
    side: Side, tail: Any, conn: Any, chunk: int, count: int
) -> None:
    """With work in proportion to the square of its length this would take minutes."""
    text = mpub(b"t", [b"x" * 3] * count)
    for at in range(0, len(text), chunk):
        conn.feed(text[at : at + chunk])
        assert side.poll() == []
    side.settle()
    assert tail.committed_end == count


# --- hostile byte streams ---


ROUNDS_FIXED = 400
FRESH_S = 1.5
BITS_OF_SPEECH = [b"PUB ", b"MPUB ", b"FIN ", b"RDY ", b"\n", b"\r\n", b" ", b"\x00", b"#ephemeral"]

HEADERS = [b"", b"{}", b'{"key":"a"}', b'{"key":"\\u00e9","x":"y"}', b'{"##trace_id":"4"}', b"[]"]


def command(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.randint(1, 30))
    return rng.choice(
        [
            pub(rng.choice([b"t", b"u", b"v#ephemeral", b"bad/name"]), body),
            mpub(b"t", [body] * rng.randint(1, 4)),
            pub_ext(rng.choice([b"t", b"w", b"w 2"]), rng.choice(HEADERS), body),
            mpub_ext(b"w", [(rng.choice(HEADERS), body) for _ in range(rng.randint(1, 4))]),
            fin(FIRST_ID + rng.randint(0, 6)),
            b"RDY %d\n" % rng.randint(0, 3000),
            b"NOP\n",
            b"SUB t c\n",
            b"IDENTIFY\n" + size(len(body)) + body,
            b"PUB t\n" + size(rng.choice([0, -1, 101, 1 << 20, -(1 << 31), (1 << 31) - 1])),
            b"MPUB t\n" + size(rng.choice([0, 4, 301, 50])) + size(rng.choice([-1, 0, 2, 1 << 30])),
        ]
    )


def damaged(rng: random.Random, stream: bytes) -> bytes:
    data = bytearray(stream)
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2:
            data[at:at] = rng.choice(BITS_OF_SPEECH)
        elif kind == 3:
            data[at : at + 4] = rng.randbytes(4)
        else:
            data[at:at] = data[at // 2 : at // 2 + rng.randint(1, 40)]
    return bytes(data)


def pieces(rng: random.Random, stream: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randint(0, 12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def one_round(seed: int) -> int:
    """Play one stream in pieces, and as a whole; returns how many events there were."""
    rng = random.Random(seed)
    stream = MAGIC + b"".join(command(rng) for _ in range(rng.randint(1, 10)))
    if rng.random() < 0.9:
        stream = damaged(rng, stream)
    cut = pieces(rng, stream)
    ends = rng.random() < 0.5
    outcomes = []
    for parts in (cut, [stream]):
        play = Play()
        for piece in parts:
            play.hear(piece)
        if ends:
            play.conn.feed_eof()
        outcomes.append(comparable(play.end()))
    assert outcomes[0] == outcomes[1], f"the pieces matter with seed {seed}"
    return len(outcomes[0][1])


def test_a_fixed_set_of_hostile_streams() -> None:
    assert sum(one_round(seed) for seed in range(ROUNDS_FIXED)) > ROUNDS_FIXED


def test_fresh_hostile_streams() -> None:
    end = time.monotonic() + FRESH_S
    dice = random.Random(fresh_seed())
    rounds = 0
    while rounds <= 20 or time.monotonic() < end:
        seed = dice.getrandbits(62)
        try:
            one_round(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        rounds += 1
    assert rounds > 20


def test_a_declared_body_size_is_not_preallocated() -> None:
    """A thousand connections announce 5 MiB each and send nothing of it."""

    def resident_kib() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    engine = kernel.Engine(1 << 20, 5 << 20, 2500)
    engine.tail(b"t", 0, 1 << 20)
    announce = MAGIC + b"MPUB t\n" + size(5 << 20) + size(5) + size(1 << 20) + b"x"
    warm = [engine.open_detached() for _ in range(50)]
    for conn in warm:
        conn.feed(announce)
    engine.poll(1)
    before = resident_kib()
    conns = [engine.open_detached() for _ in range(1000)]
    for conn in conns:
        conn.feed(announce)
    assert [event for event in engine.poll(2) if event[0] == Event.CLOSED] == []
    grown = resident_kib() - before
    engine.close()
    assert grown < 40 * 1000, f"{grown} KiB for 1,000 connections"
