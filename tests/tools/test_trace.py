"""`penstock trace`, over HTTP and on a directory without a daemon."""

import json
from pathlib import Path
from typing import Any

import pytest

from nsqd.test_traced import mpub_trace, pub_trace, traced
from nsqd.world import V2, Running, eventually, ok, pub, running_with
from penstock.tools.main import main
from penstock.trace.events import TOPIC

nsqd = running_with("/topic/create?topic=orders", "/channel/create?topic=orders&channel=mail")


def address(nsqd: Running) -> str:
    return f"--nsqd-http-address={nsqd.daemon.http_address}"


def consume(nsqd: Running, client: V2, count: int) -> list[str]:
    """All of them finished; their ids."""
    client.consume("orders", "mail", 10)
    ids = [client.message().id for _ in range(count)]
    for id in ids:
        client.send(b"FIN %b\n" % id)
    eventually(lambda: nsqd.channel("orders", "mail")["in_flight_count"] == 0)
    return [id.decode() for id in ids]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["trace", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_life_of_one_message(nsqd: Running, capsys: pytest.CaptureFixture[str]) -> None:
    nsqd.request("POST", "/topic/config?topic=orders&trace_rate=1")
    with nsqd.client() as client:
        for body in (b"a", b"b"):
            assert client.ask(pub("orders", body)) == ok()
        first, _ = consume(nsqd, client, 2)

        def rows() -> Any:
            return answer(capsys, first, address(nsqd))[1]

        eventually(lambda: len(rows()) == 3)
        assert [row["kind"] for row in rows()] == ["published", "sent", "finished"]
        assert {row["message_id"] for row in rows()} == {first}
        assert answer(capsys, first, address(nsqd), "--topic", "other") == (1, [])
        assert main(["trace", first, address(nsqd)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"message {first}"
        assert [line.split()[2] for line in lines[1:]] == ["published", "sent", "finished"]
        assert "orders/mail  offset 0  attempt 1" in lines[2]


def test_all_messages_with_a_trace_id(
    nsqd: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same from the files, once the daemon is gone."""
    with nsqd.client() as client:
        client.ask(pub_trace(b"orders", b"a", 42))
        client.ask(mpub_trace(b"orders", [traced(b"b", 43), traced(b"c", 42)]))
        ids = consume(nsqd, client, 3)

        def rows() -> Any:
            return answer(capsys, "--trace-id=42", address(nsqd))[1]

        eventually(lambda: len(rows()) == 6)
        assert {row["message_id"] for row in rows()} == {ids[0], ids[2]}
        warm = rows()
    nsqd.stop()
    code, cold = answer(capsys, "--trace-id=42", f"--data-path={tmp_path / 'data'}")
    assert code == 0
    assert cold == [{key: value for key, value in row.items() if key != "node"} for row in warm]
    assert main(["trace", "--trace-id=42", f"--data-path={tmp_path / 'data'}"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("message")]
    assert heads == [f"message {id}  trace id 42" for id in (ids[0], ids[2])]


def test_all_messages_of_a_w3c_trace(
    nsqd: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nsqd.request("POST", "/topic/meta/update?topic=orders&upgradeext=true")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = f"00-{trace_id}-00f067aa0ba902b7-01"
    nsqd.request("POST", "/pub?topic=orders", b"a", {"traceparent": context})
    both = {"traceparent": context, "X-Nsqext-##trace_id": "42"}
    nsqd.request("POST", "/pub_ext?topic=orders", b"b", both)
    w3c, number = f"--trace-id={trace_id}", int(trace_id[16:], 16)

    def rows(asked: str) -> Any:
        return answer(capsys, asked, address(nsqd))[1]

    for asked in (w3c, f"--trace-id={number}", "--trace-id=42"):
        eventually(lambda: len(rows(asked)) == 1)  # noqa: B023
    (row,) = rows(w3c)
    assert (row["trace_id"], row["offset"], row["traceparent"]) == (number, 0, context)
    assert rows("--trace-id=42")[0]["traceparent"] == context
    assert main(["trace", w3c, address(nsqd)]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert head == f"message {row['message_id']}  trace id {number}  traceparent {context}"
    found = json.loads(nsqd.request("GET", f"/message/get?topic=orders&trace_id={trace_id}").body)
    assert (found["offset"], found["headers"]) == (0, {"traceparent": context})
    nsqd.request("POST", "/topic/delete?topic=orders")
    assert "traceparent" not in rows(w3c)[0]


def test_a_node_that_has_traced_nothing(nsqd: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert TOPIC not in nsqd.daemon.broker.topics
    both = address(nsqd), "--nsqd-http-address=127.0.0.1:1"
    assert main(["trace", "0d1c000000000000", *both]) == 1
    out, err = capsys.readouterr()
    assert "nothing is known of it" in out
    assert err.startswith("the log of 127.0.0.1:1 can't be read: ")
    assert err.count("\n") == 1
