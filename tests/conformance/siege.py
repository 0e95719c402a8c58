"""Many hostile connections against one daemon, and somebody who watches how it fares.

`besiege` plays rounds until its time is over. Meanwhile a `Watch` asks the daemon for an answer
over fresh connections: one that takes more than two seconds is a stall. What either of the two has
spent ready to run, without a processor, is the machine's doing and does not count.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cases import fresh_seed
from e2e.daemon import Daemon, starved_s
from e2e.v2client import V2Client, take_frame

MIB = 1 << 20
ANSWER_S_MAX = 2.0
PATIENCE_S = 40.0  # until an answer counts as one that does not come at all
ROUNDS_MIN = 6
PAUSE_S = 0.05
GROWTH_BYTES_MAX = 48 * MIB  # what stays queued of a run, and what the allocator keeps
FRAME_BYTES_MAX = 6 * MIB
FUZZ_S = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "2"))
_LINGER_NONE = struct.pack("ii", 1, 0)  # close with a reset


def resident_bytes(daemon: Daemon) -> int:
    for line in Path(f"/proc/{daemon.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


class Watch:
    """`with Watch(daemon):` At its end the daemon is alive, well, prompt, and not much larger."""

    def __init__(self, daemon: Daemon, ask: Callable[[Daemon], None] | None = None) -> None:
        """`ask` has to be answered by the daemon; without it, a V2 client and an HTTP client."""
        self._daemon = daemon
        self._ask = ask or ask_nsqd
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._faults: list[str] = []
        self.asked = 0
        self.slowest_s = 0.0

    def _run(self) -> None:
        while not self._end.wait(PAUSE_S):
            started_s = self._clock_s()
            try:
                self._ask(self._daemon)
            except Exception as error:
                self._faults.append(f"{type(error).__name__}: {error}")
                return
            self.asked += 1
            self.slowest_s = max(self.slowest_s, self._clock_s() - started_s)

    def _clock_s(self) -> float:
        """Stands still while the daemon, or this thread, has no processor."""
        return time.monotonic() - starved_s(str(self._daemon.pid)) - starved_s("thread-self")

    def __enter__(self) -> Watch:
        self._ask(self._daemon)
        self._said = len(self._daemon.stderr())
        self._before = resident_bytes(self._daemon)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if kind is not None:
            return
        assert self._daemon.running, "the daemon is gone"
        assert self._faults == []
        assert self.asked > 0
        assert self.slowest_s <= ANSWER_S_MAX, f"an answer took {self.slowest_s:.2f} s"
        text = self._daemon.stderr()[self._said :]
        assert "Traceback" not in text, text[-4000:]
        assert "a fault" not in text, text[-4000:]
        grown = resident_bytes(self._daemon) - self._before
        assert grown <= GROWTH_BYTES_MAX, f"{grown / MIB:.1f} MiB more"


def ask_nsqd(daemon: Daemon) -> None:
    """A fresh V2 client and a fresh HTTP client, each answered."""
    with V2Client(daemon.tcp_port, PATIENCE_S) as client:
        client.pub("watch#ephemeral", b"x")
    ping(daemon)


def ask_lookupd(daemon: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", daemon.tcp_port), PATIENCE_S) as sock:
        sock.sendall(b"  V1PING\n")
        assert sock.recv(100) == b"\0\0\0\2OK"
    ping(daemon)


def ping(daemon: Daemon) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/ping")
        assert connection.getresponse().read() == b"OK"
    finally:
        connection.close()


class Attacker:
    """One connection: sends its pieces as far as they are taken, reads what comes."""

    def __init__(self, port: int, pieces: list[bytes]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.pieces = pieces[::-1]
        self.received = bytearray()
        self.closed = False

    def step(self) -> bool:
        """Send one piece. False when there is nothing left to do."""
        self.read()
        if self.closed or not self.pieces:
            return False
        piece = self.pieces.pop()
        try:
            sent = self.socket.send(piece)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True
            return False
        if sent < len(piece):
            self.pieces.append(piece[sent:])
        return True

    def read(self) -> None:
        try:
            while data := self.socket.recv(1 << 16):
                self.received += data
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def linger(self, seconds: float) -> None:
        """Whatever is still said to it within that time."""
        if not self.closed and select.select([self.socket], [], [], seconds)[0]:
            self.read()

    def end(self, rng: random.Random) -> None:
        with contextlib.suppress(OSError):
            match rng.randrange(3):
                case 0:
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
                case 1:
                    self.socket.shutdown(socket.SHUT_WR)
                    self.linger(0.002)
        self.socket.close()


def besiege(
    port: int, script: Callable[[random.Random], list[bytes]], check: Callable[[bytes], None]
) -> int:
    """Rounds of some connections at a time, their pieces mixed, a few at least, however long they
    take. A bad round shows its seed."""
    until_s = time.monotonic() + FUZZ_S
    dice = random.Random(fresh_seed())
    rounds = 0
    while rounds < ROUNDS_MIN or time.monotonic() < until_s:
        seed = dice.getrandbits(62)
        try:
            one_round(random.Random(seed), port, script, check)
        except BaseException:
            print(f"seed {seed}")
            raise
        rounds += 1
    return rounds


def one_round(
    rng: random.Random,
    port: int,
    script: Callable[[random.Random], list[bytes]],
    check: Callable[[bytes], None],
) -> None:
    attackers = [Attacker(port, script(rng)) for _ in range(rng.randrange(1, 6))]
    try:
        active = list(attackers)
        while active:
            attacker = rng.choice(active)
            if not attacker.step():
                active.remove(attacker)
        for attacker in attackers:
            attacker.linger(0.002)
            check(bytes(attacker.received))
    finally:
        for attacker in attackers:
            attacker.end(rng)


def check_frames(received: bytes) -> None:
    """All that nsqd says is frames, whole ones but for the last."""
    buffer = bytearray(received)
    while len(buffer) >= 8:
        size, kind = struct.unpack_from(">II", buffer)
        assert 4 <= size <= FRAME_BYTES_MAX, received[:200]
        assert kind in (0, 1, 2), received[:200]
        if take_frame(buffer) is None:
            return


def check_sized(received: bytes) -> None:
    """All that nsqlookupd says is data behind its length."""
    position = 0
    while len(received) - position >= 4:
        size = int.from_bytes(received[position : position + 4], "big")
        assert size < 1000, received[:200]
        position += 4 + size


def check_http(received: bytes) -> None:
    assert received[:9] == b"HTTP/1.1 "[: len(received)], received[:200]
    assert b"HTTP/1.1 500 " not in received, received[-400:]
