"""Of switched rates, the times in which a channel's silence says nothing."""

from __future__ import annotations

from penstock.log.traceevents import RATE_ALL
from penstock.pipelines.audit_tracing import Switch, Tracing, tracing

HALF = RATE_ALL // 2
EVER = 1 << 62


def spans(*switches: Switch) -> tuple[object, object]:
    found = tracing(switches, ())
    return found.unseen["mail"], found.cut["mail"]


def test_nothing_noted_excuses_nothing() -> None:
    assert Tracing().seen_sql() == Tracing().whole_sql() == "true"
    assert Tracing().restarted_sql("a", "b") == Tracing().unsure_sql() == "false"
    follows = tracing([Switch(10, None, RATE_ALL)], ())
    assert (follows.seen_sql(), follows.whole_sql()) == ("true", "true")


def test_a_channel_traced_less_than_its_topic() -> None:
    switches = (Switch(10, None, RATE_ALL), Switch(20, "mail", HALF))
    assert spans(*switches) == (((-EVER, EVER),), ((-EVER, 20),))


def test_off_and_on_again() -> None:
    switches = (Switch(10, "mail", RATE_ALL), Switch(20, "mail", 0), Switch(30, "mail", RATE_ALL))
    assert spans(*switches) == (((-EVER, 30),), ((-EVER, 20),))


def test_a_channel_switched_on_later_than_its_topic() -> None:
    switches = (Switch(10, "mail", 0), Switch(20, None, HALF), Switch(30, "mail", HALF))
    # What the topic had before its first note is not known, and taken for all.
    assert spans(*switches) == (((-EVER, 30),), ((-EVER, 10),))


def test_a_channel_follows_its_topic_down() -> None:
    found = tracing([Switch(10, None, HALF)], ())
    assert (found.unseen[None], found.cut[None]) == (((-EVER, 10),), ((-EVER, 10),))
    assert found.seen_sql("t") == f"NOT (unix_micros(t) >= {-EVER} AND unix_micros(t) < 10)"


def test_other_channels_have_their_own_rates() -> None:
    found = tracing([Switch(10, "mail", 0), Switch(10, "it's", RATE_ALL)], [7])
    assert found.unseen["it's"] == found.unseen[None] == ()
    assert found.whole_sql("t").startswith("CASE channel WHEN 'it\\'s' THEN true WHEN 'mail' THEN")
    assert found.restarted_sql("a", "b") == "(a < 7 AND 7 < b)"
