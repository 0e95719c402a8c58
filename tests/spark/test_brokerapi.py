"""The HTTP client: what it asks, what it tries again, and what it says of refusals."""

import json
import socket
import threading
from typing import Any

import pyarrow as pa
import pytest

from e2e.answering import served
from e2e.lookupd import eventually
from penstock.errors import BrokerRefused, ConfigError, DataLost, FetchFailed
from penstock.spark.brokerapi import BrokerApi, name_of
from penstock.spark.options import read_options
from penstock.spark.source import BatchReader, StreamReader

from .fakebroker import FakeBroker
from .test_reader import three_batches


def test_a_refusal_has_its_code_and_is_asked_for_once(broker: FakeBroker) -> None:
    broker.topic("orders").publish([b"a", b"b"])
    with BrokerApi(broker.url) as api, pytest.raises(BrokerRefused) as caught:
        next(api.fetches("orders", 0, "first", 2, 9))
    assert (caught.value.status, caught.value.code) == (416, "OFFSET_BEYOND_END")
    assert "?" not in str(caught.value)
    fetches = [path for _, path, _ in broker.requests if path == "/log/fetch"]
    assert len(fetches) == 1  # a rule is not asked again


@pytest.mark.parametrize(("failures", "hangups"), [(2, 0), (0, 2), (1, 1)])
def test_safe_requests_are_repeated(broker: FakeBroker, failures: int, hangups: int) -> None:
    broker.failures, broker.hangups = failures, hangups
    with BrokerApi(broker.url, retries=2, retry_ms=1) as api:
        assert api.positions().topics == {}
    broker.failures, broker.hangups = failures, hangups
    with BrokerApi(broker.url, retries=1, retry_ms=1) as api, pytest.raises(FetchFailed):
        api.positions()


def test_nobody_there_is_said_with_the_address() -> None:
    with FakeBroker() as gone:
        url = gone.url
    with (
        BrokerApi(url, retries=0) as api,
        pytest.raises(FetchFailed, match=f"{url}.*: Connection refused$"),
    ):
        api.positions()


def test_the_tcp_port_is_known_by_its_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(b"\0\0\0\x12\0\0\0\1E_BAD_PROTOCOL")

        thread = threading.Thread(target=answer)
        thread.start()
        api = BrokerApi(f"127.0.0.1:{server.getsockname()[1]}")
        with api, pytest.raises(ConfigError, match=r"TCP port: name its HTTP port.* 4151"):
            api.positions()
        thread.join()


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:port", "h:1?x=1"])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"url: .* is not valid"):
        BrokerApi(url)


# --- one range after the other ---


def asked_from(broker: FakeBroker) -> list[int]:
    return [int(query["from"][0]) for _, path, query in broker.requests if path == "/log/fetch"]


def test_the_next_range_is_asked_for_ahead(broker: FakeBroker) -> None:
    three_batches(broker)
    with BrokerApi(broker.url) as api:
        ranges = api.fetches("orders", 0, "first", 5, 25, bytes_max=1)
        assert next(ranges).next_offset == 10
        eventually(lambda: len(asked_from(broker)) >= 2)
        assert [fetched.next_offset for fetched in ranges] == [20, 30]
    assert asked_from(broker) == [5, 10, 20]


# --- A query of several nsqds: each message once, whichever of them comes, goes or moves ---


COLUMNS = pa.schema([("broker", pa.string()), ("topic", pa.string()), ("offset", pa.int64())])
NO_RETRIES = {"fetchOffset.numRetries": "0"}
Row = tuple[str, str, int]


other = lookupd = served(FakeBroker)


def knows(lookupd: FakeBroker, *brokers: FakeBroker) -> None:
    producers = []
    for broker in brokers:
        host, port = name_of(broker.url).rsplit(":", 1)
        producers.append({"broadcast_address": host, "http_port": int(port)})
    lookupd.answers["/nodes"] = {"producers": producers}


def publish(broker: FakeBroker, count: int, topic: str = "orders") -> None:
    broker.topic(topic, f"log of {topic} at {broker.url}").publish([b"x"] * count)


def rows(broker: FakeBroker, start: int, end: int, topic: str = "orders") -> list[Row]:
    return [(name_of(broker.url), topic, offset) for offset in range(start, end)]


def read(reader: BatchReader | StreamReader, tasks: Any) -> list[Row]:
    return [
        tuple(row.values())  # type: ignore[misc]
        for task in tasks
        for piece in reader.read(task)
        for row in piece.to_pylist()
    ]


