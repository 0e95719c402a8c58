"""Which command may come in which state of a client connection.

A connection starts in INIT, SUB leads to SUBSCRIBED, CLS to CLOSING, and there is no way back. The
numbers are NSQ's and appear in `/stats`. The whole rule is the table; a command that is not in it
does not exist. Arguments are looked at only after the state.
"""

from enum import Enum, IntEnum


class State(IntEnum):
    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4


class Verdict(Enum):
    ALLOWED = "allowed"
    REFUSED = "refused"  # fatal: cannot <command> in current state
    IGNORED = "ignored"  # no reply, no effect


_YES = Verdict.ALLOWED
_NO = Verdict.REFUSED
_SKIP = Verdict.IGNORED

_EVERYWHERE = {State.INIT: _YES, State.SUBSCRIBED: _YES, State.CLOSING: _YES}
_BEFORE_SUB = {State.INIT: _YES, State.SUBSCRIBED: _NO, State.CLOSING: _NO}
_AFTER_SUB = {State.INIT: _NO, State.SUBSCRIBED: _YES, State.CLOSING: _YES}

COMMANDS: dict[bytes, dict[State, Verdict]] = {
    b"IDENTIFY": _BEFORE_SUB,
    b"AUTH": _BEFORE_SUB,
    b"SUB": _BEFORE_SUB,
    b"SUB_ORDERED": _BEFORE_SUB,
    b"SUB_ADVANCED": _BEFORE_SUB,
    b"RDY": {State.INIT: _NO, State.SUBSCRIBED: _YES, State.CLOSING: _SKIP},
    b"FIN": _AFTER_SUB,
    b"REQ": _AFTER_SUB,
    b"TOUCH": _AFTER_SUB,
    b"CLS": {State.INIT: _NO, State.SUBSCRIBED: _YES, State.CLOSING: _NO},
    b"PUB": _EVERYWHERE,
    b"MPUB": _EVERYWHERE,
    b"DPUB": _EVERYWHERE,
    b"PUB_TRACE": _EVERYWHERE,
    b"MPUB_TRACE": _EVERYWHERE,
    b"PUB_EXT": _EVERYWHERE,
    b"MPUB_EXT": _EVERYWHERE,
    b"NOP": _EVERYWHERE,
}


def verdict(command: bytes, state: State) -> Verdict | None:
    """None: there is no such command."""
    row = COMMANDS.get(command)
    return None if row is None else row[state]
