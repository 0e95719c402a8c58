"""Hostile byte streams: whatever a client sends, in any pieces, the kernel stays sound and small.

Streams of valid commands are damaged (bytes changed, dropped, doubled, sizes forged) and fed in
random pieces. A crash, a difference that pieces make, or memory that grows with what was only
announced is a failure. One run has fixed seeds; one has fresh ones, printed when it fails.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from penstock import kernel
from penstock.kernel import Event

from .test_splitting import Play, comparable
from .turns import FIRST_ID, MAGIC, fin, mpub, mpub_ext, pub, pub_ext, size

ROUNDS_FIXED = 400
FRESH_S = 4.0
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
        play = Play(kernel)
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
    rounds = 0
    while rounds <= 20 or time.monotonic() < end:
        seed = random.SystemRandom().randrange(1 << 62)
        try:
            one_round(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        rounds += 1
    assert rounds > 20


def test_what_is_only_announced_takes_no_memory() -> None:
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
