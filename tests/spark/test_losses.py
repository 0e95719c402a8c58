"""What a query counts on and that is not asked for, or not there, any more: a clear error, and with
failOnDataLoss=false a word."""

from typing import Any

import pytest

from penstock.errors import ConfigError, DataLost
from penstock.spark.source import StreamReader

from .fakebroker import FakeBroker
from .test_reader import read, stream_reader

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CARELESS = {"failOnDataLoss": "false"}


def test_a_topic_that_the_query_leaves_out(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topic("orders").publish([b"x"] * 4)
    broker.topic("payments").publish([b"x"] * 5)
    both = stream_reader(broker, subscribe="orders,payments")
    start = both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())
    limit = both.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*does not read it any more.*offset 5"):
        stream_reader(broker).latestOffset(start, limit)
    end = stream_reader(broker, **CARELESS).latestOffset(start, limit)
    assert list(end["topics"]) == ["orders"]
    assert "does not read it any more" in caplog.text
    del broker.topics["payments"]
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        stream_reader(broker).latestOffset(start, limit)
    with pytest.raises(ConfigError, match="needs a checkpoint of its own"):
        stream_reader(broker, subscribe="payments").latestOffset(
            stream_reader(broker).latestOffset({"version": 1, "topics": {}}, limit), limit
        )


# --- a topic that ends ---


def ended(broker: FakeBroker, name: str, at: int) -> None:
    broker.ended[name] = {broker.topics.pop(name).identity: at}


def begun(broker: FakeBroker) -> tuple[StreamReader, dict[str, Any]]:
    """Over two topics, and how far it is: at the end of both."""
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"] * 4)
    reader = stream_reader(broker, subscribe="", subscribePattern=".*")
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    return reader, start


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_that_was_not_read_to_its_end_is_one(
    broker: FakeBroker, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one whose end nobody knows: nsqd was started since."""
    reader, start = begun(broker)
    ended(broker, "payments", 6)
    broker.ended = broker.ended if known else {}
    limit = reader.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*the topic is gone, and was read to offset 4"):
        reader.latestOffset(start, limit)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    assert list(ignoring.latestOffset(start, limit)["topics"]) == ["orders"]
    assert "deleted topics are ignored" in caplog.text


def test_a_topic_that_is_back_is_one_unless_it_is_wanted(broker: FakeBroker) -> None:
    reader, start = begun(broker)
    ended(broker, "payments", 4)
    broker.topic("payments", "second").publish([b"x"] * 2)
    limit = reader.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*deleted and made again"):
        reader.latestOffset(start, limit)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    end = ignoring.latestOffset(start, limit)
    assert end["topics"]["payments"] == {"identity": "second", "partitions": {"0": 2}}
    assert read(ignoring, *ignoring.partitions(start, end)) == [0, 1]


def test_an_ephemeral_topic_comes_and_goes(broker: FakeBroker) -> None:
    name = "live#ephemeral"
    broker.topic(name).publish([b"x"] * 4)
    reader, start = begun(broker)
    limit = reader.getDefaultReadLimit()
    del broker.topics[name]
    gone = reader.latestOffset(start, limit)
    assert name not in gone["topics"]
    broker.topic(name, "second").publish([b"x"] * 2)
    for before in (start, gone):
        end = reader.latestOffset(before, limit)
        assert read(reader, *reader.partitions(before, end)) == [0, 1]


def test_a_topic_that_ends_under_a_batch(broker: FakeBroker) -> None:
    """What the batch was to read of it is lost; a batch that reads nothing of it goes on."""
    reader, start = begun(broker)
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    ended(broker, "payments", 5)
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        reader.partitions(start, end)
    end["topics"]["payments"]["partitions"]["0"] = 4
    assert read(reader, *reader.partitions(start, end)) == [4]