class Query:
    """What Spark does: batch after batch, with the end of the last one as the checkpoint."""

    def __init__(self) -> None:
        self.at: dict[str, Any] | None = None
        self.rows: list[Row] = []

    def run(self, *brokers: FakeBroker, once: bool = False, **given: str) -> list[Row]:
        """The rows that are new."""
        if brokers:
            given["url"] = ",".join(broker.url for broker in brokers)
        options = {"subscribe": "orders", "startingOffsets": "earliest", **NO_RETRIES, **given}
        reader = StreamReader(read_options(options, streaming=True), COLUMNS)
        if once:
            reader.prepareForTriggerAvailableNow()
        found: list[Row] = []
        start = reader.initialOffset() if self.at is None else self.at
        while True:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            end = json.loads(json.dumps(end))
            if end == start:
                break
            found += read(reader, reader.partitions(start, end))
            start = end
        self.at = start
        self.rows += found
        return sorted(found)


def test_a_batch_reads_all_of_them(broker: FakeBroker, other: FakeBroker) -> None:
    publish(broker, 3)
    publish(other, 2)
    urls = f"{broker.url},{other.url}"
    options = read_options({"url": urls, "subscribe": "orders"}, streaming=False)
    reader = BatchReader(options, COLUMNS)
    assert sorted(read(reader, reader.partitions())) == sorted(
        rows(broker, 0, 3) + rows(other, 0, 2)
    )
    bounds = {name_of(broker.url): {"orders": {"0": 1}}, name_of(other.url): {"orders": {"0": -2}}}
    given = {"url": urls, "subscribe": "orders", "startingOffsets": json.dumps(bounds)}
    reader = BatchReader(read_options(given, streaming=False), COLUMNS)
    assert len(read(reader, reader.partitions())) == 4


def test_one_becomes_several_and_one_again(broker: FakeBroker, other: FakeBroker) -> None:
    query = Query()
    publish(broker, 3)
    assert query.run(broker) == rows(broker, 0, 3)
    assert query.at is not None
    assert query.at["version"] == 1
    publish(broker, 1)
    publish(other, 2)
    other.topics["orders"].earliest = 1  # the rest is gone, and nobody has ever asked for it
    assert query.run(broker, other) == sorted(rows(broker, 3, 4) + rows(other, 1, 2))
    publish(broker, 1)
    with pytest.raises(DataLost, match=f"nsqd {name_of(other.url)} is not among.*goneBrokers"):
        query.run(broker)
    assert query.run(broker, goneBrokers=name_of(other.url)) == rows(broker, 4, 5)
    publish(other, 2)
    assert query.run(other, broker, maxOffsetsPerTrigger="1") == rows(other, 2, 4)


def test_one_that_moved_goes_on(broker: FakeBroker, other: FakeBroker) -> None:
    query = Query()
    publish(broker, 3)
    publish(other, 2)
    query.run(broker, other)
    with FakeBroker() as moved:
        moved.topics = other.topics
        publish(broker, 1)
        moved.topics["orders"].publish([b"x"])
        assert query.run(broker, moved) == sorted(rows(broker, 3, 4) + rows(moved, 2, 3))
        with pytest.raises(ConfigError, match="they are one nsqd"):
            query.run(broker, moved, other)


def test_those_that_nsqlookupd_knows(
    broker: FakeBroker, other: FakeBroker, lookupd: FakeBroker
) -> None:
    query = Query()
    publish(broker, 3)
    knows(lookupd, broker)
    by = {"lookupd": f"{lookupd.url},127.0.0.1:1"}  # one that does not answer is enough
    assert query.run(**by) == rows(broker, 0, 3)
    publish(other, 2)
    knows(lookupd, broker, other)
    assert query.run(**by) == rows(other, 0, 2)
    # A restart, or a partition between the two: it is read all the same.
    publish(other, 1)
    knows(lookupd, broker)
    assert query.run(once=True, **by) == []
    assert query.run(**by) == rows(other, 2, 3)
    with pytest.raises(FetchFailed):
        query.run(lookupd="127.0.0.1:1")


def test_one_that_nobody_knows_and_that_is_away(broker: FakeBroker, lookupd: FakeBroker) -> None:
    query = Query()
    publish(broker, 1)
    with FakeBroker() as away:
        publish(away, 2)
        knows(lookupd, broker, away)
        query.run(lookupd=lookupd.url)
        publish(away, 1)
    knows(lookupd, broker)
    publish(broker, 1)
    with pytest.raises(FetchFailed, match="name it in goneBrokers"):
        query.run(lookupd=lookupd.url)
    gone = {"goneBrokers": name_of(away.url), "lookupd": lookupd.url}
    assert query.run(**gone) == rows(broker, 1, 2)
    with FakeBroker() as back:
        back.topics = away.topics
        knows(lookupd, broker, back)
        assert query.run(**gone) == rows(back, 2, 3)
