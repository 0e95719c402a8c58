"""What a query counts on and that is not asked for, or not there, any more: a clear error, and with
failOnDataLoss=false a word."""

from typing import Any

import pytest

from penstock.errors import ConfigError, DataLost
from penstock.spark.source import StreamReader

from .fakebroker import FakeBroker
from .test_reader import latest, read, stream_reader

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CARELESS = {"failOnDataLoss": "false"}


def test_a_topic_that_the_query_leaves_out(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topic("orders").publish([b"x"] * 4)
    broker.topic("payments").publish([b"x"] * 5)
    both = stream_reader(broker, subscribe="orders,payments")
    start = latest(both, both.initialOffset())
    with pytest.raises(DataLost, match=r"payments.*does not read it any more.*offset 5"):
        latest(stream_reader(broker), start)
    end = latest(stream_reader(broker, **CARELESS), start)
    assert list(end["topics"]) == ["orders"]
    assert "does not read it any more" in caplog.text
    del broker.topics["payments"]
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        latest(stream_reader(broker), start)
    other = latest(stream_reader(broker), {"version": 1, "topics": {}})
    with pytest.raises(ConfigError, match="needs a checkpoint of its own"):
        latest(stream_reader(broker, subscribe="payments"), other)


# --- a topic that ends ---


def ended(broker: FakeBroker, name: str, at: int) -> None:
    broker.ended[name] = {broker.topics.pop(name).identity: at}


def begun(broker: FakeBroker) -> tuple[StreamReader, dict[str, Any]]:
    """Over two topics, and how far it is: at the end of both."""
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"] * 4)
    reader = stream_reader(broker, subscribe="", subscribePattern=".*")
    start = latest(reader, reader.initialOffset())
    return reader, start


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_that_was_not_read_to_its_end_is_one(
    broker: FakeBroker, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one whose end nobody knows: nsqd was started since."""
    reader, start = begun(broker)
    ended(broker, "payments", 6)
    broker.ended = broker.ended if known else {}
    with pytest.raises(DataLost, match=r"payments.*the topic is gone, and was read to offset 4"):
        latest(reader, start)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    assert list(latest(ignoring, start)["topics"]) == ["orders"]
    assert "deleted topics are ignored" in caplog.text


def test_a_topic_that_is_back_is_one_unless_it_is_wanted(broker: FakeBroker) -> None:
    reader, start = begun(broker)
    ended(broker, "payments", 4)
    broker.topic("payments", "second").publish([b"x"] * 2)
    with pytest.raises(DataLost, match=r"payments.*deleted and made again"):
        latest(reader, start)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    end = latest(ignoring, start)
    assert end["topics"]["payments"] == {"identity": "second", "partitions": {"0": 2}}
    assert read(ignoring, *ignoring.partitions(start, end)) == [0, 1]


def test_an_ephemeral_topic_comes_and_goes(broker: FakeBroker) -> None:
    name = "live#ephemeral"
    broker.topic(name).publish([b"x"] * 4)
    reader, start = begun(broker)
    del broker.topics[name]
    gone = latest(reader, start)
    assert name not in gone["topics"]
    broker.topic(name, "second").publish([b"x"] * 2)
    for before in (start, gone):
        end = latest(reader, before)
        assert read(reader, *reader.partitions(before, end)) == [0, 1]


def test_a_topic_that_ends_under_a_batch(broker: FakeBroker) -> None:
    """What the batch was to read of it is lost; a batch that reads nothing of it goes on."""
    reader, start = begun(broker)
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"])
    end = latest(reader, start)
    ended(broker, "payments", 5)
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        reader.partitions(start, end)
    end["topics"]["payments"]["partitions"]["0"] = 4
    assert read(reader, *reader.partitions(start, end)) == [4]
