"""Documents of the metadata: what is written is read, and nothing else is."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.cluster import keys
from penstock.cluster.coordinator import (
    UNKNOWN,
    Compare,
    Delete,
    Put,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.cluster.documents import (
    CHANNEL,
    CHANNEL_NUMBERS,
    CLUSTER,
    CONTROLLER,
    EPOCH_FLOOR,
    LOOKUP,
    MEMBERSHIP,
    NODE,
    RECORD,
    TOPIC,
    Channel,
    ChannelNumbers,
    Cluster,
    Controller,
    EpochFloor,
    Lookup,
    Membership,
    NodeDocument,
    Topic,
    decode,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import (
    Corrupt,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    Refused,
    Renewed,
    SendReport,
    StartHeld,
    StartRequest,
    decode_message,
    encode_message,
)
from penstock.cluster.transactions import Batches, Proposal
from penstock.errors import DocumentBroken, TransactionTooLarge
from penstock.limits import DOCUMENT_BYTES_MAX, TRANSACTION_COMPARES_MAX, TRANSACTION_KEYS_MAX
from penstock.log.epochs import Extent
from penstock.replication.frames import FrameBroken
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.store import Store

BIG = (1 << 64) - 1
ORDERS = keys.partition("orders", 3)
SAMPLES: list[tuple[str, Any, Any]] = [
    ("cluster", CLUSTER, Cluster((1 << 128) - 1, 1, 2, 0)),
    ("controller", CONTROLLER, Controller("lookupd-1:4160", 7)),
    (
        "nodes/3",
        NODE,
        NodeDocument(BIG, "a.example", 4150, 4151, "b", 4152, "0.1.0", "rack 1", 1 << 40, 0),
    ),
    ("lookups/l:4160", LOOKUP, Lookup("l", 4160, 4161, "0.1.0")),
    ("members/3", MEMBERSHIP, Membership(5, 9, "b-1", 8, BIG, 1 << 50, "draining")),
    (
        "topics/orders",
        TOPIC,
        Topic(BIG, 3, 8, False, (("durability", "os"), ("max", 5), ("x", True)), True, (1, 3)),
    ),
    ("channels/orders/mail", CHANNEL, Channel(BIG, 4, True, (), False)),
    ("numbers/orders", CHANNEL_NUMBERS, ChannelNumbers(7, 3)),
    ("epochs/orders", EPOCH_FLOOR, EpochFloor((1 << 32) - 1, (7, 9))),
    (
        ORDERS,
        RECORD,
        PartitionRecord(
            BIG, 4, LeaderId(1, 2, 3), (Member(1, 3, 9), Member(2, BIG, 1)), 2, (1, 2, 5), 3
        ),
    ),
    (ORDERS, RECORD, PartitionRecord(0, 0, None, (Member(1, 3, 9),), 1, (), 0)),
]


@each(("key", "form", "document"), SAMPLES)
def test_documents_round_trip(key: str, form: Any, document: Any) -> None:
    assert decode(key, form.encode(document)) == document


def test_a_field_with_its_default_is_left_out_where_it_is_optional() -> None:
    assert CLUSTER.encode(Cluster(5)).endswith(b'"format":1,"feature_level":1,"restorations":0}')
    assert EPOCH_FLOOR.encode(EpochFloor(4)) == b'{"v":1,"epoch":4}'
    assert EPOCH_FLOOR.decode("", b'{"v":1,"epoch":4}') == EpochFloor(4)


def changed(**fields: Any) -> bytes:
    record = PartitionRecord(
        255, 4, LeaderId(1, 2, 3), (Member(1, 3, 9), Member(2, 8, 1)), 1, (1, 2), 0
    )
    document = json.loads(RECORD.encode(record))
    for name, value in fields.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    return json.dumps(document).encode()


MEMBER = {"node": 1, "replica": "0000000000000003", "generation": 9}


@each(
    ("data", "text"),
    [
        (changed(v=2), "v: 2 is not valid: this release reads version 1"),
        (changed(v=True), "v: True is not valid"),
        (changed(epoch=...), "epoch: None is not valid: the field is missing"),
        (changed(epoch=-1), "epoch: -1 is not valid: it is a whole number from 0"),
        (changed(epoch=1.0), "epoch: 1.0 is not valid: it is a whole number"),
        (changed(epoch=True), "epoch: True is not valid: it is a whole number"),
        (changed(identity="FF"), "identity: 'FF' is not valid: it is a text of 16 digits"),
        (changed(identity="00000000000000FF"), "digits, 0 to 9 and a to f"),
        (changed(identity=5), "identity: 5 is not valid"),
        (changed(leader=7), "leader: 7 is not valid: it is an object with the fields node"),
        (changed(leader={**MEMBER}), "it is an object with the fields node, incarnation, replica"),
        (changed(in_sync={}), "in_sync: {} is not valid: it is a list of at most 16"),
        (changed(in_sync=[MEMBER] * 17), "it is a list of at most 16"),
        (changed(in_sync=[MEMBER] * 2), "a node has one place in the set"),
        (changed(min_in_sync=3), "the set has at least 3 members"),
        (changed(in_sync=[{**MEMBER, "node": 2}]), "the leader is a member"),
        (changed(preferred=[1, 1]), "a node is named once"),
        (
            changed(preferred=[1024]),
            "preferred: 1024 is not valid: it is a whole number from 0 to 1023",
        ),
        (changed(color=1), "color: 1 is not valid: no such field is known"),
        (b"[1]", "a document is an object"),
        (b"", "it is no JSON document"),
        (b"\xff", "it is no JSON document"),
        (b'{"v":NaN}', "it is no JSON document"),
        (b'{"v":1e999}', "it is no JSON document"),
        (b"[" * 60_000, "it is no JSON document"),
        (b"1" * 5_000, "it is no JSON document"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), f"at most {DOCUMENT_BYTES_MAX} bytes are read"),
    ],
)
def test_a_broken_document_is_refused_with_the_rule(data: bytes, text: str) -> None:
    with pytest.raises(DocumentBroken) as caught:
        decode(ORDERS, data)
    assert str(caught.value).startswith(ORDERS + ": ")
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_a_setting_is_simple(value: object) -> None:
    document = json.loads(CHANNEL.encode(Channel(1, 1, False, (), False)))
    document["settings"] = {"name": value}
    data = json.dumps(document).encode()
    with pytest.raises(DocumentBroken, match="a text, a number, true or false"):
        decode("channels/a/b", data)


def test_random_bytes_are_read_or_refused() -> None:
    """Documents with bytes that were changed, removed or doubled: no other error, and what is read
    is written as something that is read to the same."""
    dice = random.Random(20261122)
    read = 0
    for _ in range(20_000):
        key, form, document = dice.choice(SAMPLES)
        data = bytearray(form.encode(document))
        for _ in range(dice.choice((1, 1, 2, 5))):
            index = dice.randrange(len(data))
            end = min(index + dice.randrange(1, 8), len(data))
            match dice.randrange(4):
                case 0:
                    data[index] = dice.choice(b'0123456789abf"{}[],:-.e \\\xc3')
                case 1:
                    del data[index:end]
                case 2:
                    data[index:index] = data[index:end]
                case _:
                    data[index] = dice.randrange(256)
            data = data or bytearray(b"{")
        try:
            found = decode(key, bytes(data))
        except DocumentBroken:
            continue
        assert found is not None
        assert decode(key, form.encode(found)) == found
        read += 1
    assert 100 < read < 19_000


# --- keys ---


@pytest.mark.parametrize("key", ["channels/a", "channels//b", "channels/a/", "channels/a/b/c"])
def test_a_channel_setting_is_simple(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        keys.channel_of(key)


# --- many changes in few transactions, each with its own outcome ---


class Desk:
    """Transactions wait until they are answered."""

    def __init__(self) -> None:
        self.store = Store()
        self.sent: list[tuple[Transaction, Callable[[Settled], None]]] = []
        self.batches = Batches(self)  # type: ignore[arg-type]
        self.outcomes: dict[str, Outcome] = {}

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        transaction.check()
        self.sent.append((transaction, done))

    def propose(self, key: str, *compares: Compare, besides: tuple[Delete, ...] = ()) -> None:
        def done(settled: Settled) -> None:
            assert key not in self.outcomes
            self.outcomes[key] = settled.outcome

        self.batches.add(Proposal(Put(key, b"1"), compares, done, besides))

    def answer(self, known: bool = True) -> int:
        """Returns how many transactions there were."""
        sent, self.sent = self.sent, []
        for transaction, done in sent:
            settled = self.store.transact(transaction)
            done(settled if known else UNKNOWN)
        return len(sent)


def test_changes_of_a_turn_share_transactions() -> None:
    desk = Desk()
    for number in range(2 * TRANSACTION_KEYS_MAX + 1):
        desk.propose(f"p/{number}", RevisionIs(f"p/{number}", 0))
    desk.batches.flush()
    assert desk.answer() == 3
    assert set(desk.outcomes.values()) == {Outcome.DONE}
    assert len(desk.store.entries) == 2 * TRANSACTION_KEYS_MAX + 1


def test_a_refused_change_does_not_delay_others() -> None:
    desk = Desk()
    for name in ("a", "b", "c"):
        desk.propose(name, RevisionIs(name, 9 if name == "b" else 0))
    desk.batches.flush()
    desk.answer()
    assert desk.outcomes == {"b": Outcome.REFUSED}
    desk.batches.flush()
    desk.answer()
    assert desk.outcomes == {"a": Outcome.DONE, "b": Outcome.REFUSED, "c": Outcome.DONE}


def test_a_missing_answer_leaves_each_outcome_unknown() -> None:
    desk = Desk()
    desk.propose("a")
    desk.propose("b")
    desk.batches.flush()
    desk.answer(known=False)
    assert desk.outcomes == {"a": Outcome.UNKNOWN, "b": Outcome.UNKNOWN}
    assert desk.batches.waiting == []


def test_two_changes_of_a_key_follow_one_another() -> None:
    desk = Desk()
    outcomes: list[Outcome] = []
    for _ in range(2):
        proposal = Proposal(
            Put("a", b"1"), (RevisionIs("a", 0),), lambda settled: outcomes.append(settled.outcome)
        )
        desk.batches.add(proposal)
    desk.batches.flush()
    assert desk.answer() == 2
    assert outcomes == [Outcome.DONE, Outcome.REFUSED]


def test_a_change_larger_than_a_transaction_is_an_error() -> None:
    desk = Desk()
    desk.propose("a", *(RevisionIs(str(n), 0) for n in range(TRANSACTION_COMPARES_MAX + 1)))
    with pytest.raises(TransactionTooLarge, match="121 comparisons; at most 120"):
        desk.batches.flush()


def test_a_refusal_that_no_comparison_explains_is_final() -> None:
    """A lease that is gone: trying again would not end."""
    desk = Desk()
    outcomes: list[Outcome] = []
    desk.batches.add(
        Proposal(Put("a", b"", 99), (), lambda settled: outcomes.append(settled.outcome))
    )
    desk.batches.flush()
    desk.answer()
    assert outcomes == [Outcome.REFUSED]
    assert desk.batches.waiting == []


# --- messages of participants, as bytes and back ---


ORDERS_MESSAGES = PartitionName("orders", 3)
ENTRY = Member(2, (1 << 64) - 1, 9)


@each(
    "message",
    [
        Heartbeat(0, 0),
        Heartbeat((1 << 63) - 1, 1 << 61),
        HeartbeatAnswer(5),
        Refused(7, (1 << 64) - 1),
        SendReport(*ORDERS_MESSAGES, 8, ENTRY, 3, Extent(5, 90, ((1, 5), (7, 50)))),
        SendReport(*ORDERS_MESSAGES, 8, ENTRY, 0, Extent(0, 0, ())),
        SendReport(*ORDERS_MESSAGES, 8, ENTRY, 0, None),
        Corrupt((), ()),
        Renewed(*ORDERS_MESSAGES),
        StartRequest(*ORDERS_MESSAGES, "f" * 16, 3),
        StartHeld(*ORDERS_MESSAGES, "3ff-" + "0" * 16, 1),
        Corrupt((ORDERS_MESSAGES, PartitionName("t", 0)), (ORDERS_MESSAGES,)),
    ],
)
def test_forms_round_trip(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.binary(max_size=200))
def test_random_messages_are_read_or_refused(data: bytes) -> None:
    try:
        message = decode_message(data)
    except FrameBroken:
        return
    assert decode_message(encode_message(message)) == message


@each(
    "form",
    [
        [],
        [1],
        [1, 2, 3, 4],
        [1, 2, -1],
        [1, "2", 3],
        [3, 1 << 63, 5],
        [4, "x" * 65, 0, 0, [1, 2, 3], 0, None],
        [4, "t", 0, 0, [1, 2], 0, None],
        [4, "t", 0, 0, [1, 2, 3], 0, [0, 0, [[1, "0"]]]],
        [5, []],
        [5, [["t", "0"]], []],
        [7, "t", 0, "f" * 15, 1],
        [9, 0],
        [6, "x" * 65, 0],
        {"1": 2},
    ],
)
def test_invalid_messages(form: object) -> None:
    with pytest.raises(FrameBroken, match="a message of"):
        decode_message(msgspec.msgpack.encode(form))
