"""The stages of a partition at its leader, from one to the next of the table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.replica.stageline import Ask, List, Refuse, Send, StageLine, State, Unlist

MEMBERS = {(0, 100), (1, 101), (2, 102)}


def line(listed: Sequence[int] = (), here: Sequence[int] = ()) -> StageLine:
    made = StageLine(0, listed, here)
    made.linked(1)
    made.needs(MEMBERS)
    return made


def take(one: StageLine) -> list[Any]:
    one.validate()
    out, one.out = one.out, []
    return out


def test_it_is_listed_when_all_who_need_it_have_it() -> None:
    one = line()
    one.wrote(7)
    assert take(one) == [Send(1, 7)]
    one.linked(2)
    assert take(one) == [Send(2, 7)]
    one.stored(1, 101, 7)
    one.stored(2, 999, 7)  # of a replica that is not there any more
    assert take(one) == []
    one.stored(2, 102, 7)
    assert take(one) == [List(7)]
    assert one.states == {7: State.LISTED}


def test_one_that_is_needed_no_more_is_not_waited_for() -> None:
    one = line()
    one.wrote(7)
    one.stored(1, 101, 7)
    take(one)
    one.needs({(0, 100), (1, 101)})
    assert take(one) == [List(7)]


def test_a_member_that_comes_meanwhile_is_sent_it() -> None:
    one = line()
    one.needs({(0, 100), (1, 101)})
    one.linked(2)
    one.wrote(7)
    assert take(one) == [Send(1, 7)]
    one.needs(MEMBERS)
    assert take(one) == [Send(2, 7)]
    one.unlinked(1)
    one.linked(1)
    assert take(one) == [Send(1, 7)]  # another session: the frame may be lost


def test_one_that_cannot_be_stored_is_refused() -> None:
    one = line()
    one.wrote(7)
    take(one)
    one.refused(2, 999, 7, "not a member")
    one.refused(1, 101, 7, "its disk is full")
    assert take(one) == [Unlist(7), Refuse(7, "its disk is full")]
    one.stored(1, 101, 7)
    one.drop(7)
    assert take(one) == []


def test_who_asks_gets_it() -> None:
    one = line([5], [5])
    one.asked(2, 102, 5)
    one.asked(2, 102, 6)  # unlisted meanwhile
    assert take(one) == [Send(2, 5)]


def test_a_lacking_one_is_asked_for_and_given_up_when_all_lack_it() -> None:
    one = line([5])
    assert take(one) == [Ask(1, 5)]
    one.asked(1, 101, 5)
    assert take(one) == []
    one.asked(2, 102, 5)
    assert take(one) == [Unlist(5)]


def test_a_lacking_one_that_comes_goes_to_those_who_lack_it_too() -> None:
    one = line([5])
    one.asked(1, 101, 5)
    take(one)
    one.wrote(5)
    assert take(one) == [Send(1, 5)]
    assert one.lacking == []


def test_a_corrupt_one_is_asked_of_the_others() -> None:
    one = line([5], [5])
    one.linked(2)
    take(one)
    one.damaged(5, 2)
    assert take(one) == [Ask(1, 5), Ask(2, 5)]
    one.ask_again(5)
    assert take(one) == [Ask(1, 5), Ask(2, 5)]
    one.wrote(5)
    assert take(one) == [Send(2, 5)]
    one.ask_again(5)
    assert take(one) == []


def test_one_replica_alone_waits_for_none() -> None:
    one = StageLine(0, [5], [])
    one.needs({(0, 100)})
    assert take(one) == [Unlist(5)]
    one.wrote(7)
    assert take(one) == [List(7)]


def test_a_state_that_is_not_waited_for_is_found() -> None:
    one = line()
    one.states[7] = State.SENT
    with pytest.raises(RuntimeError, match="not what is waited for"):
        one.validate()
