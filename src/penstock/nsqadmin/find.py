"""Quick open: what somebody may mean who types a part of a name.

Values in, values out. A name that is the text comes before one that begins with it, that before one
with a word that begins so, that before one that has it anywhere; among equals what is shorter, and
topics before channels. Sixteen hex digits are a message, and its life is asked for; 32 are a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock import limits
from penstock.nsqadmin.snapshot import Snapshot
from penstock.trace.ids import W3C_DIGITS, read_trace_id

_MESSAGE_ID = re.compile(r"[0-9a-f]{16}", re.IGNORECASE)
_KINDS = ("page", "topic", "channel", "node")


class Found(NamedTuple):
    kind: str
    words: str
    path: tuple[str, ...]  # of its page: ("topics", "orders")
    query: tuple[tuple[str, str], ...] = ()


def find(
    text: str, snapshot: Snapshot, pages: Iterable[tuple[str, str]],
    count_max: int = limits.ADMIN_FOUND_MAX,
) -> list[Found]:  # fmt: skip
    """`pages`: (path, words) of those that the caller may open."""
    sought = text.strip().casefold()
    offered = [Found("page", words, (path.strip("/"),)) for path, words in pages]
    if not sought:
        return offered[:count_max]
    named = [*offered, *_named(snapshot)]
    ranked = [(rank, one) for one in named if (rank := _rank(one.words.casefold(), sought)) < 9]
    ranked.sort(key=lambda pair: (pair[0], _KINDS.index(pair[1].kind), len(pair[1].words), pair[1]))
    return [*_message(sought), *(one for _, one in ranked)][:count_max]


def _named(snapshot: Snapshot) -> Iterator[Found]:
    for node in snapshot.nodes.values():
        hostname = node.producer.hostname
        words = f"{node.address} ({hostname})" if hostname else node.address
        yield Found("node", words, ("nodes", node.address))
    for topic in snapshot.topics.values():
        yield Found("topic", topic.name, ("topics", topic.name))
        for name in topic.channels:
            yield Found("channel", f"{topic.name}/{name}", ("topics", topic.name, name))


def _message(sought: str) -> list[Found]:
    text = sought.removeprefix("trace:")
    if read_trace_id(text) and (text != sought or len(text) == W3C_DIGITS):
        words = f"Messages with trace id {text}"
    elif _MESSAGE_ID.fullmatch(sought):
        words = f"Life of message {sought}"
    else:
        return []
    return [Found("message", words, ("trace",), (("id", sought),))]


def _rank(name: str, sought: str) -> int:
    """Less is nearer; 9: it has nothing of it."""
    if name == sought:
        return 0
    at = name.find(sought)
    if at < 0:
        words = sought.split()
        return 4 if len(words) > 1 and all(one in name for one in words) else 9
    if at == 0:
        return 1
    while at > 0:
        if not name[at - 1].isalnum():
            return 2
        at = name.find(sought, at + 1)
    return 3
