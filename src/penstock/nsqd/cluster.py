"""An nsqd's membership of a cluster: what `--cluster` adds to the daemon.

| when | does |
|---|---|
| `prepare` | reads the cluster's uuid from etcd, or makes the cluster |
| `join`, with the data path locked | opens the ledger, counts the generation |
| `start`, once the ports are known | listens for other nodes, and begins the ticks |
| after each turn of the node | carries out what the turn has begun |
| ten times a second | links, metadata, registration, elections |
| `hand_over` | gives its leaderships to other members |
| `disconnect`, before the logs are closed | closes the links, and takes the node's key away |
| `stop` | closes etcd's connection and the ledger |

A node that has met its cluster before starts without etcd, and follows; a new one waits for it. A
registration that is refused for good ends the daemon with the reason: `on_refused`.
"""

import asyncio
import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from penstock import __version__, limits
from penstock.broker.channels.channel import default_dead_letter_topic
from penstock.broker.health import Trouble
from penstock.broker.ports import PeerLane
from penstock.cluster import documents, keys
from penstock.cluster.coordinator import (
    Failed,
    Put,
    Reading,
    RevisionIs,
    Settled,
    Transaction,
    seen_by_view,
)
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.messages import Message, decode_message, encode_message
from penstock.cluster.metadata_topics import PRODUCER_PARTITIONS
from penstock.cluster.node import ClusterNode
from penstock.cluster.registration import leave
from penstock.cluster.view import Remembered, View, decode_remembered
from penstock.cluster.watch import Phase
from penstock.command import memory
from penstock.errors import ConfigError, LedgerMismatch, Refused, StorageError
from penstock.ids.guid import TICK_SHIFT, tick_of
from penstock.kernel import murmur3_32
from penstock.log import names
from penstock.log.ledger import Ledger, LedgerNode
from penstock.net.api import POST, Api, Route
from penstock.net.etcd.address import EtcdAddress, parse_address
from penstock.net.etcd.session import EtcdCoordinator, Secrets
from penstock.net.gate import is_loopback_host
from penstock.net.listener import parse_address as parse_listen
from penstock.net.peers.handshake import Own
from penstock.net.peers.links import PeerAddress, PeerLinks
from penstock.net.secret_file import read_secrets
from penstock.net.tasks import Tasks
from penstock.net.tls import no_password
from penstock.nsqd.assembly import Node
from penstock.nsqd.cluster_state import ClusterState, change_node, clock_difference
from penstock.nsqd.fanout import FanOut
from penstock.nsqd.http.restore import Restoring
from penstock.nsqd.options import Options
from penstock.nsqd.peer_requests import PeerRequests
from penstock.nsqd.topic_import import OwnTopic, TopicImport, check_import, own_topics
from penstock.replication.frames import NO_TARGET, Note, Target, encode
from penstock.replication.side_frames import RequestAnswered, SendRequest

log = logging.getLogger("penstock.cluster")

TICK_S = 0.1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT = bytes(16)


