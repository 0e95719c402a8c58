"""How topics and channels do, in a word and in a sentence; how far a channel is behind, and when it
will not be; and what a node's metrics tell."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page

from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.history import Measures, Sample
from penstock.nsqadmin.pages import nodes, states
from penstock.nsqadmin.pages.parts import Switch, as_csv, curve, dialog
from penstock.nsqadmin.pages.states import Lag
from penstock.nsqadmin.snapshot import ChannelState, TopicState


def samples(depths: Sequence[float], out: float = 50.0, every_s: float = 5.0) -> list[Sample]:
    return [Sample(number * every_s, Measures(depth=depth, out_rate=out))
            for number, depth in enumerate(depths)]  # fmt: skip


def pace(depths: Sequence[float], out: float = 50.0, **channel: Any) -> Lag:
    given = {"depth": int(depths[-1]), "in_rate": 50.0, "finish_rate": out, "clients": 1} | channel
    return states.lag_of(ChannelState("t", "c", **given), samples(depths, out))


def test_batches_are_no_backlog() -> None:
    assert pace([3, 120, 7, 100]).pace == states.KEEPS_UP
    assert pace([0, 0, 0], in_rate=0.0, finish_rate=0.0) == Lag(states.IDLE, 0)


def test_a_channel_that_catches_up_has_an_estimate() -> None:
    found = pace([5000, 4900, 4800, 4700])
    assert (found.pace, found.waits) == (states.GAINS, 4700)
    assert found.growth == pytest.approx(-20)
    assert found.empty_s == pytest.approx(235)


def test_a_channel_that_falls_behind_has_no_estimate() -> None:
    found = pace([4700, 4800, 4900, 5000])
    assert (found.pace, found.empty_s) == (states.LOSES, None)
    assert pace([5000, 5001, 4999, 5000]).pace == states.HOLDS


def test_states_that_need_attention() -> None:
    assert pace([9, 10, 11, 12], paused=True).pace == states.PAUSED
    assert pace([9, 10, 11, 12], clients=0, in_rate=1.0).pace == states.UNREAD
    assert pace([900, 900, 900], out=0.0).pace == states.STUCK
    assert {states.PAUSED, states.UNREAD, states.STUCK, states.LOSES} == states.LATE


def test_a_few_seconds_are_not_judged() -> None:
    assert states.trend(samples([0, 1000], every_s=1.0)) == 0
    assert states.trend([]) == 0
    assert states.trend([*samples([0, 10, 20]), Sample(15.0, None)]) == pytest.approx(2)


def topic(*names: str, in_rate: float = 57.0) -> TopicState:
    channels = {name: ChannelState("orders", name) for name in names}
    return TopicState("orders", messages=9, in_rate=in_rate, channels=channels, nodes=["n:1"])


def test_a_topic_with_a_channel_that_is_late() -> None:
    found = {"billing": Lag(states.KEEPS_UP, 0), "stock": Lag(states.IDLE, 0),
             "archive": Lag(states.LOSES, 46_708, 31.2)}  # fmt: skip
    assert states.topic_saying(topic(*found), found) == (
        "57 messages a second come in. billing and stock keep up."
        " archive is 46,708 behind, and 31 more with every second."
    )


def test_a_topic_that_is_well_and_one_that_nobody_reads() -> None:
    found = {"a": Lag(states.KEEPS_UP, 0), "b": Lag(states.KEEPS_UP, 3)}
    assert states.topic_saying(topic("a", "b"), found).endswith("All channels keep up.")
    held = TopicState("orders", depth=5, nodes=["n:1"])
    assert "5 messages wait for the first one" in states.topic_saying(held, {})
    assert states.topic_saying(topic(in_rate=0.0), {}).startswith("Nothing comes in")


def test_states_of_an_unknown_topic() -> None:
    assert states.topic_saying(TopicState("idle"), {}).startswith("No nsqd that is known has it")
    unseen = TopicState("orders", registered=["n:1"], stale_s=9.0)
    assert states.topic_saying(unseen, {}) == "n:1 does not answer, so nothing is known of it."
    assert states.topic_badge(unseen, {}) == ("node down", "soft")
    assert states.topic_badge(TopicState("idle"), {}) == ("on no node", "soft")
    old = TopicState("orders", nodes=["n:1"], stale_s=62.0)
    assert states.topic_badge(old, {}) == ("1 min 2 s old", "soft")


def test_a_channel() -> None:
    channel = ChannelState("orders", "archive", in_rate=4.0, oldest_s=300.0)
    gains = states.channel_saying(channel, Lag(states.GAINS, 4700, -20.0, 235.0))
    assert gains == (
        "It is 4,700 behind and catches up: it will be empty in 3 min 55 s."
        " The oldest unfinished message is 5 min old."
    )
    assert "Start its consumers." in states.channel_saying(channel, Lag(states.UNREAD, 7))
    assert states.channel_saying(channel, Lag(states.KEEPS_UP, 1)).startswith("It keeps up: 4.0")
    assert Lag(states.LOSES, 9, 1.0).until_empty == "never"
    assert Lag(states.IDLE, 0).until_empty == ""


def test_the_worst_is_the_state() -> None:
    path = ("topics", "orders", "archive")
    note = Finding(Level.NOTE, "", "", "", path, "paused")
    fault = Finding(Level.BAD, "", "", "", path, "stuck")
    answer = states.by_topic([fault, note, Finding(Level.BAD, "", "", "", ("nodes", "n:1"))])
    assert list(answer) == ["orders"]
    assert states.topic_badge(topic("archive"), answer) == ("stuck", "bad")
    assert states.topic_badge(topic("archive"), {"orders": [note]}) == ("paused", "soft")
    halted = topic("archive")
    halted.channels["archive"].paused = True
    assert states.topic_badge(halted, {"orders": [note]}) == ("channel paused", "soft")
    halted.paused = True
    assert states.topic_badge(halted, {}) == ("paused", "warn")
    halted.nodes, halted.paused_on = ["n:1", "n:2"], ["n:2"]
    assert states.topic_badge(halted, {}) == ("paused on 1 of 2", "warn")
    assert states.topic_badge(topic("archive"), {}) == ("", "")
    assert states.channel_badge([note, fault], path) == ("stuck", "bad")


def test_metrics_of_a_process() -> None:
    values, syncs = nodes.read_metrics(
        '# HELP x y\nprocess_cpu_seconds_total 1.5\nnsqd_depth{topic="a"} 7\n'
        'nsqd_sync_seconds_bucket{le="0.001"} 4\nnsqd_sync_seconds_bucket{le="+Inf"} 6\n'
    )
    assert values == {"process_cpu_seconds_total": 1.5}
    assert syncs == {"1 ms": 4, "more": 2}


def test_no_text_of_a_file_is_a_formula() -> None:
    formulas = ["=1", "+1", "@a", "-1+cmd|' /C calc'!A0", "-a", "\t=1", "\r=1"]
    texts = ["-1.5", "-12", "a-1", "", "1-1"]
    text = as_csv(["c"], [[one] for one in (*formulas, *texts)])
    cells = [row[0] for row in csv.reader(StringIO(text, newline=""))]
    assert cells == ["c", *(f"'{one}" for one in formulas), *texts]


def test_a_click_means_what_its_browser_showed() -> None:
    """Somebody else has paused it, and this browser does not show it yet."""
    turned: list[bool] = []
    act: Any = turned.append
    with Client(page("/x"), request=None) as client:
        Switch("Pause", "Unpause", act).show(True, False, True)
        button = next(one for one in client.elements.values() if one.tag == "q-btn")
        (listener,) = button._event_listeners
        for shown in ("Pause", "Unpause"):
            event = {"id": button.id, "listener_id": listener, "args": [f'"{shown}"']}
            client.handle_event(event)
    assert turned == [True, False]


def test_a_question_that_was_answered_goes() -> None:
    with Client(page("/x"), request=None) as client:
        with dialog("Sure?") as asking:
            pass
        there = len(client.elements)
        (hide,) = (one.id for one in asking._event_listeners.values() if one.type == "hide")
        client.handle_event({"id": asking.id, "listener_id": hide, "args": []})
        assert len(client.elements) <= there - 6


def test_a_curve_is_made_of_numbers() -> None:
    assert curve([]) == curve([0.0, 0.0]) == ""
    assert curve([0.0, 5.0, 10.0]) == "0iz"
