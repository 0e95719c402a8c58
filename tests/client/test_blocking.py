"""The blocking face, against a real nsqd."""

import threading
from pathlib import Path

import pytest

from e2e.daemon import Daemon, shared_daemon
from e2e.lookupd import eventually
from penstock.client import BlockingConsumer, BlockingProducer, NotStarted
from penstock.errors import ClientClosed, ConfigError, ConnectFailed, MessageSettled, NameInvalid

daemon = shared_daemon("--durability=os")


@pytest.fixture
def address(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.function.__name__).removeprefix("test_")[:64]


def test_publish_and_consume(daemon: Daemon, address: str, topic: str) -> None:
    with BlockingProducer(address) as producer:
        producer.pub(topic, b"one")
        producer.mpub(topic, [b"two", b"three"])
        producer.dpub(topic, b"later", 0.05)
        assert producer.pub_many(topic, (b"%d" % n for n in range(5000))) == 5000
        with pytest.raises(NameInvalid):
            producer.pub("a b", b"body")
    bodies = []
    with BlockingConsumer(topic, "c", address, max_in_flight=500) as consumer:
        for message in consumer:
            bodies.append(message.body)
            if message.body == b"one" and message.attempts == 1:
                with pytest.raises(ConfigError):
                    message.req(-1)
                message.req()
                with pytest.raises(MessageSettled):
                    message.fin()
            else:
                message.touch()
                message.fin()
            if len(bodies) == 5005:
                consumer.stop()
        assert consumer.counts.finished == 5004
    assert len(set(bodies)) == 5004
    found = daemon.channel_stats(topic, "c")
    assert (found["depth"], found["in_flight_count"], found["timeout_count"]) == (0, 0, 0)


def test_get_waits_no_longer_than_it_may(address: str, topic: str) -> None:
    with BlockingConsumer(topic, "c", address) as consumer, BlockingProducer(address) as producer:
        assert consumer.get(0.02) is None
        producer.pub(topic, b"body")
        found = consumer.get(40)
        assert found is not None
        assert found.address == address
        ends = [threading.Thread(target=consumer.close, args=(0.2,), daemon=True) for _ in range(2)]
        for thread in ends:
            thread.start()
        for thread in ends:
            thread.join(40)
            assert not thread.is_alive()


def test_fetched_messages_are_requeued_at_the_end(daemon: Daemon, address: str, topic: str) -> None:
    with BlockingProducer(address) as producer:
        producer.mpub(topic, [b"%d" % n for n in range(100)])
    with BlockingConsumer(topic, "c", address, max_in_flight=100) as consumer:
        for message in consumer:
            message.fin()
            break
    # In far less than the timeout of a message.
    eventually(lambda: daemon.channel_stats(topic, "c")["depth"] == 99, 30)
    assert daemon.channel_stats(topic, "c")["in_flight_count"] == 0


def test_many_threads(address: str, topic: str) -> None:
    seen: list[bytes] = []

    def publish(place: int) -> None:
        for number in range(100):
            producer.pub(topic, b"%d.%d" % (place, number))

    def consume() -> None:
        for message in consumer:
            seen.append(message.body)
            message.fin()
            if len(seen) >= 400:
                consumer.stop()

    with BlockingProducer(address) as producer, BlockingConsumer(topic, "c", address) as consumer:
        threads = [threading.Thread(target=publish, args=(place,)) for place in range(4)]
        threads += [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
            assert not thread.is_alive()
    assert sorted(seen) == sorted(b"%d.%d" % (p, n) for p in range(4) for n in range(100))


def test_ends_and_mistakes(address: str, topic: str, tmp_path: Path) -> None:
    producer, consumer = BlockingProducer(address), BlockingConsumer(topic, "c", address)
    with pytest.raises(NotStarted, match="the producer is not started"):
        producer.pub(topic, b"body")
    with pytest.raises(NotStarted, match="the consumer is not started"):
        consumer.get()
    with producer, consumer:
        pass
    with pytest.raises(ClientClosed):
        producer.pub(topic, b"body")
    with pytest.raises(ClientClosed):
        consumer.get()
    with pytest.raises(ConfigError):
        BlockingProducer(address, no_such_option=1)
    with pytest.raises(ConnectFailed):
        BlockingProducer(str(tmp_path / "no.socket")).start()
    with pytest.raises(ConnectFailed):
        BlockingConsumer(topic, "c", str(tmp_path / "no.socket")).start()
    assert not [t for t in threading.enumerate() if t.name.startswith("penstock ")]
