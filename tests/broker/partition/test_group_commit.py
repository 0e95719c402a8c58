"""Rows: what has gathered is written at once, whatever it is, and each publisher is answered."""

import errno
import socket
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from penstock import limits
from penstock.broker.partition.appends import Stored, Whole
from penstock.broker.partition.commit_state import CommitState
from penstock.broker.partition.group_commit import GroupCommit
from penstock.broker.partition.idempotent import Stamp
from penstock.broker.replicas.forwarding import NO_PRODUCER
from penstock.errors import PenstockError, PublishUnknown, WriteRefused
from penstock.kernel import decode_bodies, encode_batch
from penstock.replication.authority import Permits
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.protocol.modellog import ModelLog

from ..world import Start, World

Answer = tuple[PenstockError | None, Stored | None]


def stamped(world: World, producer: int, sequence: int, *bodies: bytes) -> list[Answer]:
    answers: list[Answer] = []
    world.broker.topic("t").publish_stamped(
        Stamp(producer, 0, sequence), list(bodies), 0, lambda *answer: answers.append(answer)
    )
    return answers


def writes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each write of an append holds, from now on."""
    log = world.broker.topic("t").leader().log
    seen: list[int] = []
    write = type(log).write

    def spy(self: Any, buffers: Any, length: int, base: int, count: int, *rest: Any) -> None:
        seen.append(count)
        write(self, buffers, length, base, count, *rest)

    monkeypatch.setattr(type(log), "write", spy)
    return seen


def batches(world: World) -> list[tuple[int, int, list[bytes]]]:
    """Base offset, producer and bodies of each batch in the log."""
    log = world.broker.topic("t").leader().log
    return [
        (header.base_offset, header.producer_id, decode_bodies(data, 0))
        for header, data in log.batches(0)
    ]


def test_publishes_behind_a_sync_form_one_append(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    world.broker.topic("t").channel("a")
    seen = writes(world, monkeypatch)
    world.threads.held = True
    first = world.publish("t", b"first")
    ones = [stamped(world, 7, number, b"seven %d" % number) for number in range(3)]
    other = stamped(world, 8, 0, b"eight", b"nine")
    plain = world.publish("t", b"plain")
    assert seen == [1]
    world.release()
    assert seen == [1, 6]
    assert first.stored
    assert plain.stored
    assert [error for one in (*ones, other) for error, _ in one] == [None] * 4
    assert batches(world) == [
        (0, 0, [b"first"]),
        (1, 0, [b"plain"]),
        (2, 7, [b"seven 0"]),
        (3, 7, [b"seven 1"]),
        (4, 7, [b"seven 2"]),
        (5, 8, [b"eight", b"nine"]),
    ]
    assert [where.offset for one in ones for _, where in one if where] == [2, 3, 4]
    again = world.killed()
    assert [one for _, _, bodies in batches(again) for one in bodies][-2:] == [b"eight", b"nine"]


def whole(group: GroupCommit, answers: list[PenstockError | None], count: int) -> Any:

    def encode(
        base_offset: int, base_id: int, wall_ns: int, synced_end: int, leader_epoch: int
    ) -> bytes:
        return encode_batch([b"w"] * count, base_offset, base_id, wall_ns, synced_end, leader_epoch)

    return Whole(encode, count, answers.append, 9)


def test_a_callback_that_publishes_again_does_not_nest(start: Start) -> None:
    """With durability `os` each answer comes within the call: ten thousand of them in a row."""
    world = start(durability="os")
    topic = world.broker.topic("t")
    left = 10_000

    def again(error: PenstockError | None, where: Stored | None) -> None:
        nonlocal left
        assert error is None
        left -= 1
        if left:
            topic.publish_stamped(Stamp(1, 0, 10_000 - left), [b"x"], 0, again)

    topic.publish_stamped(Stamp(1, 0, 0), [b"x"], 0, again)
    assert left == 0
    assert topic.leader().tail.committed_end == 10_000


def test_an_append_has_a_bound_of_batches(world: World) -> None:
    """Thousands that gather behind a slow sync must not hold up the loop in one piece."""
    group = world.broker.topic("t").leader().group
    world.threads.held = True
    first = world.publish("t", b"first")
    answers: list[PenstockError | None] = []
    count = 2 * limits.APPEND_BATCHES_MAX + 1
    for _ in range(count):
        group._whole.append(whole(group, answers, 1))
        group.held_count += 1
    world.threads.held = False
    appends = []
    for _ in range(6):
        world.threads.run()
        world.turns()
        appends.append(len(answers))
    assert first.stored
    assert answers == [None] * count
    assert group.tail.committed_end == 1 + count
    assert len(batches(world)) == 1 + count
    assert all(later - one <= 2 * limits.APPEND_BATCHES_MAX for one, later in pairwise(appends))


def test_publishes_are_accepted_between_consecutive_appends(start: Start) -> None:
    world = start(durability="disk")
    world.broker.topic("t").channel("a")
    world.threads.held = True
    outcomes = [world.publish("t", b"in flight")]
    for _ in range(2 * limits.PUBLISH_WAIT_NS // limits.SECOND):
        outcomes.append(world.publish("t", b"gathers"))
        world.pass_ns(limits.SECOND)
        world.threads.run()
        world.turns()
    assert all(one.stored for one in outcomes[:-1])


def test_a_publish_does_not_wait_for_ever_behind_a_sync_that_hangs(start: Start) -> None:
    """The time since an earlier one does not count."""
    world = start(durability="disk")
    world.broker.topic("t").channel("a")
    for _ in range(5):
        world.pass_ns(limits.PUBLISH_WAIT_NS)
    world.threads.held = True
    first = world.publish("t", b"in flight")
    gathers = world.publish("t", b"gathers")
    world.pass_ns(limits.SECOND)
    assert first.answers == gathers.answers == []
    world.pass_ns(limits.PUBLISH_WAIT_NS)
    assert [type(one) for one in first.answers] == [PublishUnknown]
    assert [type(one) for one in gathers.answers] == [WriteRefused]
    assert "a write was not committed for 30 s" in str(gathers.answers[0])
    world.release()
    assert (len(first.answers), len(gathers.answers)) == (1, 1)
    assert batches(world) == [(0, 0, [b"in flight"])]  # it is stored nevertheless


def test_a_forwarded_publish_does_not_wait_forever_either(start: Start) -> None:
    world = start(durability="disk")
    world.broker.topic("t").channel("a")
    world.threads.held = True
    answers: list[PenstockError | None] = []
    group = world.broker.topic("t").leader().group
    one = whole(group, answers, 1)
    group.publish_whole(one.encode, 1, 1, one.done, NO_PRODUCER)
    for _ in range(2):
        world.pass_ns(limits.PUBLISH_WAIT_NS)
    world.release()
    assert [type(one) for one in answers] == [PublishUnknown]
    assert batches(world) == [(0, 0, [b"w"])]


def test_an_idempotent_producer_waits_for_its_append_without_limit(start: Start) -> None:
    world = start(durability="disk")
    world.broker.topic("t").channel("a")
    world.threads.held = True
    first = stamped(world, 7, 0, b"seven")
    for _ in range(2):
        world.pass_ns(limits.PUBLISH_WAIT_NS)
    again = stamped(world, 7, 0, b"seven")
    assert first == again == []
    world.release()
    assert (first, again) == ([(None, Stored(0, first[0][1].id))], [(None, None)])
    assert batches(world) == [(0, 7, [b"seven"])]


def pub(topic: bytes, body: bytes) -> bytes:
    return b"PUB %b\n%b%b" % (topic, struct.pack(">I", len(body)), body)


@pytest.fixture
def publisher(start: Start) -> Iterator[tuple[World, socket.socket]]:
    """A connection of the kernel's, beside a topic with durability `os` that has a message."""
    world = start(durability="os")
    world.publish("t", b"first")
    near, far = socket.socketpair()
    near.setblocking(False)
    world.engine.open(near.detach())
    world.engine.watch_outside(world.engine.fileno())
    far.sendall(b"  V2")
    world.turns()
    yield world, far
    far.close()


