"""What may be a message's body, and how it is read again."""

import asyncio
import dataclasses
import json
from datetime import date
from typing import Any, get_type_hints

import msgspec
import pytest
from pydantic import BaseModel

from cases import each
from penstock.client import BlockingConsumer, BlockingProducer, Consumer, Producer
from penstock.client import options as client_options
from penstock.client.bodies import encode, encode_all, from_json, to_json
from penstock.client.options import ProducerOptions, address_list, settle_options
from penstock.errors import ConfigError
from penstock.testing import TestBroker


@dataclasses.dataclass
class Order:
    id: int
    sum: float


class Model:
    """As Pydantic's."""

    def model_dump_json(self) -> str:
        return '{"id":3}'


class Parcel(BaseModel, strict=True):
    day: date
    weight: float


@each(
    ("body", "data"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abc")[1:], b"bc"),
        ("grün", "grün".encode()),
        ({"id": 1, "sum": 2.5}, b'{"id":1,"sum":2.5}'),
        ([1, None], b"[1,null]"),
        (7, b"7"),
        (Order(1, 2.5), b'{"id":1,"sum":2.5}'),
        (Model(), b'{"id":3}'),
        ([Model()], b'[{"id":3}]'),
    ],
)
def test_bodies(body: object, data: bytes) -> None:
    assert encode(body, to_json) == data


@each("body", [b"", "", None, bytearray(), object(), {1j: 2}, "\ud800"])
def test_invalid_bodies(body: object) -> None:
    with pytest.raises(ConfigError, match="body"):
        encode(body, to_json)


def test_models_of_pydantic_are_read_again() -> None:
    parcel = Parcel(day=date(2026, 11, 29), weight=1.5)
    assert from_json(to_json(parcel), Parcel) == parcel
    assert from_json(to_json({"a": [parcel]}), dict[str, list[Parcel]]) == {"a": [parcel]}
    with pytest.raises(msgspec.ValidationError, match="weight"):
        from_json(b'{"day":"2026-11-29"}', Parcel)
    with pytest.raises(msgspec.ValidationError, match="no form in JSON"):
        from_json(b"{}", Model)


def test_several_bodies_are_at_least_one() -> None:
    assert encode_all(["a", {"b": 1}], to_json) == [b"a", b'{"b":1}']
    with pytest.raises(ConfigError, match="at least one"):
        encode_all([], to_json)


@each("bodies", ["abc", b"abc", bytearray(b"abc"), {"a": 1}])
def test_one_body_is_not_taken_for_several(bodies: Any) -> None:
    with pytest.raises(ConfigError, match="give a list"):
        encode_all(bodies, to_json)
    with pytest.raises(ConfigError, match="give a list"):
        asyncio.run(Producer("127.0.0.1:1").pub_many("t", bodies))


def test_a_serializer_of_ones_own() -> None:
    assert encode({"a": 1}, lambda value: json.dumps(value).encode()) == b'{"a": 1}'
    with pytest.raises(ConfigError, match="serializer"):
        encode({"a": 1}, json.dumps)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"body: <class 'dict'> .* cannot be serialized: no"):
        encode({}, _fail)


def _fail(value: Any) -> bytes:
    raise ValueError("no")


async def test_objects_come_as_they_went(penstock_broker: TestBroker) -> None:
    address = f"nsq://{penstock_broker.address}"

    async with Producer(address) as producer:
        await producer.pub("orders", Order(1, 2.5))
        await producer.mpub("orders", ["text", {"id": 2, "sum": 1}])
        await producer.dpub("orders", [3], 0)
        await producer.publish_nowait("orders", {"id": 4})
        await producer.pub_many("orders", [{"id": 5}, "six"])
    async with Consumer("orders", "work", address) as consumer:
        got = [await anext(consumer) for _ in range(7)]
        by_body = {message.text: message for message in got}
        order = by_body['{"id":1,"sum":2.5}']
        assert order.json() == {"id": 1, "sum": 2.5}
        assert order.json(Order) == Order(1, 2.5)
        assert "six" in by_body
        with pytest.raises(ValueError, match=r"invalid|malformed"):
            by_body["text"].json()
        with pytest.raises(msgspec.ValidationError):
            by_body["[3]"].json(Order)
        assert order.id == order.raw_id.decode()
        await order.nack()
        for message in got:
            if message is not order:
                await message.ack()
        again = await anext(consumer)
        assert (again.id, again.attempts) == (order.id, 2)
        await again.ack()


def test_a_blocking_message_is_read_alike(penstock_broker: TestBroker) -> None:
    address = penstock_broker.address
    with BlockingProducer(address) as producer:
        producer.pub("orders", Order(1, 2.5))
    with BlockingConsumer("orders", "work", address) as consumer:
        message = consumer.get(30)
        assert message is not None
        assert (message.json(Order), message.text) == (Order(1, 2.5), '{"id":1,"sum":2.5}')
        message.ack()


# --- options ---


def test_an_address_may_be_a_url() -> None:
    assert address_list(["nsq://a:4150", "a:4150", "/run/nsqd"]) == ["a:4150", "/run/nsqd"]


def test_a_misspelt_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="is no option; did you mean publish_timeout_s"):
        settle_options(ProducerOptions(), {"publish_timout_s": 1})


@each("kind", ["Client", "Connection", "Publish", "Producer", "Idempotent", "Consumer"])
def test_keywords_are_the_options(kind: str) -> None:
    fields = get_type_hints(getattr(client_options, f"{kind}Options"))
    keywords = get_type_hints(getattr(client_options, f"{kind}Keywords"))
    assert {name: hint for name, hint in fields.items() if name in keywords} == keywords
    assert keywords.keys() == fields.keys()
