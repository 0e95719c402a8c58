"""Who may send how much: the examples of the text, and a simulated hour of turns."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cases import each, seeds
from penstock.client.backoff import Backoff, Delays, Phase
from penstock.client.subscription import RdyState, Turns, share, take_turns

TURNS = Turns(idle_s=10, hold_s=30)


def states(count: int, rdy_max: int = 2500) -> list[RdyState]:
    return [RdyState(rdy_max, changed_s=0.0) for _ in range(count)]


def apply(found: list[RdyState], counts: list[int], now_s: float) -> None:
    for state, count in zip(found, counts, strict=True):
        if (count == 0) != (state.rdy == 0):
            state.changed_s = now_s
        state.rdy = count


def test_back_off_stops_all_and_tests_with_one() -> None:
    found = states(3)
    apply(found, share(found, 10, 0, TURNS), 0)
    assert share(found, 0, 1, TURNS) == [0, 0, 0]
    apply(found, [0, 0, 0], 1)
    assert sum(share(found, 1, 2, TURNS)) == 1
    found[1].in_flight = 1  # the one message is there already
    assert share(found, 1, 2, TURNS) == [0, 0, 0]


def test_an_idle_turn_passes_on_and_a_busy_one_later() -> None:
    found = states(3)
    apply(found, share(found, 1, 0, TURNS), 0)
    assert [state.rdy for state in found] == [1, 0, 0]
    assert share(found, 1, 9, TURNS) == [1, 0, 0]
    assert share(found, 1, 10, TURNS) == [0, 1, 0]
    found[0].received_s = 9.0
    assert share(found, 1, 10, TURNS) == [1, 0, 0]
    found[0].received_s = 29.9
    assert share(found, 1, 30, TURNS) == [0, 1, 0]


def test_messages_in_flight_count_towards_the_share() -> None:
    found = states(3)
    apply(found, share(found, 1, 0, TURNS), 0)
    found[0].in_flight = 1
    assert share(found, 1, 30, TURNS) == [0, 0, 0]
    found[0].in_flight = 0
    assert share(found, 1, 30.1, TURNS) == [0, 1, 0]


@each("seed", seeds(6, 40))
def test_every_connection_gets_turns(seed: int) -> None:
    """Within an hour nobody waits longer than all others hold, and the bound is kept."""
    dice = random.Random(seed)
    count = dice.randint(2, 8)
    bound = dice.randint(1, count - 1)
    found = states(count)
    assert take_turns(found, bound)
    longest_s = 30.0 * count / bound + 60
    waits = [0.0] * count
    for now_s in range(0, 3600, 5):
        apply(found, share(found, bound, now_s, TURNS), now_s)
        assert sum(state.rdy for state in found) <= bound
        for index, state in enumerate(found):
            if state.rdy and dice.random() < 0.5:
                state.received_s = float(now_s)
            waits[index] = 0.0 if state.rdy else waits[index] + 5
        assert max(waits) <= longest_s


# --- back-off, step by step as the official clients do it, and the pauses between connections ---


def test_up_and_down() -> None:
    """A failure, three failed tests, the last of which waits no longer than the one before, and one
    good message for each level on the way back."""
    backoff = Backoff(1.0, 10.0, failures=1)
    assert backoff.in_flight_max(50) == 50
    for level, pause_s in ((1, 2.0), (2, 4.0), (3, 8.0), (3, 8.0)):
        assert backoff.failed(b"m", 0) == pause_s
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


@each(
    ("outcomes", "pauses"),
    [
        ("aaaaaaaa", 0),  # one poison message, and nothing else to do
        ("abab..abab", 0),
        ("abc", 1),
        ("a..bc", 1),  # three of five
        ("a...bc", 0),  # half of them
        ("a...bcd", 1),  # of the last three all
        ("ab......cab", 1),
    ],
)
def test_backoff_begins_when_most_messages_fail(outcomes: str, pauses: int) -> None:
    """A letter is a message that fails, a dot one that is finished."""
    backoff = Backoff(1.0, 10.0, failures=3)
    finished = 0
    for one in outcomes:
        if one == ".":
            finished += 1
        else:
            backoff.failed(one.encode(), finished)
    assert backoff.level == pauses


@given(
    st.lists(st.sampled_from(["failed", "succeeded", "waited"]), max_size=60),
    st.floats(0.1, 10),
    st.floats(0, 200),
    st.integers(1, 3),
)
def test_good_messages_always_lead_back(
    steps: list[str], first_s: float, max_s: float, failures: int
) -> None:
    backoff = Backoff(first_s, max_s, failures)
    for number, step in enumerate(steps):
        text = (b"%d" % number, 0) if step == "failed" else ()
        pause_s = getattr(backoff, step)(*text) or 0.0
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
