"""The messages of `_pipelines`: what is one, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.pipelines.runs import (
    PARTS_MAX,
    LogPlace,
    Part,
    RunMessageInvalid,
    State,
    decode,
    encode,
    new_run_id,
    parts_of,
)

LEAST = {"kind": "state", "run": "r1", "seq": 1, "pipeline": "archive", "state": "running",
         "time_s": 2.5, "started_s": 1}  # fmt: skip
PART = {"kind": "part", "run": "r1", "form": "html", "part": 0, "parts": 1, "text": "<p>"}


def test_a_state_comes_back_as_it_was() -> None:
    state = State(
        run="r1", seq=7, pipeline="archive", state="failed", time_s=9.0, started_s=1.0,
        options={"once": True, "trigger": "1s", "topics": ["a", "b"], "max": 5}, rows=3,
        logs=[LogPlace("orders", 0, 3, 9)], table_version=4, reason="gone", code=1,
    )  # fmt: skip
    assert decode(encode(state)) == state


def test_what_is_not_known_takes_no_room() -> None:
    assert json.loads(encode(decode(json.dumps(LEAST).encode()))) == LEAST | {"started_s": 1.0}


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert decode(json.dumps(LEAST | {"more": {"a": 1}}).encode()) == State(
        run="r1", seq=1, pipeline="archive", state="running", time_s=2.5, started_s=1.0
    )


@each(
    "change",
    [
        {"kind": "other"},
        {"run": ""},
        {"run": "../../etc/passwd"},
        {"run": "r1\n"},
        {"pipeline": "<script>"},
        {"state": "vanished"},
        {"seq": -1},
        {"seq": 1 << 60},
        {"time_s": "now"},
        {"time_s": -1},
        {"rows": -1},
        {"rows": 1.5},
        {"rows_per_second": 1e300},
        {"options": {"--x": 1}},
        {"options": {"a": {"b": 1}}},
        {"reason": "x" * (limits.RUN_TEXT_CHARS + 1)},
        {"logs": [["t", 0, 1]]},
        {"logs": [["t", 0, 1, 2]] * (limits.RUN_LOGS_MAX + 1)},
    ],
)
def test_what_is_no_state(change: dict[str, Any]) -> None:
    with pytest.raises(RunMessageInvalid):
        decode(json.dumps(LEAST | change).encode())


@each(
    "change",
    [
        {"form": "js"},
        {"part": 1},
        {"parts": 0},
        {"parts": PARTS_MAX + 1},
        {"text": "x" * (limits.RUN_PART_CHARS + 1)},
    ],
)
def test_what_is_no_part(change: dict[str, Any]) -> None:
    assert isinstance(decode(json.dumps(PART).encode()), Part)
    with pytest.raises(RunMessageInvalid):
        decode(json.dumps(PART | change).encode())


@each("body", [b"", b"\xff", b"{", b"[]", b"null", b"[" * 100_000, b"1e999"])
def test_what_is_nothing(body: bytes) -> None:
    with pytest.raises(RunMessageInvalid):
        decode(body)


@each("length", [0, 1, limits.RUN_PART_CHARS, limits.RUN_PART_CHARS + 1,
                                    limits.RUN_PAGE_CHARS])  # fmt: skip
def test_a_page_comes_back_from_its_parts(length: int) -> None:
    text = ('ä<&"' * (length // 4 + 1))[:length]
    parts = list(parts_of("r1", "html", text))
    assert "".join(part.text for part in parts) == text
    assert [part.part for part in parts] == list(range(parts[0].parts))
    for part in parts:
        body = encode(part)
        assert decode(body) == part
        assert len(body) < limits.MIB


def test_a_page_that_is_too_long_is_none() -> None:
    assert list(parts_of("r1", "html", "x" * (limits.RUN_PAGE_CHARS + 1))) == []


def test_ids_differ_and_sort_by_time() -> None:
    ids = [new_run_id("archive", at) for at in (0.0, 1.0, 1.0, 1e9)]
    assert len(set(ids)) == 4
    assert [ids[0], *sorted(ids[1:3]), ids[3]] == sorted(ids)
    assert ids[0].startswith("19700101T000000-archive-")
