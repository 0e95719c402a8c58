from __future__ import annotations

import pytest

from cases import each
from penstock.wire.states import COMMANDS, State, Verdict, verdict

YES, NO, SKIP = Verdict.ALLOWED, Verdict.REFUSED, Verdict.IGNORED

# command: init, subscribed, closing; as the protocol's documentation has it
EXPECTED = {
    b"IDENTIFY": (YES, NO, NO),
    b"AUTH": (YES, NO, NO),
    b"SUB": (YES, NO, NO),
    b"SUB_ORDERED": (YES, NO, NO),
    b"SUB_ADVANCED": (YES, NO, NO),
    b"RDY": (NO, YES, SKIP),
    b"FIN": (NO, YES, YES),
    b"REQ": (NO, YES, YES),
    b"TOUCH": (NO, YES, YES),
    b"CLS": (NO, YES, NO),
    b"PUB": (YES, YES, YES),
    b"MPUB": (YES, YES, YES),
    b"DPUB": (YES, YES, YES),
    b"PUB_TRACE": (YES, YES, YES),
    b"MPUB_TRACE": (YES, YES, YES),
    b"PUB_EXT": (YES, YES, YES),
    b"MPUB_EXT": (YES, YES, YES),
    b"NOP": (YES, YES, YES),
}


@each("command", EXPECTED)
def test_each_command_in_each_state(command: bytes) -> None:
    found = tuple(verdict(command, state) for state in State)
    assert found == EXPECTED[command]


def test_the_table_is_complete() -> None:
    assert set(COMMANDS) == set(EXPECTED)
    assert all(set(row) == set(State) for row in COMMANDS.values())


@pytest.mark.parametrize("command", [b"", b"sub", b"PING", b"SUBX"])
def test_other_commands_do_not_exist(command: bytes) -> None:
    assert verdict(command, State.INIT) is None


def test_the_numbers_are_those_of_the_stats() -> None:
    assert [int(state) for state in State] == [0, 3, 4]
