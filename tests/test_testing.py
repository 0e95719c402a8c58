"""The broker for tests, as those who use it do."""

from pathlib import Path

import pytest

from penstock.client.blocking import BlockingConsumer, BlockingProducer
from penstock.command.flags import UsageError
from penstock.testing import TestBroker


def test_published_messages_are_listed_and_consumed() -> None:
    with TestBroker() as broker, BlockingProducer(broker.address) as producer:
        assert broker.messages("orders") == []
        with BlockingConsumer("orders", "billing", broker.address) as consumer:
            producer.pub("orders", b"one")
            producer.mpub("orders", [b"two", b"three"])
            for message, body in zip(consumer, (b"one", b"two", b"three"), strict=False):
                assert message.body == body
                message.fin()
                if body == b"three":
                    break
        assert broker.messages("orders") == [b"one", b"two", b"three"]


def test_its_files_go_with_it_and_each_is_empty() -> None:
    for _ in range(2):
        with TestBroker() as broker, BlockingProducer(broker.address) as producer:
            path = Path(broker.data_path)
            assert (path / "topics").is_dir()
            producer.pub("orders", b"one")
            assert broker.messages("orders") == [b"one"]
        assert not path.exists()


def test_flags_are_those_of_nsqd_and_a_wrong_one_is_named() -> None:
    with (
        TestBroker("--max-msg-size=10") as broker,
        BlockingProducer(broker.address) as producer,
        pytest.raises(Exception, match="too big"),
    ):
        producer.pub("orders", b"eleven bytes")
    with pytest.raises(UsageError, match="nonsense"), TestBroker("--nonsense"):
        pass


@pytest.mark.parametrize("body", [b"one", b"two"])
def test_the_fixture_gives_each_test_a_broker(penstock_broker: TestBroker, body: bytes) -> None:
    """pytest finds it by the entry point."""
    with BlockingProducer(penstock_broker.address) as producer:
        producer.pub("orders", body)
    assert penstock_broker.messages("orders") == [body]
