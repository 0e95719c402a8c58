"""Publishing with trace ids (`wire/traced.py`): such a message's whole life is told by `penstock
trace`, whatever the topic's sample. nsqd's answer says where the message lies.

It is our nsqd's, and Youzan's; another one refuses the command and hangs up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client import framing
from penstock.errors import ConfigError
from penstock.wire.traced import REPLY_BYTES, decode_reply

TRACE_ID_MAX = (1 << 64) - 1


class Published(NamedTuple):
    """Where a message came to lie: the only one, or the first of several."""

    message_id: bytes  # 16 hex digits, the `id` that consumers see
    offset: int  # in its partition
    trace_id: int


def published_of(answer: bytes) -> Published | None:
    """What the answer to a publish with a trace id says; None for a plain OK."""
    if len(answer) != REPLY_BYTES or not answer.startswith(b"OK"):
        return None
    message_id, trace_id, offset, _ = decode_reply(answer)
    return Published(b"%016x" % message_id, offset, trace_id)


def pub_trace(topic: bytes, body: bytes, trace_id: int) -> bytes:
    """The whole command; a partition may stand behind the topic. Raises ConfigError."""
    return framing.sized(b"PUB_TRACE %b\n" % topic, checked_id(trace_id).to_bytes(8) + body)


def mpub_trace(topic: bytes, bodies: Sequence[bytes], trace_ids: int | Sequence[int]) -> bytes:
    """The same for several, as `checked_ids` has them."""
    messages = packed_traced(bodies, checked_ids(trace_ids, len(bodies)))
    return framing.mpub(topic, messages, b"MPUB_TRACE")


def checked_ids(trace_ids: int | Sequence[int], count: int) -> Sequence[int]:
    """One for each of `count` bodies, from one for all, or one for each, where 0 is none. Raises
    ConfigError."""
    if isinstance(trace_ids, int):
        return [checked_id(trace_ids)] * count
    if len(trace_ids) != count:
        raise ConfigError("trace_id", f"{len(trace_ids)} of them", f"one for {count} bodies")
    return [checked_id(one, least=0) for one in trace_ids]


def packed_traced(bodies: Sequence[bytes], trace_ids: Sequence[int]) -> list[bytes]:
    """Each message as MPUB_TRACE has it: its trace id, then its body."""
    return [one.to_bytes(8) + body for one, body in zip(trace_ids, bodies, strict=True)]


def checked_id(trace_id: int, least: int = 1) -> int:
    if not least <= trace_id <= TRACE_ID_MAX:
        raise ConfigError("trace_id", trace_id, f"{least} to {TRACE_ID_MAX}")
    return trace_id
