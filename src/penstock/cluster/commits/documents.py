"""The documents of commits, as JSON."""

from __future__ import annotations

from penstock import limits
from penstock.cluster.commits.values import Decision, Prepare, Share
from penstock.cluster.jsonform import FLAG, Form, hexadecimal, integer, list_of, parts, text

_RANDOM = hexadecimal(16)
_U63 = integer(0, (1 << 63) - 1)
_NUMBERS = list_of(integer(0, limits.PARTITIONS_MAX - 1), limits.PARTITIONS_MAX)
_SHARE = parts(
    Share,
    ("topic", text(limits.NAME_BYTES_MAX)),
    ("identity", _RANDOM),
    ("numbers", _NUMBERS),
)
_APP = ("app", text(limits.STAGE_NAME_CHARS_MAX))
_SHARES = ("shares", list_of(_SHARE, limits.COMMIT_TOPICS_MAX))

PREPARE = Form(Prepare, 1, (_APP, ("version", _U63), ("opened_ns", _U63), _SHARES))
DECISION = Form(
    Decision,
    1,
    (_APP, ("version", _U63), ("transaction", _RANDOM), _SHARES, ("closed", FLAG)),
)