def test_publishes_stored_by_the_kernel_are_accounted_for(
    publisher: tuple[World, socket.socket],
) -> None:
    world, client = publisher
    topic = world.broker.topic("t")
    group, context = topic.leader().group, world.broker.context
    context.touched.clear()
    room = context.headroom_bytes
    for body in (b"second", b"third"):
        client.sendall(pub(b"t", body))
        assert group.stay() == []
    assert [one for _, _, bodies in batches(world) for one in bodies] == [
        b"first",
        b"second",
        b"third",
    ]
    assert (group.log.written_end, group.tail.committed_end, group.state.rule.committed) == (3,) * 3
    assert group.log.last_id == context.ids.last_id
    assert topic in context.touched
    assert context.headroom_bytes < room
    world.broker.validate()
    again = world.killed()
    assert [bodies for _, _, bodies in batches(again)][-1] == [b"third"]


def test_a_write_that_fails_in_the_kernel_refuses_that_publish_alone(
    publisher: tuple[World, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, client = publisher
    group = world.broker.topic("t").leader().group
    file = group.log._active.file
    own, file.fd = file.fd, -1

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "pwritev", fail)
        client.sendall(pub(b"t", b"refused"))
        assert group.stay() == []
    file.fd = own
    world.turns()
    assert world.publish("t", b"behind").stored
    assert [one for _, _, bodies in batches(world) for one in bodies] == [b"first", b"behind"]
    world.broker.validate()


@pytest.mark.parametrize("state", ["held", "waits"])
def test_the_kernel_does_not_stay_where_a_publish_needs_more(
    publisher: tuple[World, socket.socket], state: str
) -> None:
    world, client = publisher
    group = world.broker.topic("t").leader().group
    if state == "held":
        group.hold(lambda: None)
    else:
        group.state.rule.waits = True
    client.sendall(pub(b"t", b"second"))
    assert group.stay() == []
    assert group.log.written_end == 1


# --- when an append may begin, by the commit rule ---


def test_a_replicated_leader_writes_only_with_a_permit_and_outside_a_handover() -> None:
    leader_id, members = LeaderId(0, 0, 0), (Member(0, 0, 0), Member(1, 1, 1))
    record = PartitionRecord(0, 1, leader_id, members, 1, (0, 1))
    rule = PartitionLeader(ModelLog(), record, 0, leader_id, 0, 0, waits=False)
    shared = CommitState(rule, is_alone=False)
    assert shared.ready
    rule.permits = Permits(False, False, False)
    assert not shared.permitted()
    assert not shared.ready
    shared.validate()
    rule.permits = Permits(False, False, True)
    assert shared.permitted()
    assert shared.ready
    assert not shared.permitted()  # it was before
    rule.linked(1)
    assert rule.hand_over(1, 5)
    assert not shared.permitted()
    assert not shared.ready
    rule.keep_leadership()
    assert shared.permitted()
    shared.hold(True)  # a commit has the end, whatever is permitted
    assert not shared.permitted()
    assert not shared.ready
