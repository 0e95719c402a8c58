"""`/channel/messages`, and settling one message by hand."""

import json
from typing import Any

from ..world import V2, Running, eventually, running_with

HERE = "topic=t&channel=ch"
HOUR_MS = 3_600_000
nsqd = running_with("/topic/create?topic=t", f"/channel/create?{HERE}")


def listed(nsqd: Running, state: str, more: str = "") -> list[dict[str, Any]]:
    status, document = nsqd.ask("GET", f"/channel/messages?{HERE}&state={state}{more}")
    assert (status, document["state"]) == (200, state)
    messages: list[dict[str, Any]] = document["messages"]
    return messages


def settle(nsqd: Running, verb: str, id: bytes | str) -> tuple[int, Any]:
    text = id.decode() if isinstance(id, bytes) else id
    return nsqd.ask("POST", f"/channel/message/{verb}?{HERE}&id={text}")


def consumer(nsqd: Running, rdy: int = 10) -> V2:
    client = nsqd.client(client_id="me", hostname="till-7")
    client.consume("t", "ch", rdy)
    return client


def counts(nsqd: Running) -> tuple[int, int, int]:
    row = nsqd.channel("t", "ch")
    return row["depth"], row["in_flight_count"], row["deferred_count"]


def test_messages_in_flight_and_their_clients(nsqd: Running) -> None:
    with consumer(nsqd) as client:
        nsqd.publish("t", b"a", b"b")
        ids = [client.message().id.decode() for _ in range(2)]
        first, second = listed(nsqd, "in_flight")
        assert [first["id"], second["id"]] == ids
        assert (first["offset"], first["attempts"], first["state"]) == (0, 1, "in_flight")
        assert 50_000 < first["deadline_ms"] <= second["deadline_ms"] <= 60_000
        owner = first["client"]
        assert (owner["client_id"], owner["hostname"]) == ("me", "till-7")
        assert owner["remote_address"].startswith("127.0.0.1:")
        assert len(listed(nsqd, "in_flight", "&limit=1")) == 1
    eventually(lambda: listed(nsqd, "in_flight")[0]["client"] is None)


def test_a_message_in_flight_is_finished(nsqd: Running) -> None:
    with consumer(nsqd) as client:
        nsqd.publish("t", b"a")
        id = client.message().id
        assert settle(nsqd, "finish", id) == (200, None)
        assert counts(nsqd) == (0, 0, 0)
        row = nsqd.channel("t", "ch")["clients"][0]
        assert (row["in_flight_count"], row["finish_count"]) == (0, 1)
        client.send(b"FIN " + id + b"\n")
        assert client.read().data == b"E_FIN_FAILED FIN " + id + b" failed ID not in flight"
        assert settle(nsqd, "finish", id) == (404, {"message": "MESSAGE_NOT_FOUND"})


def in_order(nsqd: Running, order: str, more: str = "") -> None:
    assert nsqd.request("POST", f"/channel/config?{HERE}&order={order}{more}").status == 200


def test_messages_that_wait_behind_another_of_their_key(nsqd: Running) -> None:
    in_order(nsqd, "key")
    with consumer(nsqd) as client:
        for key, body in (("k", b"a"), ("k", b"b"), ("other", b"c"), ("k", b"d")):
            assert nsqd.request("POST", f"/pub?topic=t&key={key}", body).status == 200
        sent = [client.message() for _ in range(2)]
        assert [one.body for one in sent] == [b"a", b"c"]
        rows = listed(nsqd, "behind")
        assert [(row["offset"], row["attempts"], row["state"]) for row in rows] == [
            (1, 0, "behind"), (3, 0, "behind"),
        ]  # fmt: skip
        assert len(listed(nsqd, "behind", "&limit=1")) == 1
        assert listed(nsqd, "requeued") == []
        assert settle(nsqd, "finish", rows[0]["id"]) == (200, None)
        client.send(b"FIN %b\n" % sent[0].id)
        assert client.message().body == b"d"
        assert listed(nsqd, "behind") == []


def test_messages_that_are_held(nsqd: Running) -> None:
    in_order(nsqd, "strict", "&max_attempts=1&poison=hold")
    with consumer(nsqd) as client:
        nsqd.publish("t", b"a", b"b")
        first = client.message()
        assert listed(nsqd, "held") == []
        client.send(b"REQ %b 0\n" % first.id)
        eventually(lambda: len(listed(nsqd, "held")) == 1)
        (row,) = listed(nsqd, "held")
        assert (row["id"].encode(), row["offset"], row["attempts"]) == (first.id, 0, 1)
        assert settle(nsqd, "finish", first.id) == (200, None)
        assert client.message().body == b"b"
        assert listed(nsqd, "held") == []


