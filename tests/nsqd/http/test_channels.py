"""`/channel/config` and the bounds of a channel: what is said, what is taken, what is refused."""

from typing import Any

from ..world import Running, eventually, ok, running_with

HERE = "topic=t&channel=ch"
nsqd = running_with("/topic/create?topic=t", f"/channel/create?{HERE}")


def config(max_attempts: int, dead_letter_topic: str = "t.ch.dead") -> dict[str, Any]:
    own = ["max_attempts"] if max_attempts else []
    own += ["dead_letter_topic"] if dead_letter_topic != "t.ch.dead" else []
    return {
        "topic_name": "t",
        "channel_name": "ch",
        "max_attempts": max_attempts,
        "dead_letter_topic": dead_letter_topic,
        "trace_rate": 0.0,
        "ack_retry_cnt": 0,
        "ack_old_than_time": "0s",
        "order": "none",
        "poison": "dead_letter",
        "dead_letter_count": 0,
        "held_count": 0,
        "own": own,
    }


def test_settings_are_taken_and_given_back(nsqd: Running) -> None:
    chosen = (200, config(5, "dead"))
    query = f"/channel/config?{HERE}"
    assert nsqd.ask("POST", query + "&max_attempts=5&dead_letter_topic=dead") == chosen
    assert nsqd.ask("GET", query) == chosen
    assert nsqd.ask("POST", query) == chosen
    assert nsqd.ask("POST", query + "&dead_letter_topic=") == (200, config(5))
    assert nsqd.ask("POST", query + "&max_attempts=") == (200, config(0))


# --- A rate for a channel, and a bound of RDY for its consumers, over HTTP ---


def test_a_rate_holds_a_consumer_back(node: Running) -> None:
    answer = {"topic_name": "t", "channel_name": "ch", "bytes_per_second": 1024}
    assert node.ask("POST", f"/channel/ratelimit?{HERE}&ratekilobytes=1") == (200, answer)
    for _ in range(40):
        assert node.request("POST", "/mpub?topic=t", b"\n".join([b"x" * 990] * 2)).status == 200
    with node.client() as client:
        client.consume("t", "ch", 1)
        client.message()
        row = node.channel("t", "ch")
        assert row["depth"] + row["in_flight_count"] == 80
        assert node.ask("POST", f"/channel/ratelimit?{HERE}&ratekilobytes=0")[0] == 200
        client.send(b"RDY 100\n")
        for _ in range(79):
            client.message()


def test_consumers_get_less_than_they_ask_for(node: Running) -> None:
    node.publish("t", *[b"x"] * 10)
    with node.client(client_id="slow-1") as slow, node.client(client_id="quick") as quick:
        for client in (slow, quick):
            assert client.ask(b"SUB t ch\n") == ok()
        answer = node.ask("POST", f"/channel/setclientlimit?{HERE}&ready=2&client_prefix=slow")
        assert answer == (200, {"topic_name": "t", "channel_name": "ch", "clients": 1})
        slow.send(b"RDY 100\n")
        eventually(lambda: node.channel("t", "ch")["in_flight_count"] == 2)
        rows = {row["client_id"]: row for row in node.channel("t", "ch")["clients"]}
        assert (rows["slow-1"]["ready_count"], rows["slow-1"]["limited_rdy"]) == (2, 2)
        assert "limited_rdy" not in rows["quick"]
        assert node.ask("POST", f"/channel/setclientlimit?{HERE}&ready=0")[1]["clients"] == 2
        eventually(lambda: node.channel("t", "ch")["in_flight_count"] == 10)
