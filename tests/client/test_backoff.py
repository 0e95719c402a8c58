"""Back-off, step by step as the official clients do it, and the pauses between connections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.backoff import Backoff, Delays, Phase


def test_up_and_down() -> None:
    """A failure, two failed tests, and one good message for each level on the way back."""
    backoff = Backoff(1.0, 120.0)
    assert backoff.in_flight_max(50) == 50
    for level, pause_s in ((1, 2.0), (2, 4.0), (3, 8.0)):
        assert backoff.failed() == pause_s
        assert (backoff.level, backoff.phase, backoff.in_flight_max(50)) == (
            level, Phase.WAITING, 0,
        )  # fmt: skip
        backoff.waited()
        assert backoff.in_flight_max(50) == 1
    assert backoff.succeeded() == 4.0
    backoff.waited()
    assert backoff.succeeded() == 2.0
    backoff.waited()
    assert backoff.succeeded() == 0.0
    assert (backoff.phase, backoff.in_flight_max(50)) == (Phase.FREE, 50)


def test_what_is_heard_while_waiting_counts_for_nothing() -> None:
    backoff = Backoff(1.0, 120.0)
    backoff.failed()
    assert [backoff.failed() for _ in range(100)] == [0.0] * 100
    assert [backoff.succeeded() for _ in range(100)] == [0.0] * 100
    assert (backoff.level, backoff.phase) == (1, Phase.WAITING)


def test_pauses_are_bounded() -> None:
    backoff = Backoff(1.0, 10.0)
    pauses = []
    for _ in range(6):
        pauses.append(backoff.failed())
        backoff.waited()
    assert pauses == [2.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    assert backoff.level == 3


def test_it_can_be_switched_off() -> None:
    backoff = Backoff(1.0, 0.0)
    assert backoff.failed() == 0.0
    assert backoff.in_flight_max(7) == 7


def test_a_first_pause_beyond_the_bound_still_recovers() -> None:
    """go-nsq raises no level then; without a level the pause is the multiplier's own."""
    backoff = Backoff(100.0, 120.0)
    assert backoff.failed() == 100.0
    backoff.waited()
    assert backoff.succeeded() == 0.0
    assert backoff.phase is Phase.FREE


@given(
    st.lists(st.sampled_from(["failed", "succeeded", "waited"]), max_size=60),
    st.floats(0.1, 10),
    st.floats(0, 200),
)
def test_good_messages_always_lead_back(steps: list[str], first_s: float, max_s: float) -> None:
    backoff = Backoff(first_s, max_s)
    for step in steps:
        pause_s = getattr(backoff, step)() or 0.0
        backoff.validate()
        assert 0 <= pause_s <= max(max_s, 0)
        assert (pause_s > 0) <= (backoff.phase is Phase.WAITING)
    for _ in range(backoff.level + 1):
        backoff.waited()
        backoff.succeeded()
    assert backoff.phase is Phase.FREE


def test_delays_double_and_start_again() -> None:
    delays = Delays(0.1, 1.0, lambda: 0.0)
    assert [round(delays.next_s(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    delays.lasted(0.5)
    assert delays.next_s() == 1.0
    delays.lasted(60)
    assert delays.next_s() == 0.1


def test_delays_are_spread() -> None:
    assert Delays(1.0, 8.0, lambda: 0.999).next_s() < 0.51
