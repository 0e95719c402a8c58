"""A rate for a channel, and a bound of RDY for its consumers, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..world import Running, eventually, ok

HERE = "topic=t&channel=ch"


@pytest.fixture(params=[1, 4])
def nsqd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    with Running(tmp_path / "data", "--durability=os") as running:
        made = f"/topic/create?topic=t&partition_num={request.param}"
        assert running.request("POST", made).status == 200
        assert running.request("POST", f"/channel/create?{HERE}").status == 200
        yield running


def test_a_rate_holds_a_consumer_back(nsqd: Running) -> None:
    told = {"topic_name": "t", "channel_name": "ch", "bytes_per_second": 1024}
    assert nsqd.ask("POST", f"/channel/ratelimit?{HERE}&ratekilobytes=1") == (200, told)
    for _ in range(40):
        assert nsqd.request("POST", "/mpub?topic=t", b"\n".join([b"x" * 990] * 2)).status == 200
    with nsqd.client() as client:
        assert client.ask(b"SUB t ch\n") == ok()
        client.send(b"RDY 1\n")
        client.message()
        row = nsqd.channel("t", "ch")
        assert row["depth"] + row["in_flight_count"] == 80
        assert nsqd.ask("POST", f"/channel/ratelimit?{HERE}&ratekilobytes=0")[0] == 200
        client.send(b"RDY 100\n")
        for _ in range(79):
            client.message()


def test_consumers_get_less_than_they_ask_for(nsqd: Running) -> None:
    for _ in range(10):
        nsqd.request("POST", "/pub?topic=t", b"x")
    with nsqd.client(client_id="slow-1") as slow, nsqd.client(client_id="quick") as quick:
        for client in (slow, quick):
            assert client.ask(b"SUB t ch\n") == ok()
        told = nsqd.ask("POST", f"/channel/setclientlimit?{HERE}&ready=2&client_prefix=slow")
        assert told == (200, {"topic_name": "t", "channel_name": "ch", "clients": 1})
        slow.send(b"RDY 100\n")
        eventually(lambda: nsqd.channel("t", "ch")["in_flight_count"] == 2)
        rows = {row["client_id"]: row for row in nsqd.channel("t", "ch")["clients"]}
        assert (rows["slow-1"]["ready_count"], rows["slow-1"]["limited_rdy"]) == (2, 2)
        assert "limited_rdy" not in rows["quick"]
        assert nsqd.ask("POST", f"/channel/setclientlimit?{HERE}&ready=0")[1]["clients"] == 2
        eventually(lambda: nsqd.channel("t", "ch")["in_flight_count"] == 10)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        (f"/channel/ratelimit?{HERE}", 400, "MISSING_ARG_RATEKILOBYTES"),
        (f"/channel/ratelimit?{HERE}&ratekilobytes=-1", 400, "INVALID_ARG_RATEKILOBYTES '-1'"),
        ("/channel/ratelimit?topic=t&channel=no&ratekilobytes=1", 404, "CHANNEL_NOT_FOUND"),
        (f"/channel/setclientlimit?{HERE}", 400, "MISSING_ARG_READY"),
        (f"/channel/setclientlimit?{HERE}&ready=9999", 400, "INVALID_ARG_READY '9999'"),
    ],
)
def test_what_is_refused(nsqd: Running, path: str, status: int, said: str) -> None:
    answered, told = nsqd.ask("POST", path)
    assert answered == status
    assert told["message"].startswith(said)
