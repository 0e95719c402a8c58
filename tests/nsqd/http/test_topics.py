"""`/topic/config`: what is said, what is taken, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..world import Running, error, ok, pub

DEFAULTS = {
    "durability": "os",
    "max_depth": 1000,
    "max_age": "0s",
    "retain_age": "24h0m0s",
    "retain_bytes": 1 << 30,
    "trace_rate": 0.0,
    "ordered": False,
    "disable_channel_auto_create": False,
}


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os", "--max-depth=1000") as running:
        assert running.request("POST", "/topic/create?topic=t").status == 200
        yield running


def ask(nsqd: Running, method: str, query: str) -> tuple[int, Any]:
    answer = nsqd.request(method, f"/topic/config?{query}")
    return answer.status, json.loads(answer.body)


def test_a_topic_begins_with_the_daemons_options(nsqd: Running) -> None:
    assert ask(nsqd, "GET", "topic=t") == (200, {"topic_name": "t", **DEFAULTS, "own": []})


def test_another_shape_is_said(nsqd: Running) -> None:
    nsqd.request("POST", "/topic/create?topic=four&partition_num=4&extend=true")
    shape = {"partitions": 4, "hash_partitions": 4, "extended": True}
    assert ask(nsqd, "GET", "topic=four")[1] == {
        "topic_name": "four", **DEFAULTS, "own": [], **shape,
    }  # fmt: skip
    nsqd.request("POST", "/topic/create?topic=one&extend=true")
    assert ask(nsqd, "GET", "topic=one")[1]["extended"] is True
    assert "partitions" not in ask(nsqd, "GET", "topic=one")[1]


def test_settings_are_taken_together_and_given_back(nsqd: Running) -> None:
    query = (
        "topic=t&durability=disk&max_depth=5&max_age=90s&retain_age=0&retain_bytes=7&trace_rate=0.5"
        "&ordered=true&disable_channel_auto_create=true"
    )
    chosen = {
        "durability": "disk",
        "max_depth": 5,
        "max_age": "1m30s",
        "retain_age": "0s",
        "retain_bytes": 7,
        "trace_rate": 0.5,
        "ordered": True,
        "disable_channel_auto_create": True,
    }
    expected = (200, {"topic_name": "t", **chosen, "own": list(chosen)})
    assert ask(nsqd, "POST", query) == expected
    assert ask(nsqd, "GET", "topic=t") == expected
    status, told = ask(nsqd, "POST", "topic=t&max_age=&durability=")
    assert status == 200
    assert told["own"] == list(chosen)[1:2] + list(chosen)[3:]
    assert (told["max_age"], told["durability"], told["max_depth"]) == ("0s", "os", 5)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=nobody", 404, "TOPIC_NOT_FOUND"),
        ("topic=t&max_depth=-1", 400, "INVALID_ARG_MAX_DEPTH '-1': a whole number, 0 to "),
        ("topic=t&max_depth=x", 400, "INVALID_ARG_MAX_DEPTH 'x': a whole number, 0 to "),
        ("topic=t&retain_bytes=9223372036854775808", 400, "INVALID_ARG_RETAIN_BYTES"),
        ("topic=t&retain_bytes=" + "9" * 5000, 400, "INVALID_ARG_RETAIN_BYTES"),
        ("topic=t&max_age=5", 400, "INVALID_ARG_MAX_AGE '5': '5' is no duration"),
        ("topic=t&max_age=-5s", 400, "INVALID_ARG_MAX_AGE '-5s': a duration such as"),
        ("topic=t&durability=ram", 400, "INVALID_ARG_DURABILITY 'ram': one of disk, os"),
        ("topic=t&max_debt=5", 400, "INVALID_ARG max_debt: no such setting; there are durability"),
    ],
)
def test_what_is_refused(nsqd: Running, query: str, status: int, said: str) -> None:
    answered, told = ask(nsqd, "POST", query + "&max_age=1s")
    assert answered == status
    assert told["message"].startswith(said)
    assert ask(nsqd, "GET", "topic=t")[1]["own"] == []


def test_a_full_topic_says_so_everywhere(nsqd: Running) -> None:
    assert ask(nsqd, "POST", "topic=t&max_depth=2")[0] == 200
    with nsqd.client() as client:
        client.send(pub(b"t", b"1") + pub(b"t", b"2") + pub(b"t", b"3"))
        full = b"topic depth limit of 2 messages is reached"
        assert [client.read() for _ in range(3)] == [
            ok(),
            ok(),
            error(b"E_PUB_FAILED PUB failed " + full),
        ]
    answer = nsqd.request("POST", "/pub?topic=t", b"4")
    assert (answer.status, json.loads(answer.body)["message"]) == (503, f"FAILED {full.decode()}")
    with nsqd.client() as client:
        assert client.ask(b"DPUB t 10\n\0\0\0\1x") == error(b"E_DPUB_FAILED DPUB failed " + full)
    assert nsqd.request("POST", "/topic/empty?topic=t").status == 200
    with nsqd.client() as client:
        assert client.ask(pub(b"t", b"5")) == ok()
