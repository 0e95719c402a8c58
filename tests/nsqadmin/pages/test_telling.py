"""How topics and channels do, in words; and what a node's metrics tell."""

from __future__ import annotations

from penstock.nsqadmin import lag
from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.lag import Lag
from penstock.nsqadmin.pages import process, states, telling, words
from penstock.nsqadmin.pages.parts import curve
from penstock.nsqadmin.snapshot import ChannelState, TopicState


def topic(*names: str, in_rate: float = 57.0) -> TopicState:
    channels = {name: ChannelState("orders", name) for name in names}
    return TopicState("orders", messages=9, in_rate=in_rate, channels=channels, nodes=["n:1"])


def test_a_topic_with_a_channel_that_is_late() -> None:
    found = {"billing": Lag(lag.KEEPS_UP, 0), "stock": Lag(lag.IDLE, 0),
             "archive": Lag(lag.LOSES, 46_708, 31.2)}  # fmt: skip
    assert telling.of_topic(topic(*found), found) == (
        "57 messages a second come in. billing and stock keep up."
        " archive is 46,708 behind, and 31 more with every second."
    )


def test_a_topic_that_is_well_and_one_that_nobody_reads() -> None:
    found = {"a": Lag(lag.KEEPS_UP, 0), "b": Lag(lag.KEEPS_UP, 3)}
    assert telling.of_topic(topic("a", "b"), found).endswith("All channels keep up.")
    held = TopicState("orders", depth=5, nodes=["n:1"])
    assert "5 messages wait for the first one" in telling.of_topic(held, {})
    assert telling.of_topic(topic(in_rate=0.0), {}).startswith("Nothing comes in")


def test_what_is_not_known_of_a_topic() -> None:
    assert telling.of_topic(TopicState("idle"), {}).startswith("No nsqd that is known has it")
    unseen = TopicState("orders", registered=["n:1"], stale_s=9.0)
    assert telling.of_topic(unseen, {}) == "n:1 does not answer, so nothing is known of it."
    assert states.of_topic(unseen, {}) == ("node down", "soft")
    assert states.of_topic(TopicState("idle"), {}) == ("on no node", "soft")
    old = TopicState("orders", nodes=["n:1"], stale_s=62.0)
    assert states.of_topic(old, {}) == ("1 min 2 s old", "soft")


def test_a_channel() -> None:
    channel = ChannelState("orders", "archive", in_rate=4.0, oldest_s=300.0)
    gains = telling.of_channel(channel, Lag(lag.GAINS, 4700, -20.0, 235.0))
    assert gains == (
        "It is 4,700 behind and catches up: it will be empty in 3 min 55 s."
        " The oldest unfinished message is 5 min old."
    )
    assert "Start its consumers." in telling.of_channel(channel, Lag(lag.UNREAD, 7))
    assert telling.of_channel(channel, Lag(lag.KEEPS_UP, 1)).startswith("It keeps up: 4.0")
    assert telling.until_empty(Lag(lag.LOSES, 9, 1.0)) == "never"
    assert telling.until_empty(Lag(lag.IDLE, 0)) == ""


def test_the_worst_is_the_state() -> None:
    path = ("topics", "orders", "archive")
    note = Finding(Level.NOTE, "", "", "", path, "paused")
    fault = Finding(Level.BAD, "", "", "", path, "stuck")
    told = states.by_topic([fault, note, Finding(Level.BAD, "", "", "", ("nodes", "n:1"))])
    assert list(told) == ["orders"]
    assert states.of_topic(topic("archive"), told) == ("stuck", "bad")
    assert states.of_topic(topic("archive"), {"orders": [note]}) == ("paused", "soft")
    halted = topic("archive")
    halted.channels["archive"].paused = True
    assert states.of_topic(halted, {"orders": [note]}) == ("channel paused", "soft")
    halted.paused = True
    assert states.of_topic(halted, {}) == ("paused", "warn")
    halted.nodes, halted.paused_on = ["n:1", "n:2"], ["n:2"]
    assert states.of_topic(halted, {}) == ("paused on 1 of 2", "warn")
    assert states.of_topic(topic("archive"), {}) == ("", "")
    assert states.of_channel([note, fault], path) == ("stuck", "bad")


def test_metrics_of_a_process() -> None:
    found = process.read(
        '# HELP x y\nprocess_cpu_seconds_total 1.5\nnsqd_depth{topic="a"} 7\n'
        'nsqd_sync_seconds_bucket{le="0.001"} 4\nnsqd_sync_seconds_bucket{le="+Inf"} 6\n'
    )
    assert found.values == {"process_cpu_seconds_total": 1.5}
    assert found.syncs == [("1 ms", 4), ("more", 2)]
    assert [words.fine(one) for one in (0, 2e-7, 0.0003, 1.5)] == [
        "0 s",
        "0.2 µs",
        "300 µs",
        "1.5 s",
    ]


def test_a_curve_is_made_of_numbers() -> None:
    assert curve([]) == curve([1.0]) == ""
    drawn = curve([0.0, 5.0, 10.0])
    assert 'points="0,23 50,12.5 100,2"' in drawn
    assert curve([0.0, 0.0]) == ""
