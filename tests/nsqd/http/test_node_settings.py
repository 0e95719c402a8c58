"""Publishes turned off, channels that consumers may not make, a level for the log."""

import json
import logging

from ..world import Running, error, mpub, ok, pub

OFF = b"publishes are turned off on this node"


def post(node: Running, path: str, body: bytes = b"") -> tuple[int, str]:
    answer = node.request("POST", path, body)
    return answer.status, answer.body.decode()


def test_publishes_are_turned_off_and_on(node: Running) -> None:
    post(node, "/pub?topic=t", b"before")
    assert post(node, "/disable/write?type=all") == (200, "")
    refused = (400, '{"message":"E_FAILED_ON_NOT_WRITABLE"}')
    assert post(node, "/pub?topic=t", b"x") == refused
    assert post(node, "/mpub?topic=t", b"x\ny") == refused
    assert post(node, "/pubtrace?topic=t&trace_id=1", b"x") == refused
    for command in (
        pub("t", b"x"),
        mpub("t", [b"x", b"y"]),
        b"DPUB t 10\n\0\0\0\1x",
        b"PUB_TRACE t\n\0\0\0\x09\0\0\0\0\0\0\0\1x",
        pub("new", b"x"),
    ):
        with node.client() as client:
            assert client.ask(command) == error(b"E_FAILED_ON_NOT_WRITABLE " + OFF)
            assert client.ask(b"SUB t\n")[1].startswith(b"E_INVALID SUB insufficient")  # goes on
    with node.client() as client:  # consumers go on
        client.consume("t", "ch", 1)
        message = client.message()
        assert message.body == b"before"
        client.send(b"FIN %b\n" % message.id)
    assert node.request("GET", "/ping").status == 200
    assert post(node, "/disable/write?type=none") == (200, "")
    assert post(node, "/pub?topic=t", b"x") == (200, "OK")


def test_publishes_to_ordered_topics_are_turned_off(node: Running) -> None:
    post(node, "/topic/config?topic=t&ordered=true")
    assert post(node, "/disable/write?type=ordered") == (200, "")
    assert post(node, "/pub?topic=t&partition=0", b"x") == (
        400,
        '{"message":"E_FAILED_ON_NOT_WRITABLE"}',
    )
    assert post(node, "/pub?topic=plain", b"x") == (200, "OK")
    assert node.answer_to(pub("t 0", b"x")) == error(b"E_FAILED_ON_NOT_WRITABLE " + OFF)
    assert node.answer_to(pub("plain", b"x")) == ok()
    post(node, "/topic/config?topic=plain&ordered=true")  # from now on it is one of them
    assert post(node, "/pub?topic=plain", b"x")[0] == 400
    post(node, "/topic/config?topic=t&ordered=")
    assert post(node, "/pub?topic=t", b"x") == (200, "OK")
    assert post(node, "/disable/write?type=none") == (200, "")
    assert post(node, "/pub?topic=plain&partition=0", b"x") == (200, "OK")


def test_a_topic_is_made_whose_channels_consumers_may_not_make(node: Running) -> None:
    made = "/topic/create?topic=closed&disable_channel_auto_create=true"
    assert post(node, made) == (200, "")
    assert post(node, made) == (200, "")  # the same again
    with node.client() as client:
        given = b"topic closed has no channel ch, and consumers may make none"
        assert client.ask(b"SUB closed ch\n") == error(b"E_SUB_CHANNEL_NOT_REGISTERED " + given)
    changed = "/topic/meta/update?topic=closed&disable_channel_auto_create={}"
    assert post(node, changed.format("false")) == (200, "")
    assert node.answer_to(b"SUB closed ch\n") == ok()
    status, said_then = post(node, made)
    assert (status, "CHANNEL_AUTO_CREATE topic closed exists" in said_then) == (409, True)
    assert post(node, changed.format("true")) == (200, "")
    assert post(node, made) == (200, "")
    status, said_then = post(node, changed.format("x") + "&upgradeext=true")
    assert (status, "INVALID_ARG_DISABLE_CHANNEL_AUTO_CREATE 'x'" in said_then) == (400, True)
    shown = json.loads(node.request("GET", "/topic/config?topic=closed").body)
    assert (shown["disable_channel_auto_create"], "extended" in shown) == (True, False)


