"""The messages of `_pipelines`: what is one, and what is none."""

import json
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.pipelines.runs import PARTS_MAX, Part, RunMessageInvalid, RunStatus, decode, parts_of

LEAST = {"kind": "state", "run": "r1", "seq": 1, "pipeline": "archive", "state": "running",
         "time_s": 2.5, "started_s": 1}  # fmt: skip
PART = {"kind": "part", "run": "r1", "form": "html", "part": 0, "parts": 1, "text": "<p>"}


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decode(json.dumps(LEAST | {"more": {"a": 1}}).encode()) == RunStatus(
        run="r1", seq=1, pipeline="archive", state="running", time_s=2.5, started_s=1.0
    )


@each(
    "change",
    [
        {"run": "../../etc/passwd"},
        {"run": "r1\n"},
        {"pipeline": "<script>"},
        {"state": "vanished"},
        {"rows": -1},
        {"rows_per_second": 1e300},
        {"options": {"--x": 1}},
        {"reason": "x" * (limits.RUN_TEXT_CHARS + 1)},
        {"logs": [["t", 0, 1, 2]] * (limits.RUN_LOGS_MAX + 1)},
    ],
)
def test_invalid_states(change: dict[str, Any]) -> None:
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
def test_invalid_parts(change: dict[str, Any]) -> None:
    assert isinstance(decode(json.dumps(PART).encode()), Part)
    with pytest.raises(RunMessageInvalid):
        decode(json.dumps(PART | change).encode())


def test_a_page_that_is_too_long_is_none() -> None:
    assert list(parts_of("r1", "html", "x" * (limits.RUN_PAGE_CHARS + 1))) == []
