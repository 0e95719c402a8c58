"""What a destination takes of a message's headers, learnt from its refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import Message
from penstock.errors import ServerRefused
from penstock.tools.carrier import Carrier, Unfit

HEADERS = {"key": "k", "color": "red", "##trace_id": "7"}
NOT_EXTENDED = b"E_EXT_NOT_SUPPORT PUB_EXT topic is not extended"
NOT_KNOWN = b"E_INVALID invalid command PUB_EXT"


class Brought(Message):
    """As from a consumer that asks for an envelope."""

    def __init__(
        self, headers: dict[str, Any], key: str | None = None, partition: int | None = 2
    ) -> None:
        self._brought = (headers, key, partition)

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self._brought[0])

    @property
    def key(self) -> str | None:
        return self._brought[1] or super().key

    @property
    def partition(self) -> int | None:
        return self._brought[2]

    @property
    def address(self) -> str:
        return "source:4150"


class Taker:
    """A producer whose nsqd refuses headers, or partitions."""

    def __init__(self, refusals: list[bytes] | None = None, partitions: int = 9) -> None:
        self.published: list[tuple[bytes, dict[str, Any]]] = []
        self.tries = 0
        self._refusals = refusals or []
        self._partitions = partitions

    async def pub(self, topic: str, body: bytes, **to: Any) -> None:
        self.tries += 1
        if (to.get("partition") or 0) >= self._partitions:
            raise ServerRefused("b:1", b"E_BAD_PARTITION PUB partition 2 is not there")
        headers = to.get("headers") or {}
        for refusal in self._refusals:
            if headers and (refusal == NOT_KNOWN or "color" in headers):
                raise ServerRefused("b:1", refusal)
        self.published.append((body, to))


def carry(taker: Taker, *messages: Message, drop: bool = False, keep: bool = False) -> None:
    async def story() -> None:
        producer: Any = taker
        carrier = Carrier(producer, "b:1", "t", drop_headers=drop, keep_place=keep)
        for message in messages:
            await carrier.publish(message, b"body")

    asyncio.run(story())


def test_headers_and_keys_go_along() -> None:
    taker = Taker()
    carry(taker, Brought(HEADERS), Brought({}, "k"), Brought({}))
    assert taker.published == [
        (b"body", {"headers": HEADERS, "partition": None}),
        (b"body", {"headers": {"key": "k"}, "partition": None}),
        (b"body", {}),
    ]


def test_a_partition_is_kept() -> None:
    taker = Taker()
    carry(taker, Brought(HEADERS), Brought({}), keep=True)
    assert taker.published == [
        (b"body", {"headers": HEADERS, "partition": 2}),
        (b"body", {"partition": 2}),
    ]


def test_a_partition_that_the_destination_does_not_have() -> None:
    with pytest.raises(Unfit, match=r"E_BAD_PARTITION.*topic t needs as many there"):
        carry(Taker(partitions=2), Brought({}), keep=True)


def test_a_partition_that_the_source_does_not_tell() -> None:
    with pytest.raises(Unfit, match="source:4150 does not tell the partition"):
        carry(Taker(), Brought({}, partition=None), keep=True)


@pytest.mark.parametrize("refusal", [NOT_EXTENDED, NOT_KNOWN])
def test_headers_are_not_dropped_unasked(refusal: bytes) -> None:
    taker = Taker([refusal])
    with pytest.raises(Unfit, match=r"b:1 does not take the headers .* or give --drop-headers"):
        carry(taker, Brought(HEADERS))
    assert taker.published == []


@pytest.mark.parametrize(
    ("refusal", "left", "tries"),
    [
        (NOT_EXTENDED, {"headers": {"key": "k", "##trace_id": "7"}, "partition": None}, 4),
        (NOT_KNOWN, {}, 4),
    ],
)
def test_what_is_dropped_is_said_once(
    refusal: bytes, left: dict[str, Any], tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    taker = Taker([refusal])
    carry(taker, *(Brought(HEADERS) for _ in range(3)), drop=True)
    assert taker.published == [(b"body", left)] * 3
    assert taker.tries == tries
    (record,) = caplog.records
    assert "are dropped from now on" in record.getMessage()


def test_another_refusal_is_not_about_headers() -> None:
    class Full(Taker):
        async def pub(self, topic: str, body: bytes, **to: Any) -> None:
            raise ServerRefused("b:1", b"E_PUB_FAILED disk full")

    with pytest.raises(ServerRefused, match="disk full"):
        carry(Full(), Brought(HEADERS), drop=True)
