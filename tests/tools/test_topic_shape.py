"""Making topics of a shape from the command line, changing it, and publishing into a place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nsqd.world import Running
from penstock.kernel import murmur3_32
from penstock.tools.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        yield running


@pytest.fixture
def run(nsqd: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    address = f"127.0.0.1:{nsqd.daemon.http_address.port}"
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", address)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def config_of(nsqd: Running, topic: str) -> dict[str, Any]:
    answer = nsqd.request("GET", f"/topic/config?topic={topic}")
    found: dict[str, Any] = json.loads(answer.body)
    return found


def ends_of(nsqd: Running, topic: str) -> list[int]:
    found = json.loads(nsqd.request("GET", f"/log/positions?topic={topic}").body)
    partitions = found["topics"][topic]["partitions"]
    return [partitions[number]["end"] for number in sorted(partitions, key=int)]


def test_a_topic_is_made_with_partitions_and_gets_more(nsqd: Running, run: Run) -> None:
    assert run("topic", "create", "wide", "--partitions", "3")[0] == 0
    assert run("topic", "create", "wide")[0] == 0
    code, out, _ = run("topic", "create", "copied", "--replicas", "3")
    assert (code, "a node by itself" in out) == (1, True)
    code, out, _ = run("topic", "create", "wide", "--partitions", "4")
    assert code == 1
    assert "topic wide has 3" in out
    assert run("topic", "expand", "wide", "--partitions", "5")[0] == 0
    shape = config_of(nsqd, "wide")
    assert (shape["partitions"], shape["hash_partitions"]) == (5, 3)
    assert run("topic", "expand", "wide", "--partitions", "5", "--rehash")[0] == 0
    assert config_of(nsqd, "wide")["hash_partitions"] == 5


def test_headers_are_allowed_at_creation_or_later(run: Run) -> None:
    assert run("topic", "create", "headed", "--extended")[0] == 0
    run("topic", "create", "plain")
    code, out, _ = run("topic", "create", "plain", "--extended")
    assert code == 1
    assert "NOT_EXTENDED" in out
    assert run("topic", "extend", "plain")[0] == 0
    assert run("topic", "create", "plain", "--extended")[0] == 0


def test_publishing_by_key_and_into_a_partition(nsqd: Running, run: Run) -> None:
    run("topic", "create", "keyed", "--partitions", "4")
    wanted = [0, 0, 0, 0]
    for key in ("a", "b", "c", "d", "e"):
        assert run("pub", "keyed", "body", "--key", key)[0] == 0
        wanted[murmur3_32(key.encode()) % 4] += 1
    assert run("pub", "keyed", "body", "--partition", "2")[0] == 0
    wanted[2] += 1
    assert ends_of(nsqd, "keyed") == wanted
    code, _, err = run("pub", "keyed", "body", "--partition", "4")
    assert code == 1
    assert "E_BAD_PARTITION" in err
