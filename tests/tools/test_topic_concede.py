"""`penstock topic concede`, at a daemon that waits for nothing, and its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from nsqd.world import Running
from penstock.tools.main import main
from penstock.tools.topic import conceded

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        running.request("POST", "/topic/create?topic=orders&partition_num=2")
        yield running


@pytest.fixture
def run(nsqd: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    address = f"127.0.0.1:{nsqd.daemon.http_address.port}"
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", address)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(("topic", "concede", *arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_node_by_itself_waits_for_nothing(run: Run) -> None:
    code, out, err = run("orders", "--yes")
    assert (code, err) == (0, "")
    assert out.endswith(": nothing is waited for\n")
    found = json.loads(run("orders", "--partition", "1", "--json", "--yes")[1])
    assert [node["conceded"] for node in found["nodes"].values()] == [[]]


def test_it_asks_first(run: Run) -> None:
    code, _, err = run("orders")
    assert code == 1
    assert "--yes" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("none", "--yes"), 1, "TOPIC_NOT_FOUND"),
        (("orders", "--partition", "7", "--yes"), 1, "E_BAD_PARTITION"),
        (("orders", "--partition", "255", "--yes"), 2, "'--partition'"),
    ],
)
def test_what_is_refused(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, _, err = run(*arguments)
    assert found == code
    assert said in err


def test_the_report_names_the_offsets() -> None:
    found = [{"partition": 2, "from": 100, "to": 164}, {"partition": 3, "from": 7, "to": 8}]
    assert list(conceded("a:4151", {"conceded": found})) == [
        "a:4151: partition 2: offsets 100 to 163 are given up",
        "a:4151: partition 3: offset 7 is given up",
    ]
