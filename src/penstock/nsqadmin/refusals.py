"""What daemons refuse, in words for people: NSQ answers with codes."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.nsqadmin.upstream import DaemonRefused, NotOffered

_WORDS = {
    "TOPIC_NOT_FOUND": "it has no such topic",
    "CHANNEL_NOT_FOUND": "it has no such channel",
    "MESSAGE_NOT_FOUND": "the message is not there any more",
    "INVALID_TOPIC": "the name of the topic is not valid",
    "INVALID_CHANNEL": "the name of the channel is not valid",
    "INVALID_DEFER": "the delay is negative, or longer than its -max-req-timeout",
    "MSG_EMPTY": "the message is empty: a body has 1 byte or more",
    "MSG_TOO_BIG": "the message is larger than its -max-msg-size",
    "BODY_TOO_BIG": "the message is larger than its -max-body-size",
    "EXITING": "it is shutting down",
    "INTERNAL_ERROR": "it failed, and its log says why",
}  # fmt: skip


def reason(error: PenstockError) -> str:
    """What went wrong. A code is named beside its words, for who looks it up."""
    if isinstance(error, DaemonRefused) and not isinstance(error, NotOffered):
        said = _WORDS.get(error.said)
        return f"{said} ({error.status} {error.said})" if said else error.said
    return str(getattr(error, "reason", "") or error)
