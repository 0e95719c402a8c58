"""Documents of the metadata: what is written is read, and nothing else is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cases import each
from penstock.cluster import documents, keys
from penstock.cluster.documents import (
    CHANNEL,
    CLUSTER,
    CONTROLLER,
    EPOCH_FLOOR,
    LOOKUP,
    MEMBERSHIP,
    NODE,
    RECORD,
    SETTING,
    TOPIC,
    Channel,
    Cluster,
    Controller,
    EpochFloor,
    Lookup,
    Membership,
    Node,
    Setting,
    Topic,
    decode,
)
from penstock.errors import DocumentBroken
from penstock.limits import DOCUMENT_BYTES_MAX
from penstock.replica.record import Member, Record, Seat

BIG = (1 << 64) - 1
ORDERS = keys.partition("orders", 3)
SAMPLES: list[tuple[str, Any, Any]] = [
    ("cluster", CLUSTER, Cluster((1 << 128) - 1, 1, 2, 0)),
    ("controller", CONTROLLER, Controller("lookupd-1:4160", 7)),
    (
        "nodes/3",
        NODE,
        Node(BIG, "a.example", 4150, 4151, "b", 4152, "0.1.0", "rack 1", 1 << 40, 0),
    ),
    ("lookups/l:4160", LOOKUP, Lookup("l", 4160, 4161, "0.1.0")),
    ("members/3", MEMBERSHIP, Membership(5, 9, "b-1", 8, BIG, 1 << 50, "draining")),
    (
        "topics/orders",
        TOPIC,
        Topic(BIG, 3, 8, False, (("durability", "os"), ("max", 5), ("x", True)), True, (1, 3)),
    ),
    ("channels/orders/mail", CHANNEL, Channel(BIG, 4, True, (), False)),
    ("epochs/orders", EPOCH_FLOOR, EpochFloor((1 << 32) - 1)),
    (
        ORDERS,
        RECORD,
        Record(BIG, 4, Seat(1, 2, 3), (Member(1, 3, 9), Member(2, BIG, 1)), 2, (1, 2, 5), 3),
    ),
    (ORDERS, RECORD, Record(0, 0, None, (Member(1, 3, 9),), 1, (), 0)),
    ("settings/pause", SETTING, Setting("1")),
]


@each(("key", "form", "document"), SAMPLES)
def test_what_is_written_is_read(key: str, form: Any, document: Any) -> None:
    assert decode(key, form.encode(document)) == document


def test_a_record_is_text_that_a_person_reads() -> None:
    record = Record(255, 4, None, (Member(1, 3, 9),), 1, (1,), 0)
    assert RECORD.encode(record) == (
        b'{"v":1,"identity":"00000000000000ff","epoch":4,"leader":null,'
        b'"in_sync":[{"node":1,"replica":"0000000000000003","generation":9}],'
        b'"min_in_sync":1,"preferred":[1],"unclean_epoch":0}'
    )


def changed(**fields: Any) -> bytes:
    record = Record(255, 4, Seat(1, 2, 3), (Member(1, 3, 9), Member(2, 8, 1)), 1, (1, 2), 0)
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
        (b'{"v":1,"v":1}', "a field stands in it twice"),
        (b'{"v":NaN}', "NaN is no number of JSON"),
        (b"[" * 60_000, "it is no JSON document"),
        (b"1" * 5_000, "it is no JSON document"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), f"at most {DOCUMENT_BYTES_MAX} bytes are read"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(data: bytes, text: str) -> None:
    with pytest.raises(DocumentBroken) as caught:
        decode(ORDERS, data)
    assert str(caught.value).startswith(ORDERS + ": ")
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("inf")])
def test_a_setting_is_simple(value: object) -> None:
    document = json.loads(CHANNEL.encode(Channel(1, 1, False, (), False)))
    document["settings"] = {"name": value}
    data = json.dumps(document).replace("Infinity", "1e999").encode()
    with pytest.raises(DocumentBroken, match="a text, a number, true or false"):
        decode("channels/a/b", data)


def test_other_keys_have_no_document() -> None:
    assert decode("commits/0a", b"anything") is None


def test_whatever_comes_is_read_or_refused() -> None:
    """Documents with bytes that were changed, removed or doubled: no other error, and what is read
    is written as something that is read to the same."""
    dice = random.Random(20261122)
    read = 0
    for _ in range(20_000):
        key, form, document = dice.choice(SAMPLES)
        data = bytearray(form.encode(document))
        for _ in range(dice.choice((1, 1, 2, 5))):
            place = dice.randrange(len(data))
            end = min(place + dice.randrange(1, 8), len(data))
            match dice.randrange(4):
                case 0:
                    data[place] = dice.choice(b'0123456789abf"{}[],:-.e \\\xc3')
                case 1:
                    del data[place:end]
                case 2:
                    data[place:place] = data[place:end]
                case _:
                    data[place] = dice.randrange(256)
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


def test_keys_name_what_they_are_about() -> None:
    assert keys.partition_of(keys.partition("orders", 12)) == ("orders", 12)
    assert keys.channel_of(keys.channel("orders", "mail#ephemeral")) == (
        "orders",
        "mail#ephemeral",
    )
    assert keys.node_of(keys.node(7)) == keys.node_of(keys.member(7)) == 7


@each(
    "key",
    ["partitions/a", "partitions/a/01", "partitions/a/-1", "partitions//1", "partitions/a/1/2"],
)
def test_a_partition_has_one_key(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        keys.partition_of(key)


@pytest.mark.parametrize("key", ["channels/a", "channels//b", "channels/a/", "channels/a/b/c"])
def test_so_has_a_channel(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        keys.channel_of(key)


def padded(fields: Any) -> list[Any]:
    return [(*field, "")[:3] for field in fields]


def test_each_form_has_the_fields_of_its_class() -> None:
    for _, form, document in SAMPLES:
        attributes = [attribute or name for name, _, attribute in padded(form.fields)]
        assert attributes == list(document._fields)
    forms = [form for form in vars(documents).values() if isinstance(form, documents.Form)]
    assert {id(form) for _, form, _ in SAMPLES} == {id(form) for form in forms}
