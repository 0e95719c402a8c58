"""System calls of the real daemon that fail: `/ping` says so while they do, nothing that failed is
acknowledged, and once they succeed again all goes on and `/ping` is OK."""

import errno
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.kernel import encode_batch

from .daemon import Daemon
from .lookupd import eventually
from .syscalls import compile_library
from .v2client import Refused

TOPIC, CHANNEL = "orders", "ch"
PARTITION = f"topics/{TOPIC}/0/"
BODY = b"x" * 9000  # eight of them fill a segment
FLAGS = ("--msg-timeout=60s", "--segment-bytes=65536", "--retain-bytes=0", "--retain-age=1h")
HEALED_S_MAX = 15.0  # retention and the journal act every second or two; the machine may be loaded


class Patient:
    """A daemon, what makes its calls fail, and what was acknowledged."""

    def __init__(self, daemon: Daemon, faults: Path) -> None:
        self.daemon = daemon
        self.acknowledged: list[bytes] = []
        self.delivered: set[bytes] = set()
        self._faults = faults
        self._number = 0
        self._staged = b""

    def fail(self, call: str, number: int, part: str) -> None:
        self._faults.write_text(f"{call} {number} {part}\n")

    def heal(self) -> None:
        self._faults.write_text("")

    def publish(self) -> str:
        """ "" when it was acknowledged, else the error."""
        self._number += 1
        body = b"%d " % self._number + BODY
        try:
            with self.daemon.client() as client:
                client.pub(TOPIC, body)
        except Refused as error:
            return str(error)
        self.acknowledged.append(body)
        return ""

    def publish_numbered(self) -> str:
        """The first of an idempotent producer: its table is made for it."""
        self._number += 1
        body = b"%d numbered" % self._number
        status, answer = self.daemon.http(
            "POST", f"/pub?topic={TOPIC}&producer_id=7&sequence=0", body
        )
        if status != 200:
            return answer.decode()
        self.acknowledged.append(body)
        return ""

    def stage(self) -> str:
        self._number += 1
        body = b"%d staged" % self._number
        status, answer = self.daemon.http(
            "POST", f"/stage?topic={TOPIC}&stage={self._number}", encode_batch([body], 0, 0, 0)
        )
        if status != 200:
            return answer.decode()
        self._staged = body
        return ""

    def commit(self) -> str:
        if refusal := self.stage():
            return refusal
        stage = {"topic": TOPIC, "partition": 0, "stage": str(self._number)}
        status, answer = self.daemon.http(
            "POST",
            f"/stage/commit?app=a&version={self._number}",
            json.dumps({"stages": [stage]}).encode(),
        )
        if status != 200:
            return answer.decode()
        self.acknowledged.append(self._staged)
        return ""

    def publish_many(self) -> str:
        """Enough to begin a new segment; the last error."""
        return [self.publish() for _ in range(10)][-1]

    def consume(self) -> str:
        with self.daemon.client() as client:
            client.sub(TOPIC, CHANNEL)
            client.rdy(10)
            self.delivered |= {message.body for message in client.drain(0.1)}
        return ""

    def check_after_a_kill(self) -> None:
        """Nothing acknowledged is lost by it, and the node is as live as before."""
        assert self.publish() == ""
        self.daemon.kill()
        self.daemon.start()
        self.consume()
        assert set(self.acknowledged) <= self.delivered
        assert self.ping() == "OK"

    def create_topic(self) -> str:
        status, answer = self.daemon.http("POST", "/topic/create?topic=fresh")
        return "" if status == 200 else answer.decode()

    def delete_topic(self) -> str:
        self.daemon.post("/topic/create?topic=old")
        status, answer = self.daemon.http("POST", "/topic/delete?topic=old")
        return "" if status == 200 else answer.decode()

    def create_journal(self) -> str:
        status, answer = self.daemon.http("POST", "/channel/create?topic=quiet&channel=first")
        return "" if status == 200 else answer.decode()

    def make_spare(self) -> str:
        """For retention: the segment behind the first one, which no start has found."""
        return self.publish_many() or self.consume()

    def use_spare(self) -> str:
        """The next segment is to be made of a spare."""
        self.make_spare()
        spare = self.daemon.data_path / PARTITION / "spare-0.log"
        eventually(spare.exists, HEALED_S_MAX, lambda: "retention has made no spare")
        return self.publish_many()

    def create_channel(self) -> str:
        status, answer = self.daemon.http("POST", f"/channel/create?topic={TOPIC}&channel=other")
        return "" if status == 200 else answer.decode()

    def ping(self) -> str:
        return self.daemon.http("GET", "/ping")[1].decode()

    def wait_for_ping(self, is_wanted: Callable[[str], bool]) -> str:
        said: list[str] = []

        def is_said() -> bool:
            said[:] = [self.ping()]
            return is_wanted(said[0])

        eventually(is_said, HEALED_S_MAX, lambda: f"/ping still says {said}")
        return said[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("syscalls"))


@pytest.fixture
def patient(library: Path, tmp_path: Path) -> Iterator[Patient]:
    faults = tmp_path / "faults"
    faults.write_text("")
    environment = {
        "LD_PRELOAD": str(library),
        "SYSCALLS_ROOT": str(tmp_path / "data"),
        "SYSCALLS_FAULTS": str(faults),
    }
    with Daemon(tmp_path / "data", *FLAGS, environment=environment) as daemon:
        daemon.post(f"/topic/create?topic={TOPIC}")
        daemon.post(f"/channel/create?topic={TOPIC}&channel={CHANNEL}")
        daemon.post("/topic/create?topic=quiet")  # it has no channel, and so no journal
        yield Patient(daemon, faults)


