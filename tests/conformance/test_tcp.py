"""The V2 protocol, byte by byte: every row of `tcp.toml`, on both kernels, whole and in pieces.

A row says what a client sends in which state, the exact frames that come back, and whether the
connection is closed, open, or waiting for the rest of a command. Nothing may come that the row does
not name: an open connection has to answer an unknown command as its very next frame.
"""

import contextlib
import itertools
import select
import socket
from collections.abc import Iterator

import pytest

from cases import each
from e2e.certificates import Certificates
from e2e.daemon import Daemon
from e2e.v2client import Closed, V2Client
from penstock import __version__
from penstock.wire.frames import Frame, decode_message
from penstock.wire.trace_ids import REPLY_BYTES, decode_reply, encode_reply

from .script import ANY_ID, HERE, Case, Expected, encode, expected, read_table

TABLE = read_table(HERE / "tcp.toml")
IDENTIFIED = TABLE.identified | {"version": __version__}
PIECES_MAX = 400  # a longer case comes in larger pieces
NUMBERS = itertools.count()
LOCKED = "locked"  # the daemon that wants TLS
PROBED = {
    False: b"E_INVALID invalid command ?probe?",
    True: b"E_INVALID cannot ?probe? in current state (TLS required)",
}

ROWS = [
    pytest.param(case, state, id=f"{case.name} [{state}]")
    for case in TABLE.cases
    for state in case.states
]


class Daemons:
    """One process for each set of flags in the table, started when it is first needed."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._running: dict[str, Daemon] = {}

    def __getitem__(self, name: str) -> Daemon:
        if name not in self._running:
            home = self._factory.mktemp(name)
            flags = ["--durability=os", *TABLE.daemons[name]]
            if name == LOCKED:
                flags += Certificates(home / "certificates").flags
            daemon = Daemon(home / "data", *flags).start()
            self._running[name] = daemon
        return self._running[name]

    def stop(self) -> None:
        codes = [daemon.stop() for daemon in self._running.values()]
        assert codes == [0] * len(codes)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    found = Daemons(tmp_path_factory)
    yield found
    found.stop()


class Play:
    """One row against one connection."""

    def __init__(self, daemon: Daemon, case: Case, state: str, patience_s: float = 5.0) -> None:
        self.case = case
        self.names = {"t": b"t%d" % next(NUMBERS), "held": b""}
        self.client = V2Client(daemon.tcp_port, patience_s, b"  V2" if case.magic else b"")
        self.other = daemon.client()
        self._bring_to(state)

    def close(self) -> None:
        self.client.close()
        self.other.close()

    def _bring_to(self, state: str) -> None:
        client, topic = self.client, self.names["t"].decode()
        if self.case.first:
            client.send(encode(self.case.first, self.names))
            client.response()
        if state == "holding":
            client.pub(topic, b"m")
        if state != "init":
            client.sub(topic, "c")
        if state == "holding":
            client.rdy(1)
            self.names["held"] = client.messages(1)[0].id
        if state == "closing":
            client.command("CLS")
            assert client.response() == b"CLOSE_WAIT"

    def run(self, piece_bytes: int) -> None:
        self.say(piece_bytes)
        self.hear()
        self.end()

    def say(self, piece_bytes: int) -> None:
        data = encode(self.case.say, self.names)
        step = piece_bytes or len(data) or 1
        if len(data) > PIECES_MAX * step:  # long ones: as many pieces as that
            step = -(-len(data) // PIECES_MAX)
        with contextlib.suppress(ConnectionError):  # hung up on before the last byte
            for start in range(0, len(data), step):
                self.client.send(data[start : start + step])
            if self.case.eof:
                self.client.socket.shutdown(socket.SHUT_WR)

    def hear(self) -> None:
        wanted = [expected(text, self.names, IDENTIFIED) for text in self.case.hear]
        for number, one in enumerate(wanted):
            assert received(self.client.frame()) == one, f"frame {number}"

    def end(self) -> None:
        match self.case.outcome:
            case "closed":
                with pytest.raises(Closed):
                    raise AssertionError(f"more was said: {self.client.frame()}")
            case "open":
                self.client.send(b"?probe?\n")
                probed = Expected(1, PROBED[self.case.daemon == LOCKED])
                assert received(self.client.frame()) == probed
            case "waiting":
                for _ in range(2):  # whatever came before has been read by then
                    self.other.command("IDENTIFY", b"{}")
                    self.other.ok()
                poll = select.poll()
                poll.register(self.client.socket, select.POLLIN)
                assert not poll.poll(5)


def received(frame: Frame | None) -> Expected | None:
    if frame is None:
        return None
    if frame.type == 0 and len(frame.data) == REPLY_BYTES and frame.data.startswith(b"OK"):
        message_id, *rest = decode_reply(frame.data)
        assert message_id != ANY_ID
        return Expected(0, encode_reply(ANY_ID, *rest))
    if frame.type != 2:
        return Expected(frame.type, frame.data)
    message = decode_message(frame.data)
    return Expected(2, message.body, message.attempts)


@each("piece_bytes", [0, 1])
@each(("case", "state"), ROWS)
def test_a_case(daemons: Daemons, case: Case, state: str, piece_bytes: int) -> None:
    play = Play(daemons[case.daemon], case, state)
    try:
        play.run(piece_bytes)
    finally:
        play.close()


def test_a_wrong_case_fails(daemons: Daemons) -> None:
    for case in (
        Case("wrong text", "BLAH\\n", ("E_INVALID invalid command BLAB",)),
        Case("wrong end", "BLAH\\n", ("E_INVALID invalid command BLAH",), end="open"),
        Case("unheard", "PUB <t>\\n<=x>"),
        Case("no end", "NOP\\n", end="closed"),
        Case("not waiting", "PUB <t>\\n<=x>", end="waiting"),
    ):
        play = Play(daemons["default"], case, "init", 0.2)
        try:
            with pytest.raises((AssertionError, Closed, pytest.fail.Exception)):
                play.run(0)
        finally:
            play.close()
