"""One bit of a stored file is wrong: `penstock log verify` says where, and the daemon says no or
serves what is sound. It never serves a wrong body, and it never falls over."""

import contextlib
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cases import fresh_seed
from penstock.tools.main import main

from .daemon import Daemon, DaemonFailed
from .v2client import pub_bytes

ROUNDS_OF_KIND = 10
TOPIC = "orders"
FRESH, HALF = "fresh", "half"  # channels: nothing of it was consumed, half of it was
FLAGS = ("--segment-bytes=65536", "--msg-timeout=60s")
KINDS = {
    "segment": "topics/*/0/*.log",
    "index": "topics/*/0/*.index",
    "mark": "topics/*/0/mark",
    "journal": "topics/*/0/channels.*",
    "topic": "topics/*/topic.json",
    "node": "node.json",
}

MAY_REFUSE = ("node",)  # without it nobody knows what the rest means


class Stored(NamedTuple):
    """A data directory after a clean stop, and what is in it."""

    path: Path
    bodies: dict[bytes, bytes]  # by id
    half_left: frozenset[bytes]  # ids that the channel `half` has not finished
    dumped: dict[bytes, int]  # offsets by id


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path = tmp_path_factory.mktemp("flips") / "data"
    rng = random.Random(7)
    with Daemon(path, *FLAGS) as daemon:
        for name in (FRESH, HALF):
            daemon.post(f"/topic/create?topic={TOPIC}")
            daemon.post(f"/channel/create?topic={TOPIC}&channel={name}")
        with daemon.client() as client:
            for number in range(60):
                client.mpub(TOPIC, [rng.randbytes(rng.randint(1, 300)) for _ in range(20)])
                client.dpub(TOPIC, 1, b"delayed %d" % number)
                client.pub(TOPIC, b"alone %d" % number)
            client.sub(TOPIC, HALF)
            client.rdy(2500)
            messages = client.messages(60 * 22)
            finished = rng.sample([message.id for message in messages], len(messages) // 2)
            client.fin(*finished)
            client.settle()
        assert daemon.stop() == 0
    bodies = {message.id: message.body for message in messages}
    code, report = run_log("verify", str(path))
    assert code == 0, report
    rows = [json.loads(line) for line in run_log("dump", str(path), "--json")[1].splitlines()]
    dumped = {row["id"].encode(): row["offset"] for row in rows}
    assert dumped.keys() == bodies.keys()
    return Stored(path, bodies, frozenset(bodies) - frozenset(finished), dumped)


def run_log(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["log", *arguments])
    return code, out.getvalue()


class Flip(NamedTuple):
    file: Path
    position: int
    bit: int

    def apply(self) -> None:
        data = bytearray(self.file.read_bytes())
        data[self.position] ^= 1 << self.bit
        self.file.write_bytes(data)


def choose(path: Path, kind: str, rng: random.Random) -> Flip:
    file = rng.choice([found for found in sorted(path.glob(KINDS[kind])) if found.stat().st_size])
    data = file.read_bytes()
    position = rng.randrange(len(data))
    if rng.random() < 0.7:  # much of a mark is padding
        position = rng.choice([at for at, byte in enumerate(data) if byte])
    return Flip(file, position, rng.randrange(8))


def verify_finds(path: Path, flip: Flip) -> list[dict[str, Any]]:
    code, text = run_log("verify", str(path), "--json")
    report = json.loads(text)
    assert code == 1, "verify found nothing"
    named = [found for found in report["findings"] if found["path"] == str(flip.file)]
    assert named, f"verify did not name the file, but {report['findings']}"
    found: list[dict[str, Any]] = report["findings"]
    return found


def hurt_offsets(findings: list[dict[str, Any]], flip: Flip) -> set[int]:
    """Of messages in batches that are not sound."""
    hurt: set[int] = set()
    for finding in findings:
        if finding["from_offset"] is not None and flip.file.suffix == ".log":
            hurt |= set(range(finding["from_offset"], finding["to_offset"]))
    return hurt


def served(daemon: Daemon, channel: str) -> dict[bytes, bytes]:
    with daemon.client() as client:
        client.sub(TOPIC, channel)
        client.rdy(2500)
        messages = client.drain(0.15)
    return {message.id: message.body for message in messages}


def check_daemon(stored: Stored, path: Path, hurt: set[int], kind: str) -> None:
    daemon = Daemon(path, *FLAGS)
    try:
        daemon.start()
    except DaemonFailed:
        said = daemon.stderr()
        assert kind in MAY_REFUSE, said
        assert "FATAL: failed to start nsqd - " in said
        assert "Traceback" not in said
        return
    with contextlib.ExitStack() as leaving:
        leaving.callback(daemon.kill)
        if kind == "topic":
            check_set_aside(daemon)
            return
        names = {row["channel_name"] for row in daemon.topic_stats(TOPIC)["channels"]}
        assert names == {FRESH, HALF}
        sound = {message for message, offset in stored.dumped.items() if offset not in hurt}
        for channel, wanted in ((FRESH, frozenset(stored.bodies)), (HALF, stored.half_left)):
            got = served(daemon, channel)
            assert all(stored.bodies.get(message) == body for message, body in got.items())
            assert wanted & sound <= got.keys()
            assert got.keys() <= wanted or kind == "journal"  # what was finished may come again
        assert daemon.running
        code = daemon.stop()
        assert code == 0
        assert "Traceback" not in daemon.stderr()


def check_set_aside(daemon: Daemon) -> None:
    """Nothing of the topic is served or made again; others are as ever."""
    status, said = daemon.http("GET", "/ping")
    assert status == 500
    assert said.startswith(f"NOK - topic {TOPIC}: set aside until it is repaired: ".encode())
    with daemon.client() as client:
        client.send(pub_bytes(TOPIC, b"x"))
        assert client.error().startswith(b"E_PUB_FAILED PUB failed topic orders is set aside")
    with daemon.client() as client:
        client.pub("others", b"x")
    assert daemon.stop() == 0


def one_round(stored: Stored, path: Path, kind: str, rng: random.Random) -> None:
    shutil.copytree(stored.path, path)
    flip = choose(path, kind, rng)
    flip.apply()
    try:
        findings = verify_finds(path, flip)
        check_daemon(stored, path, hurt_offsets(findings, flip), kind)
    except BaseException as error:
        error.add_note(f"bit {flip.bit} of byte {flip.position} of {flip.file}")
        raise
    shutil.rmtree(path)


@pytest.fixture
def rng() -> random.Random:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    return random.Random(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_found_and_does_no_harm(
    stored: Stored, tmp_path: Path, kind: str, rng: random.Random
) -> None:
    for number in range(ROUNDS_OF_KIND):
        one_round(stored, tmp_path / f"data-{number}", kind, rng)
