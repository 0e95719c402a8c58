"""`penstock trace`, over HTTP and on a directory without a daemon."""

import json
from pathlib import Path
from typing import Any

from nsqd.test_traced import mpub_trace, pub_trace, traced
from nsqd.world import V2, Running, eventually, ok, pub, running_with
from penstock.trace.events import TOPIC

from .utilities import Run

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


def rows(penstock: Run, *arguments: str) -> Any:
    return json.loads(penstock("trace", *arguments, "--json")[1])


def test_the_life_of_one_message(nsqd: Running, penstock: Run) -> None:
    nsqd.request("POST", "/topic/config?topic=orders&trace_rate=1")
    with nsqd.client() as client:
        for body in (b"a", b"b"):
            assert client.ask(pub("orders", body)) == ok()
        first, _ = consume(nsqd, client, 2)
        asked = penstock, first, address(nsqd)
        eventually(lambda: len(rows(*asked)) == 3)
        found = rows(*asked)
        assert [row["kind"] for row in found] == ["published", "sent", "finished"]
        assert {row["message_id"] for row in found} == {first}
        assert rows(*asked, "--topic", "other") == []
        code, out, _ = penstock("trace", first, address(nsqd))
        lines = out.splitlines()
        assert code == 0
        assert lines[0] == f"message {first}"
        assert [line.split()[2] for line in lines[1:]] == ["published", "sent", "finished"]
        assert "orders/mail  offset 0  attempt 1" in lines[2]


def test_all_messages_with_a_trace_id(nsqd: Running, tmp_path: Path, penstock: Run) -> None:
    """The same from the files, once the daemon is gone."""
    with nsqd.client() as client:
        client.ask(pub_trace(b"orders", b"a", 42))
        client.ask(mpub_trace(b"orders", [traced(b"b", 43), traced(b"c", 42)]))
        ids = consume(nsqd, client, 3)
        asked = penstock, "--trace-id=42"
        eventually(lambda: len(rows(*asked, address(nsqd))) == 6)
        warm = rows(*asked, address(nsqd))
        assert {row["message_id"] for row in warm} == {ids[0], ids[2]}
    nsqd.stop()
    files = f"--data-path={tmp_path / 'data'}"
    cold = rows(*asked, files)
    assert cold == [{key: value for key, value in row.items() if key != "node"} for row in warm]
    code, out, _ = penstock("trace", "--trace-id=42", files)
    assert code == 0
    heads = [line for line in out.splitlines() if line.startswith("message")]
    assert heads == [f"message {id}  trace id 42" for id in (ids[0], ids[2])]


def test_all_messages_of_a_w3c_trace(nsqd: Running, penstock: Run) -> None:
    nsqd.request("POST", "/topic/meta/update?topic=orders&upgradeext=true")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = f"00-{trace_id}-00f067aa0ba902b7-01"
    nsqd.request("POST", "/pub?topic=orders", b"a", {"traceparent": context})
    both = {"traceparent": context, "X-Nsqext-##trace_id": "42"}
    nsqd.request("POST", "/pub_ext?topic=orders", b"b", both)
    w3c, number, at = f"--trace-id={trace_id}", int(trace_id[16:], 16), address(nsqd)
    for asked in (w3c, f"--trace-id={number}", "--trace-id=42"):
        eventually(lambda: len(rows(penstock, asked, at)) == 1)  # noqa: B023
    (row,) = rows(penstock, w3c, at)
    assert (row["trace_id"], row["offset"], row["traceparent"]) == (number, 0, context)
    assert rows(penstock, "--trace-id=42", at)[0]["traceparent"] == context
    head = penstock("trace", w3c, at)[1].splitlines()[0]
    assert head == f"message {row['message_id']}  trace id {number}  traceparent {context}"
    found = json.loads(nsqd.request("GET", f"/message/get?topic=orders&trace_id={trace_id}").body)
    assert (found["offset"], found["headers"]) == (0, {"traceparent": context})
    nsqd.request("POST", "/topic/delete?topic=orders")
    assert "traceparent" not in rows(penstock, w3c, at)[0]


def test_a_node_that_has_traced_nothing(nsqd: Running, penstock: Run) -> None:
    assert TOPIC not in nsqd.daemon.broker.topics
    both = address(nsqd), "--nsqd-http-address=127.0.0.1:1"
    code, out, err = penstock("trace", "0d1c000000000000", *both)
    assert (code, "nothing is known of it" in out) == (1, True)
    assert err.startswith("the log of 127.0.0.1:1 can't be read: ")
    assert err.count("\n") == 1
