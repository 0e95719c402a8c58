"""What becomes of calls and watches when members of etcd die, hang, or ask who is there."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
import trustme
import uvloop
from aetcd import rpc

from cases import each
from net.etcd.server import Etcd, three
from net.etcd.test_coordinators import Desk, etcd_desk
from penstock.cluster.coordinator import Changes, Failed, Granted, Put
from penstock.errors import ConfigError
from penstock.limits import SECOND
from penstock.net.etcd.address import EtcdAddress, parse_address
from penstock.net.etcd.session import EtcdCoordinator, Secrets
from penstock.replication.leader import Outcome

LOOP_FACTORY = uvloop.new_event_loop  # the daemons have that
LEASE_NS = 2 * SECOND


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """For stories that leave it running."""
    server = Etcd(tmp_path_factory.mktemp("steady")).start()
    yield server
    server.kill()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Etcd]]:
    members = three(tmp_path)
    yield members
    for member in members:
        member.kill()


async def answered(desk: Desk, put: Put) -> None:
    """Try until it goes through, as the callers of the port do."""
    async with asyncio.timeout(20):
        while (await desk.transact(put)).outcome is not Outcome.DONE:
            await asyncio.sleep(0.1)


async def test_a_member_that_dies_and_comes_back(server: Etcd) -> None:
    async with etcd_desk(EtcdAddress((server.endpoint,))) as desk:
        made = (await desk.transact(Put("a", b"1"))).revision
        answers: list[Any] = []
        desk.coordinator.watch("", made + 1, answers.append)
        await desk.transact(Put("a", b"2"))
        await desk.until(lambda: answers)
        server.kill()
        await desk.until(lambda: isinstance(answers[-1], Failed))
        count = len(answers)
        assert (await desk.transact(Put("a", b"3"))).outcome is Outcome.UNKNOWN
        assert isinstance(await desk.ask(desk.coordinator.read, "a"), Failed)
        assert isinstance(await desk.ask(desk.coordinator.grant, LEASE_NS), Failed)
        assert isinstance(await desk.ask(desk.coordinator.keep, 1), Failed)
        pages: list[Any] = []
        desk.coordinator.list("", pages.append)
        await desk.until(lambda: pages)
        assert isinstance(pages[0], Failed)
        server.start()
        await answered(desk, Put("a", b"4"))
        assert isinstance(desk.coordinator, EtcdCoordinator)
        assert desk.coordinator.reason == ""
        assert len(answers) == count  # a watch that has failed is over
        desk.coordinator.watch("", made + 1, answers.append)
        await desk.until(lambda: isinstance(answers[-1], Changes))
        values = [one.entry.value for one in answers[-1].events]
        assert values[0] == b"2"
        assert values[-1] == b"4"


async def test_a_member_that_hangs_is_left_for_another(members: list[Etcd]) -> None:
    """Nothing tells of it but time. Its watch would be silent for ever."""
    address = EtcdAddress(tuple(member.endpoint for member in members))
    async with etcd_desk(address) as desk:
        coordinator = desk.coordinator
        assert isinstance(coordinator, EtcdCoordinator)
        made = (await desk.transact(Put("a", b"1"))).revision
        lease = await desk.ask(coordinator.grant, 60 * SECOND)
        answers: list[Any] = []
        watch = coordinator.watch("", made + 1, answers.append)
        await desk.transact(Put("a", b"2"))
        await desk.until(lambda: answers)
        hung = coordinator.endpoint
        assert hung == members[0].endpoint
        members[0].pause()
        while not isinstance(answers[-1], Failed):
            watch.request_progress()  # a question, unless something has come since the last one
            await asyncio.sleep(0.2)
        assert coordinator.endpoint == members[1].endpoint
        await answered(desk, Put("a", b"3"))
        assert isinstance(await desk.ask(coordinator.keep, lease.lease), Granted)
        seen: list[Any] = []
        coordinator.watch("", made + 1, seen.append)
        await desk.until(lambda: seen)
        members[0].resume()


async def test_without_a_majority_requests_fail(members: list[Etcd]) -> None:
    async with etcd_desk(EtcdAddress((members[0].endpoint,))) as desk:
        made = (await desk.transact(Put("a", b"1"))).revision
        answers: list[Any] = []
        desk.coordinator.watch("", made + 1, answers.append)
        await desk.transact(Put("a", b"2"))
        await desk.until(lambda: answers)
        members[1].kill()
        members[2].kill()
        await desk.until(lambda: isinstance(answers[-1], Failed))  # it knows no leader
        assert (await desk.transact(Put("a", b"3"))).outcome is Outcome.UNKNOWN
        assert isinstance(await desk.ask(desk.coordinator.read, "a"), Failed)
        members[1].start()
        await answered(desk, Put("a", b"4"))


async def test_an_etcd_that_is_full_is_named_until_it_has_room(tmp_path: Path) -> None:
    server = Etcd(tmp_path / "etcd", ("--quota-backend-bytes=262144",)).start()
    async with etcd_desk(EtcdAddress((server.endpoint,))) as desk:
        coordinator, settled = desk.coordinator, await desk.transact(Put("a", b"1"))
        while settled.outcome is Outcome.DONE:
            settled = await desk.transact(Put("a", bytes(100_000)))
        assert "database space exceeded" in settled.reason
        await desk.ask(coordinator.read, "a")  # that is answered, and makes it no better
        assert (coordinator.is_full, coordinator.reason) == (True, settled.reason)
        async with grpc.aio.insecure_channel(server.endpoint) as channel:
            newest = await desk.ask(coordinator.read, "a")
            await rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=newest.revision))
            keeper = rpc.MaintenanceStub(channel)
            await keeper.Defragment(rpc.DefragmentRequest())
            (alarm,) = (await keeper.Alarm(rpc.AlarmRequest())).alarms
            off = {"action": rpc.AlarmRequest.DEACTIVATE, "memberID": alarm.memberID}
            await keeper.Alarm(rpc.AlarmRequest(**off, alarm=alarm.alarm))
        await answered(desk, Put("a", b"2"))
        assert (coordinator.is_full, coordinator.reason) == (False, "")
    server.kill()


async def test_an_endpoint_that_refuses_is_left_at_once(steady: Etcd) -> None:
    async with etcd_desk(EtcdAddress(("127.0.0.1:1", steady.endpoint))) as desk:
        assert isinstance(await desk.ask(desk.coordinator.read, "a"), Failed)
        assert (await desk.transact(Put("a", b"1"))).outcome is Outcome.DONE


async def test_users_and_a_token_that_etcd_has_forgotten(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = Etcd(tmp_path, ("--auth-token-ttl=1",)).start()
    request.addfinalizer(server.kill)
    secrets = Secrets("hunter2")
    await make_user(server.endpoint, "root", "hunter2")
    async with etcd_desk(EtcdAddress((server.endpoint,), user="root"), secrets) as desk:
        made = (await desk.transact(Put("a", b"1"))).revision
        answers: list[Any] = []
        desk.coordinator.watch("", made, answers.append)
        await desk.until(lambda: answers)
        await asyncio.sleep(2.5)  # the token is over
        before = authentications(server.endpoint)
        puts = [desk.transact(Put(f"a{n}", b"2")) for n in range(20)]
        assert {one.outcome for one in await asyncio.gather(*puts)} == {Outcome.DONE}
        assert authentications(server.endpoint) == before + 1  # all wait for the same token
    async with etcd_desk(EtcdAddress((server.endpoint,))) as desk:
        assert (await desk.transact(Put("a", b"3"))).outcome is Outcome.UNKNOWN
    async with etcd_desk(EtcdAddress((server.endpoint,), user="root"), Secrets("no")) as desk:
        failed = await desk.ask(desk.coordinator.read, "a")
        assert isinstance(failed, Failed)
        assert "authentication failed" in failed.reason
        watch: list[Any] = []
        desk.coordinator.watch("", 1, watch.append)
        await desk.until(lambda: watch)
        assert isinstance(watch[0], Failed)


def authentications(endpoint: str) -> int:
    with urlopen(f"http://{endpoint}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    of = 'grpc_server_started_total{grpc_method="Authenticate"'
    return int(next(line for line in lines if line.startswith(of)).rpartition(" ")[2])


async def make_user(endpoint: str, name: str, password: str) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        auth = rpc.AuthStub(channel)
        await auth.UserAdd(rpc.AuthUserAddRequest(name=name, password=password))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name="root"))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=name, role="root"))
        await auth.AuthEnable(rpc.AuthEnableRequest())


async def test_over_tls(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    authority = trustme.CA()
    theirs = authority.issue_cert("127.0.0.1")
    theirs.private_key_pem.write_to_path(tmp_path / "key.pem")
    theirs.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = f"--cert-file={tmp_path / 'cert.pem'}", f"--key-file={tmp_path / 'key.pem'}"
    server = Etcd(tmp_path / "etcd", files, "https").start()
    request.addfinalizer(server.kill)
    address = EtcdAddress((server.endpoint,), is_secure=True)
    async with etcd_desk(address, Secrets("", authority.cert_pem.bytes())) as desk:
        assert (await desk.transact(Put("a", b"1"))).outcome is Outcome.DONE
    async with etcd_desk(address, Secrets("", trustme.CA().cert_pem.bytes())) as desk:
        assert (await desk.transact(Put("a", b"2"))).outcome is Outcome.UNKNOWN


async def test_a_fault_in_a_callback_is_reported(steady: Etcd) -> None:
    faults: list[Exception] = []
    coordinator = EtcdCoordinator(EtcdAddress((steady.endpoint,)), Secrets(), faults.append)

    def broken(_: object) -> None:
        raise RuntimeError("of the caller")

    coordinator.read("a", broken)
    async with asyncio.timeout(10):
        while not faults:
            await asyncio.sleep(0.01)
    assert str(faults[0]) == "of the caller"
    await coordinator.close()


@each("ttl_ns", [1, LEASE_NS, LEASE_NS + 1])
async def test_a_lease_is_never_shorter_than_asked_for(steady: Etcd, ttl_ns: int) -> None:
    async with etcd_desk(EtcdAddress((steady.endpoint,))) as desk:
        granted = await desk.ask(desk.coordinator.grant, ttl_ns)
        assert isinstance(granted, Granted)
        assert granted.ttl_ns >= ttl_ns
        assert granted.ttl_ns % SECOND == 0


# --- how a cluster is named on the command line ---


def test_the_keys_of_a_cluster_begin_with_its_name() -> None:
    assert parse_address("etcd://h1/west").prefix == "/penstock/west/"


@each(
    ("text", "rule"),
    [
        ("h1:2379", "etcd://"),
        ("http://h1", "etcd://"),
        ("etcd://", "etcd://"),
        ("etcd://h1,", "'' is no host"),
        ("etcd://h1:0", "'h1:0' is no host"),
        ("etcd://h1:70000", "'h1:70000' is no host"),
        ("etcd://h 1", "'h 1' is no host"),
        ("etcd://h1/a b", "1 to 64 of"),
        ("etcd://" + ",".join(["h"] * 17), "16 endpoints at most"),
    ],
)
def test_invalid_addresses(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match="cluster: ") as caught:
        parse_address(text)
    assert rule in str(caught.value)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address("etcd://root:hunter2@h1")
    assert "hunter2" not in str(caught.value)