class Case(NamedTuple):
    call: str
    number: int
    part: str
    act: Callable[[Patient], str]
    refused: bool  # what `act` asks for
    named: str = f"topic {TOPIC}: "  # in /ping

    def __str__(self) -> str:
        return f"{self.call} {errno.errorcode[self.number]} {self.part}"


CASES = [
    *(
        Case("write", number, f"{PARTITION}0", Patient.publish, True)
        for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    ),
    Case("create", errno.EMFILE, f"{PARTITION}0", Patient.publish_many, True),
    Case("create", errno.ENOSPC, f"{PARTITION}0", Patient.publish_many, True),
    Case("read", errno.EIO, f"{PARTITION}0", Patient.consume, False),
    Case("write", errno.ENOSPC, f"{PARTITION}channels.", Patient.consume, False),
    Case("sync", errno.EIO, f"{PARTITION}channels.", Patient.consume, False),
    Case("open", errno.EMFILE, f"{PARTITION}mark", Patient.publish, False),
    Case("write", errno.EIO, f"{PARTITION}mark", Patient.publish, False),
    Case("unlink", errno.EIO, f"{PARTITION}0", Patient.consume, False),
    Case("rename", errno.EIO, f"{PARTITION}spare", Patient.make_spare, False),
    Case("rename", errno.EIO, f"{PARTITION}0", Patient.use_spare, True),
    Case("sync_directory", errno.EIO, f"topics/{TOPIC}/0", Patient.consume, False),
    Case("truncate", errno.EIO, f"{PARTITION}0", Patient.publish_many, False),
    *(
        Case(call, errno.EIO, "topics/quiet/0", Patient.create_journal, False, "topic quiet: ")
        for call in ("create", "truncate", "sync", "sync_directory")
    ),
    *(
        Case(call, errno.EIO, f"topics/{TOPIC}/topic.json", Patient.create_channel, True)
        for call in ("create", "write", "sync", "rename")
    ),
    Case("sync_directory", errno.EIO, f"topics/{TOPIC}", Patient.create_channel, True),
    *(
        Case(call, errno.EIO, f"{PARTITION}producers", Patient.publish_numbered, True)
        for call in ("create", "write", "sync", "rename")
    ),
    *(
        Case(call, errno.EIO, "topics/fresh", Patient.create_topic, True, "topic fresh: ")
        for call in ("mkdir", "create", "write", "sync", "rename", "sync_directory")
    ),
    *(
        Case(call, errno.EIO, "topics/old", Patient.delete_topic, False, "the deleted topic")
        for call in ("unlink", "rmdir")
    ),
    *(
        Case(call, errno.EIO, "/stages", Patient.stage, True, "a stage of ")
        for call in ("mkdir", "create", "write", "sync", "rename", "sync_directory")
    ),
    Case("read", errno.EIO, "/stages", Patient.commit, True, "a stage cannot be read"),
    *(
        Case(call, errno.EIO, "/commits", Patient.commit, True, "the record of a commit")
        for call in ("mkdir", "create", "write", "sync", "rename")
    ),
    Case("sync_directory", errno.EIO, "/commits", Patient.commit, True, "waits to be finished"),
    Case("unlink", errno.EIO, "/stages", Patient.commit, False, "stages cannot be removed"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_fault_shows_in_ping_until_it_is_healed(patient: Patient, case: Case) -> None:
    assert patient.publish_many() == ""
    patient.fail(case.call, case.number, case.part)
    refusal = case.act(patient)
    assert bool(refusal) == case.refused
    said = patient.wait_for_ping(lambda said: said.startswith("NOK"))
    assert case.named in said
    patient.heal()
    patient.wait_for_ping(lambda said: said == "OK")  # though nobody publishes
    assert patient.publish() == ""
    patient.consume()
    assert set(patient.acknowledged) <= patient.delivered
    assert patient.ping() == "OK"
    patient.check_after_a_kill()


def test_a_failed_sync_of_the_directory_is_tried_again(patient: Patient) -> None:
    """Of a new segment: it loses nothing that was written, so publishers wait for the next try."""
    assert patient.publish() == ""
    patient.fail("sync_directory", errno.EIO, f"topics/{TOPIC}/0")
    with ThreadPoolExecutor(1) as thread:
        refusal = thread.submit(patient.publish_many)
        patient.wait_for_ping(lambda said: said.startswith("NOK"))
        patient.heal()
        assert refusal.result() == ""
    patient.wait_for_ping(lambda said: said == "OK")
    patient.check_after_a_kill()


def test_a_failed_sync_stops_the_partition_until_a_restart(patient: Patient) -> None:
    assert patient.publish() == ""
    patient.fail("sync", errno.EIO, f"topics/{TOPIC}/0")
    assert "a sync failed" in patient.publish_many()
    patient.heal()
    assert "a sync failed" in patient.publish()
    said = patient.ping()
    assert said.startswith("NOK")
    assert f"topic {TOPIC}: a sync failed" in said
    patient.daemon.kill()
    patient.daemon.start()
    assert patient.ping() == "OK"
    assert patient.publish() == ""
    patient.consume()
    assert set(patient.acknowledged) <= patient.delivered
