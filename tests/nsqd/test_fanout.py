"""Answers of several nodes, put together."""

from __future__ import annotations

import json

from penstock.net.exchange import Response
from penstock.nsqd.fanout import _joined


def joined(*documents: object) -> object:
    found = _joined([Response(200, json.dumps(one).encode() if one else b"") for one in documents])
    return json.loads(found.body) if found.body else None


def test_numbers_are_added_and_tables_by_partition_joined() -> None:
    assert joined(
        {"count": 2, "partitions": {"0": {"offset": 5}}, "dry": False},
        {"count": 3, "partitions": {"1": {"offset": 7}}, "dry": False},
    ) == {"count": 5, "partitions": {"0": {"offset": 5}, "1": {"offset": 7}}, "dry": False}


def test_empty_answers_stay_empty() -> None:
    assert joined(None, None) is None
    assert joined(None, {"count": 1}) == {"count": 1}