def test_consumers_find_only_created_channels(node: Running) -> None:
    answer = post(node, "/topic/config?topic=t&disable_channel_auto_create=true")
    assert json.loads(answer[1])["disable_channel_auto_create"] is True
    with node.client() as client:
        given = b"topic t has no channel late, and consumers may make none"
        assert client.ask(b"SUB t late\n") == error(b"E_SUB_CHANNEL_NOT_REGISTERED " + given)
        assert client.is_closed()
    assert post(node, "/channel/create?topic=t&channel=late") == (200, "")
    for name in (b"late", b"tail#ephemeral"):
        assert node.answer_to(b"SUB t %b\n" % name) == ok()
    assert node.answer_to(b"SUB other ch\n") == ok()  # other topics are not concerned
    post(node, "/topic/config?topic=t&disable_channel_auto_create=")
    assert node.answer_to(b"SUB t second\n") == ok()


def test_the_level_of_the_log(node: Running) -> None:
    logger = logging.getLogger("penstock")
    before = logger.level
    try:
        for text, level in (("error", "3"), ("3", "1"), ("9", "1"), ("0", "4"), ("INFO", "2")):
            assert post(node, f"/loglevel/set?loglevel={text}") == (200, "")
            found = node.request("GET", "/config/log_level").body
            assert found == (level if text != "error" else b"4".decode()).encode(), text
    finally:
        logger.setLevel(before)


# --- youzan's figures, and room on the disk by hand: with one partition and with four ---


def count_of(node: Running) -> int:
    return len(node.daemon.broker.find_topic("t").leaders)


def test_where_a_channel_stands(node: Running) -> None:
    node.publish("t", *[b"12345"] * 8)
    with node.client() as client:
        client.consume("t", "ch", 1)
        client.message()
        status, document = node.ask("GET", "/message/stats?topic=t&channel=ch")
    rows = document["channels"]
    assert (status, len(rows)) == (200, count_of(node))
    assert [row["partition"] for row in rows] == list(range(count_of(node)))
    assert sum(row["in_flight"] for row in rows) == 1
    assert sum(row["end"] - row["next"] for row in rows) == 7
    assert all(row["requeued"] == row["delayed"] == row["exhausted"] == 0 for row in rows)
    one = node.ask("GET", "/message/stats?topic=t&partition=0")[1]["channels"]
    assert [row["partition"] for row in one] == [0]


def test_bytes_by_the_hour(node: Running) -> None:
    node.publish("t", *[b"12345"] * 4)
    status, document = node.ask("GET", "/message/historystats?topic=t")
    assert status == 200
    hours = document["hourly_pub_size"]
    assert (len(hours), sum(hours)) == (24, 20)
    each = [
        sum(node.ask("GET", f"/message/historystats?topic=t&partition={n}")[1]["hourly_pub_size"])
        for n in range(count_of(node))
    ]
    assert sum(each) == 20


def test_refused_publishes_are_counted(node: Running) -> None:
    assert node.ask("GET", "/serverstats") == (200, {"server_pub_failed_cnt": 0})
    node.request("POST", "/disable/write?type=all")
    node.request("POST", "/pub?topic=t", b"x")
    assert node.ask("GET", "/serverstats") == (200, {"server_pub_failed_cnt": 1})


def test_every_replica_is_on_this_node(node: Running) -> None:
    status, document = node.ask("GET", "/coordinator/stats?topic=t")
    assert status == 200
    rows = document["topic_coord_stats"]
    assert [row["partition"] for row in rows] == list(range(count_of(node)))
    assert {row["node"] for row in rows} == {"7"}
    assert all(len(row["isr_stats"]) == 1 and row["catchup_stats"] == [] for row in rows)


def test_room_is_made_at_once(node: Running) -> None:
    node.publish("t", *[b"12345"] * 8)
    assert node.request("POST", "/topic/greedyclean?topic=t").status == 200
    status, document = node.ask("POST", "/topic/greedyclean?topic=t")
    assert (status, sum(row["earliest"] for row in document["partitions"])) == (
        200,
        0,
    )  # it is wanted
    assert node.request("POST", "/channel/empty?topic=t&channel=ch").status == 200

    document = node.ask("POST", "/topic/greedyclean?topic=t")[1]
    assert len(document["partitions"]) == count_of(node)
    assert sum(row["earliest"] for row in document["partitions"]) == 8


def test_deleted_topics_leave_nothing(node: Running) -> None:
    node.request("POST", "/topic/delete?topic=t")
    assert node.ask("POST", "/topic/cleanunused?dryrun=true") == (200, {"removed": [], "left": []})
    assert node.ask("POST", "/topic/cleanunused") == (200, {"removed": [], "left": []})