class ClusterMember:
    """`on_refused` receives the reason why this node may not be a member."""

    def __init__(self, options: Options, node: Node, on_refused: Callable[[str], None]) -> None:
        self.address: EtcdAddress = parse_address(options.cluster)
        self._options = options
        self._broker = node.broker
        self._disk = node.ports.disk
        self._soon = node.turn.soon
        self._on_fault = on_fault = node.ports.on_fault
        self._on_refused = on_refused
        self._incarnation = secrets.randbits(63) | 1
        self._address = ("", 0, 0)  # where clients reach it: host, TCP and HTTP port
        self._listen_host, self._listen_port = _listen_address(options.replication_address)
        self._replication_port = 0
        self._secrets = shared_secrets(options, self._listen_host)
        self._tls = _peer_tls(options)
        self._tasks = Tasks(on_fault)
        self._uuid = 0
        self._replaced: documents.Membership | None = None
        self._looked_ns = self._report_ns = 0
        etcd_secrets = Secrets.of_files(options.cluster_password_file, options.cluster_etcd_ca)
        self.coordinator = EtcdCoordinator(self.address, etcd_secrets, on_fault)
        self.ledger: Ledger
        self.links: PeerLinks
        self.cluster: ClusterNode
        self.state: ClusterState
        self.requests: PeerRequests

    # --- start ---

    async def prepare(self, data_path: Path) -> None:
        """Raises Refused."""
        path, wants_import = str(data_path), self._options.cluster_import_topics
        own = own_topics(self._disk, path)
        check_import(path, own, wants_import)
        is_known = self._disk.exists(str(data_path / names.LEDGER))
        deadline_s = time.monotonic() + limits.COORDINATOR_START_NS / limits.SECOND
        while not self._uuid:
            self._uuid = await self._read_uuid(may_make=not is_known)
            if self._uuid or (is_known and time.monotonic() >= deadline_s):
                break
            await asyncio.sleep(limits.COORDINATOR_RETRY_NS / limits.SECOND)

        if not is_known:
            self._replaced = await self._read_replaced()
        if own:
            await self._import(path, own)

    async def _import(self, path: str, own: list[OwnTopic]) -> None:
        """Raises Refused."""
        if self._replaced is not None:
            raise Refused(f"{path} has topics: -cluster-replace wants an empty data path")
        generation = 0
        if self._disk.exists(os.path.join(path, names.LEDGER)):
            ledger = Ledger.open(self._disk, path)
            generation = ledger.node.generation
            ledger.close()
        node = self._options.node_id
        topics = TopicImport(self._disk, node, generation + 1, self._read, self._transact)
        await topics.run(path, own)

    async def _read_replaced(self) -> documents.Membership | None:
        """The node that an empty one replaces. Raises Refused where that was not requested, and
        while it lives: before anything is written."""
        own = self._options.node_id
        found = await self._read(keys.member(own))
        if isinstance(found, Failed):
            raise Refused(f"etcd did not answer whether node {own} exists: {found.reason}")
        if found.entry is None:
            return None  # there has never been one
        if not self._options.cluster_replace:
            raise Refused(f"another machine has the id {own}. {_WHAT_TO_DO}")
        await self._await_death(own)
        return documents.MEMBERSHIP.decode(found.entry.key, found.entry.value)

    async def _await_death(self, own: int) -> None:
        """A node that was killed a moment ago still has its lease."""
        deadline_s = time.monotonic() + 2 * limits.NODE_LEASE_NS / limits.SECOND
        while True:
            alive = await self._read(keys.node(own))
            if isinstance(alive, Reading) and alive.entry is None:
                return
            if time.monotonic() >= deadline_s:
                reason = "it is alive" if isinstance(alive, Reading) else alive.reason
                raise Refused(f"node {own} cannot be replaced: {reason}")
            await asyncio.sleep(limits.COORDINATOR_RETRY_NS / limits.SECOND)

    async def _read_uuid(self, may_make: bool) -> int:
        """0: it is not known yet."""
        had_failed = bool(self.coordinator.reason)
        answer = await self._read(keys.CLUSTER)
        if isinstance(answer, Failed):
            if not had_failed:  # the next ones are no news
                log.warning("waiting for etcd at %s: %s", self.coordinator.endpoint, answer.reason)
            return 0
        if answer.entry is not None:
            return documents.CLUSTER.decode(keys.CLUSTER, answer.entry.value).uuid
        if may_make:
            document = documents.Cluster(secrets.randbits(127) | 1)
            change = Put(keys.CLUSTER, documents.CLUSTER.encode(document))
            make = Transaction((RevisionIs(keys.CLUSTER, 0),), (change,))
            settled = await self._transact(make)
            log.info("cluster %s: making it: %s", self.address.cluster, settled.outcome.name)
        return 0

    async def _read(self, key: str) -> Reading | Failed:
        answered: asyncio.Future[Reading | Failed] = asyncio.get_running_loop().create_future()
        self.coordinator.read(key, answered.set_result)
        return await answered

    async def _transact(self, transaction: Transaction) -> Settled:
        answered: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self.coordinator.transact(transaction, answered.set_result)
        return await answered

    def join(self, data_path: Path) -> None:
        """Call before the topics are opened. Raises PenstockError."""
        memory.keep_pieces()
        ledger = self.ledger = self._open_ledger(str(data_path))
        node = ledger.node
        uuid = int.from_bytes(node.cluster, "big")
        own = Own(self._options.node_id, self._incarnation, uuid, self._secrets)
        self.links = PeerLinks(
            own, self, self._on_fault, *self._tls, silence_ns=self._options.cluster_silence_ns,
        )  # fmt: skip
        membership = documents.Membership(
            int.from_bytes(node.uuid, "big"), node.generation, node.boot.hex(),
            node.memory_lost_generation, self._incarnation, 0, documents.ACTIVE,
        )  # fmt: skip
        records = decode_remembered(
            entry.record for entry in ledger.replicas.values() if entry.record
        )
        self.cluster = ClusterNode(
            self._broker, self._options.node_id, membership, self._describe, self.coordinator,
            self.links, ledger, self._send, lambda: secrets.randbits(63), time.monotonic_ns(),
            Remembered(uuid, node.revision, node.restorations), records,
            replica_timeout_ns=self._options.replica_timeout_ns,
        )  # fmt: skip
        if self._replaced is not None:
            self.cluster.participant.registration.replaces = self._replaced.uuid
        self.state = ClusterState(self.cluster, self.address.cluster)

    def _open_ledger(self, data_path: str) -> Ledger:
        """Open the ledger, and record this start durably."""
        disk = self._disk
        if not disk.exists(os.path.join(data_path, names.LEDGER)):
            before = self._replaced
            new = LedgerNode(
                generation=before.generation if before is not None else 0,
                cluster=self._uuid.to_bytes(16, "big"),
                uuid=secrets.token_bytes(16),
            )
            if before is not None:  # its ids may have been given out, by a clock ahead of this one
                ids = self._broker.context.ids
                ids.last_id = max(ids.last_id, (before.id_floor << TICK_SHIFT) - 1)
            Ledger.create(disk, data_path, new).close()
        ledger = Ledger.open(disk, data_path)
        node = ledger.node
        known = int.from_bytes(node.cluster, "big")
        if self._uuid not in (0, known):
            ledger.close()
            raise LedgerMismatch(data_path, self.address.cluster, known, self._uuid)
        generation, boot = node.generation + 1, _boot_id()
        lost = node.memory_lost_generation
        if node.generation and node.boot != boot and self._broker.context.killed:
            lost = generation  # the system's memory went with the machine
        ledger.set_node(
            node._replace(
                generation=generation,
                incarnation=self._incarnation,
                boot=boot,
                memory_lost_generation=lost,
            )
        )
        ledger.sync()
        return ledger

    @property
    def name(self) -> str:
        return self.address.cluster

    async def start(self, host: str, tcp_port: int, http_port: int) -> None:
        """Start at the address for clients. Raises OSError."""
        self._address = host, max(tcp_port, 0), max(http_port, 0)
        self._replication_port = await self.links.listen(self._listen_host, self._listen_port)
        log.info(
            "cluster %s (%s): node %d, generation %d, replication on %s:%d",
            self.address.cluster, ",".join(self.address.endpoints), self._options.node_id,
            self.ledger.node.generation, self._listen_host, self._replication_port,
        )  # fmt: skip
        self.cluster.participant.watching.on_changes = self._soon
        self._tasks.begin(self._run())

    def _describe(self) -> documents.NodeDocument:
        host, tcp, http = self._address
        free = self._disk.free_bytes(self._broker.path)
        is_any = self._listen_host in ("0.0.0.0", "::", "")
        replication_host = self._options.broadcast_address if is_any else self._listen_host
        return documents.NodeDocument(
            self._incarnation, host, tcp, http, replication_host, self._replication_port,
            __version__, self._options.zone or self._options.topology_zone, free, 0,
        )  # fmt: skip

    # --- while it runs ---

    async def _run(self) -> None:
        while True:
            mono_ns = time.monotonic_ns()
            view = self.cluster.participant.view
            nodes = {node: held.document for node, held in view.nodes.items()}
            members = {n: held.document.state for n, held in view.memberships.items()}
            self.links.know(
                {
                    node: PeerAddress(one.replication_host, one.replication_port, one.incarnation)
                    for node, one in nodes.items()
                },
                {node for node, state in members.items() if state != documents.REMOVED},
            )
            self.links.tick(mono_ns)
            if self.cluster.tick(mono_ns) or self._has_work():
                self._soon()
            registration = self.cluster.participant.registration
            if registration.reason:
                self._on_refused(f"{registration.reason}. {_WHAT_TO_DO}")
            self._report(mono_ns)
            await asyncio.sleep(TICK_S)

    def _has_work(self) -> bool:
        """A sync that ran at once wakes nobody: it belongs to the turn that began it, and this is
        between two."""
        context = self._broker.context
        return context.engine.has_work or context.syncs.has_ended

    def _report(self, mono_ns: int) -> None:
        """Once a second: counts, and the text of /ping."""
        if mono_ns < self._report_ns:
            return
        if not self._report_ns:  # the metadata is still to be read
            self._report_ns = mono_ns + limits.COORDINATOR_START_NS
            return
        self._report_ns = mono_ns + limits.SECOND
        self.state.look(mono_ns)
        self._raise_id_floor()
        health, differs = self._broker.context.health, self.cluster.participant.clock_ahead_ns
        health.show("", Trouble.CLUSTER, self.trouble())
        health.show("", Trouble.CLOCK_DIFFERS, clock_difference(differs))

    def _raise_id_floor(self) -> None:
        """Keep the floor ahead of the ids in use: a replacement of this node begins above it."""
        context, key = self._broker.context, keys.member(self.own)
        held = self.view.memberships.get(self.own)
        if held is None or (self.trouble() and not self.coordinator.is_full):
            return
        tick = max(tick_of(context.clock.wall_ns()), context.ids.last_id >> TICK_SHIFT)
        if held.document.id_floor - tick >= limits.ID_RESERVE_TICKS // 2:
            return
        document = held.document._replace(id_floor=tick + limits.ID_RESERVE_TICKS)
        change = Put(key, documents.MEMBERSHIP.encode(document))
        self.coordinator.transact(
            Transaction((RevisionIs(key, held.revision),), (change,)), seen_by_view
        )

    def after_turn(self) -> None:
        """Apply changes of the metadata at once, instead of at the next tick."""
        if self.view.is_pending:
            mono_ns = time.monotonic_ns()
            if mono_ns - self._looked_ns >= limits.VIEW_LOOK_NS:
                self._looked_ns = mono_ns
                self.cluster.tick(mono_ns)
                return
        if self.cluster.is_due:
            self.cluster.turn()

    def _send(self, node: int, message: Message) -> None:
        self.links.send(node, PeerLane.LIVE, encode(NO_TARGET, Note(0, encode_message(message))))

    # --- reports of links ---

    def linked(self, node: int, incarnation: int) -> None:
        self.cluster.linked(node, incarnation)
        self._soon()

    def unlinked(self, node: int) -> None:
        self.requests.unlinked(node)
        self.cluster.unlinked(node)
        self._soon()

    def refused(self, node: int, incarnation: int) -> None:
        self.cluster.refused(node, incarnation)
        self._soon()

    def received(self, node: int, target: Target, frame: Any) -> None:
        if isinstance(frame, Note):
            self.cluster.receive_message(node, decode_message(frame.data))
        elif isinstance(frame, SendRequest | RequestAnswered):
            self.requests.receive(node, frame)
        else:
            self.cluster.receive(node, target, frame)
        if self._has_work() or self.cluster.is_due:
            self._soon()

    # --- for people ---

    @property
    def view(self) -> View:
        return self.cluster.participant.view

    def document(self) -> Iterator[bytes]:
        health = self._broker.context.health.text
        return self.state.document(self.ledger.node.generation, self.trouble(), health)

    def extend(self, routes: Api) -> None:
        """Verbs about messages reach the leaders of all partitions, and nodes have a state."""
        table, change = routes.table, partial(change_node, self.view, self.coordinator)
        table["/cluster/node"] = Route(POST, change)
        table |= Restoring(self.own, self.view, self._broker.topics, self.coordinator).table()
        seconds_max = self._options.http_client_request_timeout_ns / limits.SECOND
        self.requests = PeerRequests(self._incarnation, self.links, routes.serve, seconds_max)
        FanOut(self, self.requests).spread(table)

    @property
    def own(self) -> int:
        return self._options.node_id

    def leaders(self, topic: str) -> list[tuple[int, int | None]]:
        """Partitions of a cluster's topic, and the node that leads each."""
        found = []
        for name, held in self.view.records_of(topic):
            record = held.document
            leader = record.leader.node if record.leader is not None else None
            found.append((name.number, leader if leader in self.view.nodes else None))
        return found

    def dead_letter_topic(self, topic: str, channel: str) -> str:
        held = self.view.channels.get(ChannelName(topic, channel))
        named = dict(held.document.settings).get("dead_letter_topic") if held is not None else ""
        return named or default_dead_letter_topic(topic, channel)

    def leader_of_producer(self, topic: str, key: bytes) -> int | None:
        held = self.view.topics.get(topic)
        spread = 0
        if held is not None:
            settings = dict(held.document.settings)
            spread = settings.get(PRODUCER_PARTITIONS, held.document.hash_partitions)
        leaders = dict(self.leaders(topic)) if spread else {}
        return leaders.get(murmur3_32(key) % spread) if spread else None

    def has_replica(self, topic: str) -> bool:
        found = self._broker.topics.get(topic)
        return found is not None and bool(found.replicas)

    def trouble(self) -> str:
        """Why this node cannot do its part at present; empty: it does."""
        participant = self.cluster.participant
        if self.view.frozen:
            return f"the metadata in etcd is not trusted: {self.view.frozen}"
        if participant.watching.phase is not Phase.WATCHING:
            return f"etcd: {participant.watching.reason or 'the metadata is being read'}"
        if not participant.registration.is_held(time.monotonic_ns()):
            return "this node is not registered in the cluster"
        return self.coordinator.reason if self.coordinator.is_full else ""

    # --- stop ---

    async def hand_over(self) -> None:
        """Hand each partition that this node leads to another member, if one is in sync, and let
        commits elsewhere wait for this node no more; in SHUTDOWN_HAND_OVER_NS at most, and less
        where nothing moves."""
        participant = self.cluster.participant
        machines, poll_s = participant.proposals.machines, limits.SHUTDOWN_POLL_NS / limits.SECOND
        now_s = moved_s = time.monotonic()
        deadline_s, left = now_s + limits.SHUTDOWN_HAND_OVER_NS / limits.SECOND, len(machines)
        stuck_s = limits.SHUTDOWN_STUCK_NS / limits.SECOND
        participant.leave()
        given: set[PartitionName] = set()
        at_once = 1 + len(machines) // limits.SHUTDOWN_WAVES
        while machines and now_s < min(deadline_s, moved_s + stuck_s):
            if not self._hand_over_some(given, at_once):
                break  # nobody can take any of them
            await asyncio.sleep(poll_s)
            now_s = time.monotonic()
            if len(machines) < left:
                left, moved_s = len(machines), now_s
        while self._is_waited_for() and time.monotonic() < min(deadline_s, now_s + stuck_s):
            await asyncio.sleep(poll_s)

    def _is_waited_for(self) -> bool:
        """A leader on another node waits for it, and could do without it. A record that names this
        node, whose leadership has ended, has a successor that the view has not seen."""
        own, participant = self.cluster.own, self.cluster.participant
        machines, waiting = participant.proposals.machines, participant.links.keys() | {own}
        others = (h.document for name, h in self.view.partitions.items() if name not in machines)
        return any(
            record.leader is not None
            and record.leader.node in waiting
            and record.member_on(own) is not None
            and len(record.members) > record.members_min
            for record in others
        )

    def _hand_over_some(self, given: set[PartitionName], at_once: int) -> bool:
        """So few at a time that each has a new leader as soon as if it were alone. False: none is
        on its way."""
        proposals = self.cluster.participant.proposals
        given &= proposals.machines.keys() & proposals.handing.keys() | proposals.elections.awaited
        for name in sorted(proposals.machines.keys() - proposals.handing.keys()):
            if len(given) >= at_once:
                break
            record = proposals.machines[name].record
            others = [one.node for one in record.members if one.node != self.cluster.own]
            if any(proposals.hand_over(name, node) for node in record.preferred(others)):
                given.add(name)
        self.cluster.tick(time.monotonic_ns())
        self._soon()
        return bool(given)

    async def disconnect(self) -> None:
        """Call before the logs are closed: an append to a closed log would count as a failed disk,
        and the replica would be copied again. Then the node is visibly away."""
        await self._tasks.close()
        if hasattr(self, "links"):
            await self.links.close()
        if hasattr(self, "cluster"):
            gone = asyncio.Event()
            leave(self.coordinator, (self.cluster.participant.registration,), gone.set)
            await gone.wait()

    async def stop(self, is_tidy: bool) -> None:
        """Call after the broker's files are closed. Not tidy: by a fault, so nothing vouches for
        the ledger."""
        await self.coordinator.close()
        if is_tidy and hasattr(self, "ledger") and not self.ledger.stopped:
            try:
                self.ledger.close()
            except StorageError as error:  # the next start reads it as after a kill
                log.error("%s", error)