def test_dead_letters_are_listed_and_sent_back(nsqd: Running) -> None:
    assert nsqd.request("POST", f"/channel/config?{HERE}&max_attempts=1").status == 200
    assert listed(nsqd, "dead") == []
    redrive = f"/channel/redrive?{HERE}"
    assert nsqd.ask("POST", redrive) == (200, {"redriven": 0})
    with consumer(nsqd) as client:
        nsqd.publish("t", b"a", b"bb")
        ids = [client.message().id for _ in range(2)]
        for id in ids:
            client.send(b"REQ " + id + b" 0\n")
        eventually(lambda: len(listed(nsqd, "dead")) == 2)
        second = listed(nsqd, "dead")[1]
        assert (second["id"], second["attempts"], second["body_bytes"]) == (ids[1].decode(), 1, 2)
        assert (second["dead_letter_topic"], second["cause"]) == ("t.ch.dead", "requeued")
        assert nsqd.ask("POST", f"{redrive}&id={ids[1].decode()}") == (200, {"redriven": 1})
        assert client.message().id == ids[1]
        assert [row["id"] for row in listed(nsqd, "dead")] == [ids[0].decode()]
        assert nsqd.ask("POST", f"{redrive}&count=5") == (200, {"redriven": 1})


# --- youzan's verbs for channels that are stuck: on a topic with one partition and with four ---


def ask(node: Running, path: str, query: str = "") -> tuple[int, Any]:
    return node.ask("POST", f"{path}?{HERE}{query}")


def settled(node: Running, verb: str, query: str = "") -> tuple[int, int]:
    status, found = ask(node, f"/channel/{verb}", query)
    assert (status, found["topic_name"], found["channel_name"]) == (200, "t", "ch")
    return found["settled"], found["left"]


def publish_numbers(node: Running, count: int = 4, defer_ms: int = 0) -> None:
    for number in range(count):
        path = f"/pub?topic=t&defer={defer_ms}"
        assert node.request("POST", path, b"%d" % number).status == 200


def test_undelivered_messages_can_be_finished(node: Running) -> None:
    found = []
    for number in range(8):
        answer = node.request("POST", "/pubtrace?topic=t&trace_id=1", b"%d" % number)
        found.append(json.loads(answer.body)["id"])
    for id in found[1::2]:  # as numbers, as they were answered
        assert ask(node, "/message/finish", f"&msgid={id}") == (200, None)
    assert counts(node) == (4, 0, 0)
    with consumer(node, 100) as client:
        bodies = sorted(client.message().body for _ in range(4))
        assert bodies == [b"0", b"2", b"4", b"6"]
        assert client.is_silent()


def test_all_delayed_messages(node: Running) -> None:
    publish_numbers(node, 4)
    publish_numbers(node, 3, HOUR_MS)
    with consumer(node, 100) as client:
        for _ in range(4):
            client.send(b"REQ %b %d\n" % (client.message().id, HOUR_MS))
        client.ask(b"CLS\n")
        assert counts(node) == (0, 0, 7)
        assert settled(node, "finishmemdelayed") == (4, 3)
        assert settled(node, "finishmemdelayed") == (0, 3)
        assert settled(node, "emptydelayed") == (3, 0)
        assert counts(node) == (0, 0, 0)


def test_one_partition(node: Running) -> None:
    count = len(node.daemon.broker.find_topic("t").leaders)
    publish_numbers(node, 8, HOUR_MS)
    assert settled(node, "emptydelayed", "&partition=0") == (8 // count, 8 - 8 // count)
    status, answer = ask(node, "/channel/fixconfirmed", f"&partition={count - 1}")
    assert (status, list(answer["partitions"])) == (200, [str(count - 1)])
    assert ask(node, "/channel/fixconfirmed", f"&partition={count}") == (
        400,
        {
            "message": "E_BAD_PARTITION",
            "reason": f"partition '{count}': topic t has 0 to {count - 1}",
        },
    )


def test_cursors_of_a_channel(node: Running) -> None:
    publish_numbers(node, 8)
    count = len(node.daemon.broker.find_topic("t").leaders)
    status, answer = ask(node, "/channel/fixconfirmed")
    place = {"low": 0, "next": 0, "floor": 0}
    partitions = {str(number): place for number in range(count)}
    assert (status, answer) == (
        200, {"topic_name": "t", "channel_name": "ch", "partitions": partitions},
    )  # fmt: skip
