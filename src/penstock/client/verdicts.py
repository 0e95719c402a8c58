"""What nsqd's HTTP answer to an idempotent publish says about the messages."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from penstock.errors import PublishFenced, PublishGap, PublishRefused
from penstock.net.fetch import Fetched
from penstock.nsqdapi.calls import document_of


class Fate(Enum):
    STORED = "stored"  # by this request
    REPEATED = "repeated"  # by an earlier one with these numbers
    NOT_TAKEN = "not taken"  # not by this request: try again later
    UNKNOWN = "unknown"  # try again: the same numbers make it safe
    REFUSED = "refused"  # not by this request, and it is no use to try again


class Verdict(NamedTuple):
    fate: Fate
    reason: str = ""
    error: PublishRefused | None = None
    where: tuple[int, int] | None = None  # offset and id of the first message, if it was told


def judge(address: str, sequence: int, answer: Fetched, traced: bool = False) -> Verdict:
    """`traced`: the answer to `/pubtrace` or `/mpubtrace`, which says where the messages lie."""
    status = answer.status
    if status == 200:
        return _judge_success(answer, traced)
    document = document_of(answer.body) or {}
    code = str(document.get("message", ""))[:200]
    reason = f"got response {status} {code}".rstrip()
    if status == 429 or document.get("taken") is False:
        return Verdict(Fate.NOT_TAKEN, reason)
    if status == 409:
        return Verdict(Fate.REFUSED, reason, _conflict(address, sequence, code, document))
    if 400 <= status < 500 and status != 408:
        return Verdict(Fate.REFUSED, reason, PublishRefused(address, status, code))
    return Verdict(Fate.UNKNOWN, reason)


def _judge_success(answer: Fetched, traced: bool) -> Verdict:
    repeated = answer.headers.get("x-penstock-repeated") == "true"
    where = None
    if traced:
        document = document_of(answer.body) or {}
        offset, id = document.get("queue_offset"), document.get("id")
        is_ours = document.get("status") == "OK"
        if type(offset) is int and type(id) is int:
            where = offset, id
    else:
        is_ours = answer.body == b"OK"
    if not is_ours:
        return Verdict(Fate.UNKNOWN, "the answer is not nsqd's")
    return Verdict(Fate.REPEATED if repeated else Fate.STORED, where=where)


def _conflict(address: str, sequence: int, code: str, document: dict[str, Any]) -> PublishRefused:
    epoch, expected = document.get("epoch"), document.get("expected")
    if code == "PRODUCER_FENCED" and type(epoch) is int:
        return PublishFenced(address, epoch)
    if code == "SEQUENCE_GAP" and type(expected) is int:
        return PublishGap(address, expected, sequence)
    return PublishRefused(address, 409, code)