_WHAT_TO_DO = (
    "Give it another -node-id; or, where the other one is gone for good, an empty data path and "
    "-cluster-replace"
)


def _boot_id() -> bytes:
    """The boot id of the machine; zeros if the system has none."""
    try:
        return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return _NO_BOOT


def _listen_address(text: str) -> tuple[str, int]:
    found = parse_listen(text, "replication-address")
    if found.path:
        raise ConfigError("replication-address", text, "must be host:port")
    return found.host, found.port


def shared_secrets(options: Options, host: str) -> tuple[bytes, ...]:
    found = read_secrets(options.cluster_secret_file, "cluster-secret-file")
    if not (found or is_loopback_host(host) or options.cluster_tls_cert):
        rule = "outside of the loopback nodes need -cluster-secret-file or -cluster-tls-cert"
        raise ConfigError("replication-address", options.replication_address, rule)
    return found


def _peer_tls(options: Options) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For connections from and to other nodes: both ends show a certificate."""
    files = options.cluster_tls_cert, options.cluster_tls_key, options.cluster_tls_ca
    if not any(files):
        return None, None
    if not all(files):
        raise ConfigError(
            "cluster-tls-cert", files[0], "goes with -cluster-tls-key and -cluster-tls-ca"
        )
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        try:
            context.load_cert_chain(files[0], files[1], no_password)
            context.load_verify_locations(files[2])
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("cluster-tls-cert", files[0], f"cannot be used: {error}") from error
        context.check_hostname = False  # the authority is the cluster's own: whom it signed belongs
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    return contexts[0], contexts[1]
