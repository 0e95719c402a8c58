"""SUB_ORDERED, as Youzan's clients say it, and topics that want nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .world import Running, error, ok

CONFIG = "/channel/config?topic=t&channel=c"


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os") as running:
        assert running.request("POST", "/topic/create?topic=t&partition_num=2").status == 200
        yield running


def pub(nsqd: Running, partition: int, *bodies: bytes) -> None:
    for body in bodies:
        target = f"/pub?topic=t&partition={partition}"
        assert nsqd.request("POST", target, body).status == 200


def config(nsqd: Running, target: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nsqd.request("GET", target).body)
    return found


def test_one_message_after_the_other_of_one_partition(nsqd: Running) -> None:
    pub(nsqd, 0, b"other")
    pub(nsqd, 1, b"one", b"two")
    with nsqd.client() as client:
        assert client.ask(b"SUB_ORDERED t c 1\n") == ok()
        client.send(b"RDY 10\n")
        first = client.message()
        assert struct.unpack(">qi", first.body[:12]) == (0, 4 + len(b"one"))  # where it stands
        assert first.body[12:] == b"one"
        assert client.is_silent()
        client.send(b"REQ " + first.id + b" 0\n")
        assert client.message().id == first.id  # what comes back comes first
        client.send(b"FIN " + first.id + b"\n")
        second = client.message()
        assert (struct.unpack(">q", second.body[:8])[0], second.body[12:]) == (1, b"two")
        client.send(b"FIN " + second.id + b"\n")
        assert client.is_silent()  # the other partition is not its own


def test_the_channel_is_strict_until_it_is_said_otherwise(nsqd: Running) -> None:
    with nsqd.client() as client:
        assert client.ask(b"SUB_ORDERED t c 0\n") == ok()
    assert config(nsqd, CONFIG)["order"] == "strict"
    pub(nsqd, 0, b"one", b"two")
    with nsqd.client() as client:
        assert client.ask(b"SUB t c\n") == ok()
        client.send(b"RDY 10\n")
        assert client.message().body == b"one"
        assert client.is_silent()
        target = "/channel/setorder?topic=t&channel=c&order=false"
        assert nsqd.request("POST", target).status == 200
        assert client.message().body == b"two"


REFUSED = [
    (b"SUB_ORDERED t c", b"E_INVALID SUB_ORDERED insufficient number of parameters"),
    (b"SUB_ORDERED t c 2", b'E_BAD_PARTITION SUB_ORDERED partition "2" is not valid'),
    (b"SUB_ORDERED t c -1", b'E_BAD_PARTITION SUB_ORDERED partition "-1" is not valid'),
    (b"SUB_ORDERED t c x", b'E_BAD_PARTITION SUB_ORDERED partition "x" is not valid'),
    (b"SUB_ORDERED t$ c 0", b'E_BAD_TOPIC SUB_ORDERED topic name "t$" is not valid'),
    (b"SUB_ORDERED t c$ 0", b'E_BAD_CHANNEL SUB_ORDERED channel name "c$" is not valid'),
]


@pytest.mark.parametrize(("line", "text"), REFUSED)
def test_what_is_refused(nsqd: Running, line: bytes, text: bytes) -> None:
    with nsqd.client() as client:
        assert client.ask(line + b"\n") == error(text)


def test_samples_have_no_order(nsqd: Running) -> None:
    with nsqd.client(feature_negotiation=True, sample_rate=50) as client:
        said = client.ask(b"SUB_ORDERED t c 0\n")
    assert said == error(b"E_INVALID cannot SUB_ORDERED with a sample_rate")


def test_an_ordered_topic_has_only_sub_ordered(nsqd: Running) -> None:
    assert nsqd.request("POST", "/topic/config?topic=t&ordered=true").status == 200
    assert config(nsqd, "/topic/config?topic=t")["ordered"] is True
    with nsqd.client() as client:
        said = client.ask(b"SUB t c\n")
    assert said == error(b"E_SUB_ORDER_IS_MUST SUB topic t has only SUB_ORDERED")
    with nsqd.client() as client:
        assert client.ask(b"SUB_ORDERED t c 0\n") == ok()
