"""A message's life in words and as a drawing."""

from penstock.nsqadmin import lifeline
from penstock.trace.events import Event, Kind

S = 10**9
T = 1_795_248_000 * S


def event(kind: Kind, after_ns: int, channel: str | None = None) -> Event:
    return Event(kind, T + after_ns, "orders", channel, 0, 7, 255)


TWICE = [
    event(Kind.PUBLISHED, 0),
    event(Kind.SENT, 1000, "mail"),
    event(Kind.SENT, 2000, "store"),
    event(Kind.FINISHED, 3_000_000, "store"),
    event(Kind.TIMED_OUT, 60 * S, "mail"),
    event(Kind.SENT, 60 * S + 1000, "mail"),
    event(Kind.FINISHED, 62 * S + S // 2, "mail"),
]


def test_a_timeline_in_a_sentence() -> None:
    assert lifeline.summary(TWICE) == (
        "Published at 08:00:00.000 in orders; sent to mail twice, timed out once, finished after"
        " 1 min 2 s; sent to store once, finished after 3 ms."
    )


def test_a_summary_states_only_known_facts() -> None:
    assert lifeline.summary([event(Kind.SENT, 0, "mail")]) == (
        "Its publishing was not traced; sent to mail once, not answered yet."
    )
    assert lifeline.summary(TWICE[:1]).endswith("; no channel was traced.")
    dead = [event(Kind.SENT, 0, "mail"), event(Kind.DEAD_LETTERED, S, "mail")]
    assert "given up to the dead letters after 1 s" in lifeline.summary(dead)


def test_lanes_have_points_and_bars_in_order() -> None:
    lanes, _ = lifeline.drawn(TWICE)
    assert [(one.topic, one.channel) for one in lanes] == [
        ("orders", ""), ("orders", "mail"), ("orders", "store"),
    ]  # fmt: skip
    mail = lanes[1]
    assert len(mail.bars) == 2
    assert [point.at for point in mail.points] == sorted(point.at for point in mail.points)
    assert lanes[0].points[0].at == 0
    assert max(point.at for lane in lanes for point in lane.points) == 100


def test_a_long_silence_is_cut_and_says_how_long_it_was() -> None:
    lanes, cuts = lifeline.drawn(TWICE)
    assert [one.what for one in cuts] == ["60 s", "2.5 s"]
    store, mail = lanes[2], lanes[1]
    assert store.points[1].at > 70  # three milliseconds are the rest, to scale
    assert mail.points[-1].at == 100


def test_one_event_alone_and_two_at_once() -> None:
    assert lifeline.drawn(TWICE[:1])[0][0].points[0].at == 0
    same = [event(Kind.SENT, 0, "a"), event(Kind.FINISHED, 0, "a")]
    assert lifeline.drawn(same)[1] == []  # and nothing is divided by nought
    two = [event(Kind.SENT, 0, "a"), event(Kind.FINISHED, 3600 * S, "a")]
    assert lifeline.drawn(two)[1] == []
