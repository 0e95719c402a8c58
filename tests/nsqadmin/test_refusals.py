"""Codes of daemons in words."""

from __future__ import annotations

from cases import each
from penstock.errors import FetchFailed, NotFound, PenstockError
from penstock.nsqadmin.upstream import DaemonRefused, NotOffered, reason


@each(
    ("error", "said"),
    [
        (DaemonRefused("n", "got response 413", 413, "MSG_TOO_BIG"),
         "the message is larger than its -max-msg-size (413 MSG_TOO_BIG)"),
        (DaemonRefused("n", "got response 503", 503, "the disk is full"), "the disk is full"),
        (NotOffered("n", "/message/get"), "n cannot do this: it has no /message/get"),
        (FetchFailed("n", "timed out"), "timed out"),
        (NotFound("topic", "orders"), "no such topic: orders"),
    ],
)  # fmt: skip
def test_words(error: PenstockError, said: str) -> None:
    assert reason(error).startswith(said)
