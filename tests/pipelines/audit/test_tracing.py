"""Of switched rates, the messages whose silence in a channel says nothing."""

from __future__ import annotations

import pyarrow as pa

from kernel.figures import in_sample
from penstock.pipelines.audit.tracing import MACROS, Switch, Tracing, seen, tracing, whole
from penstock.pipelines.lifecycles.engine import Engine
from penstock.trace.events import RATE_ALL

HALF = RATE_ALL // 2
TIMES = [0, 15, 25, 35]


def ids(sampled: bool) -> list[str]:
    """Four that are in the sample of one half, or four that are not."""
    found = [id for id in range(1, 100) if in_sample(id, 1 << 63) == sampled]
    return [f"{id:016x}" for id in found[:4]]


def known(channel: str, *switches: Switch, sampled: bool = False) -> tuple[str, str]:
    """For a publish, and for a first delivery, at each of the times: y or n."""
    return told(tracing(switches, ()), channel, sampled)


def told(tracing: Tracing, channel: str, sampled: bool = False) -> tuple[str, str]:
    with Engine() as engine:
        engine.run(MACROS)
        engine.view("rates", tracing.rates([channel]))
        engine.view("messages", pa.table({"us": TIMES, "message_id": ids(sampled)}))
        rows = engine.rows(
            f"SELECT {seen('us')} AS seen, {whole('us')} AS whole FROM messages, rates ORDER BY us"
        )
    shown = ("".join("ny"[row[name]] for row in rows) for name in ("seen", "whole"))
    return tuple(shown)  # type: ignore[return-value]


def test_nothing_noted_excuses_nothing() -> None:
    assert told(Tracing(), "mail") == ("yyyy", "yyyy")
    assert known("mail", Switch(10, None, RATE_ALL)) == ("yyyy", "yyyy")


def test_a_channel_traced_less_than_its_topic_knows_its_sample() -> None:
    switches = (Switch(10, None, RATE_ALL), Switch(20, "mail", HALF))
    assert known("mail", *switches) == ("nnnn", "nnyy")
    assert known("mail", *switches, sampled=True) == ("yyyy", "yyyy")


def test_off_and_on_again() -> None:
    switches = (Switch(10, "mail", RATE_ALL), Switch(20, "mail", 0), Switch(30, "mail", RATE_ALL))
    assert known("mail", *switches) == ("nnny", "nnyy")
    assert known("mail", *switches, sampled=True) == ("nnny", "nnyy")


def test_a_channel_switched_on_later_than_its_topic() -> None:
    switches = (Switch(10, "mail", 0), Switch(20, None, HALF), Switch(30, "mail", HALF))
    # What the topic had before its first note is not known, and taken for all.
    assert known("mail", *switches) == ("nnny", "nyyy")


def test_a_channel_follows_its_topic_down() -> None:
    assert known("new", Switch(10, None, HALF)) == ("nyyy", "nyyy")
    assert known("new", Switch(10, None, HALF), sampled=True) == ("yyyy", "yyyy")


def test_other_channels_have_their_own_rates() -> None:
    switches = (Switch(10, "mail", 0), Switch(10, "it's", RATE_ALL))
    assert known("it's", *switches) == known("other", *switches) == ("yyyy", "yyyy")
    assert known("mail", *switches)[0] == "nnnn"
    assert tracing([], [9, 7]).starts == (7, 9)
