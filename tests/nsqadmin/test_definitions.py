"""Definitions: what is refused before anything is changed, and that out and in is the same."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from cases import each
from penstock.nsqadmin import definitions
from penstock.nsqadmin.definitions import DefinitionsInvalid, NotComplete
from penstock.nsqadmin.settings import SettingRefused
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState, make
from penstock.nsqadmin.upstream import DaemonRefused, NsqdAddress

from .saying import Saying

MAIL = {"channel_name": "mail", "settings": {"max_attempts": 3}}
ORDERS = {"topic_name": "orders", "settings": {"max_depth": 5}, "channels": [MAIL]}
SNAPSHOT = Snapshot(
    1.0,
    {"a": NodeState("a", NsqdAddress("h", "a", 1, 2, "1"), {"topics": [ORDERS]}, answered_s=1.0)},
    {
        name: TopicState(name, nodes=["a"], paused=name == "orders",
                         channels={"mail": ChannelState(name, "mail"),
                                   "x#ephemeral": ChannelState(name, "x#ephemeral")})
        for name in ("orders", "gone#ephemeral", "_trace")
    },
)  # fmt: skip


def answer() -> Saying:
    return Saying(lambda address, path: {})


def test_an_import_restores_the_export() -> None:
    upstream = answer()
    text = definitions.to_text(definitions.taken(SNAPSHOT)).decode()
    mail = {"name": "mail", "settings": {"max_attempts": "3"}}
    orders = {"name": "orders", "paused": True, "settings": {"max_depth": "5"}, "channels": [mail]}
    assert json.loads(text) == {"version": 1, "topics": [orders]}
    found = definitions.read(text)
    assert asyncio.run(definitions.put(upstream, ["a", "b"], found)) == ""
    topic, channel = {"topic": "orders"}, {"topic": "orders", "channel": "mail"}
    wanted = [
        ("/topic/create", topic), ("/topic/config", topic | {"max_depth": "5"}),
        ("/topic/pause", topic), ("/channel/create", channel),
        ("/channel/config", channel | {"max_attempts": "3"}),
    ]  # fmt: skip
    assert upstream.posted == [(node, *one) for one in wanted for node in ("a", "b")]


def of_node(address: str, *rows: dict[str, Any]) -> NodeState:
    producer = NsqdAddress("h", address.partition(":")[0], 1, 2, "1")
    return NodeState(address, producer, {"start_time": 1, "topics": list(rows)}, answered_s=1.0)


def test_exported_definitions_change_nothing_at_their_source() -> None:
    """On two nodes that differ in everything that they can differ in."""
    mail = MAIL | {"paused": True}
    on_a, on_b = ({"max_depth": depth, "max_age": "1h0m0s"} for depth in (5, 7))
    row = {"topic_name": "orders", "channels": [mail], "settings": on_a}
    more = {"topic_name": "only_b", "paused": True, "channels": [], "settings": on_b}
    below = [{"channel_name": "mail"}, {"channel_name": "b"}]
    other = {"topic_name": "orders", "channels": below, "settings": on_b}
    nodes = {"a:2": of_node("a:2", row), "b:2": of_node("b:2", other, more)}
    snapshot = make(1.0, nodes, (), (), Snapshot())
    upstream = answer()
    text = definitions.to_text(definitions.taken(snapshot)).decode()
    found = definitions.read(text)
    assert definitions.changes(snapshot, found, list(nodes)) == []
    only_b, orders = found.topics
    assert orders.settings == {"max_age": "1h0m0s"}
    assert orders.settings_on == {"a:2": {"max_depth": "5"}, "b:2": {"max_depth": "7"}}
    assert (orders.nodes, only_b.nodes, only_b.paused) == ([], ["b:2"], True)
    assert [(one.name, one.nodes, one.paused_on) for one in orders.channels] == [
        ("b", ["b:2"], []), ("mail", [], ["a:2"]),
    ]  # fmt: skip
    elsewhere = make(1.0, {"c:2": of_node("c:2")}, (), (), Snapshot())
    made = definitions.changes(elsewhere, found, ["c:2"])
    assert {one.topic for one in made if one.kind == "create"} == {"orders", "only_b"}
    chosen = definitions.changes(snapshot, found, ["a:2"])
    assert {(one.kind, one.topic, one.channel, one.nodes) for one in chosen} >= {
        ("create", "only_b", "", ("a:2",)), ("create", "orders", "b", ("a:2",)),
    }  # fmt: skip
    assert asyncio.run(definitions.put(upstream, ["a:2", "b:2"], found)) == ""
    assert ("b:2", "/topic/config", {"topic": "orders", "max_age": "1h0m0s", "max_depth": "7"}) in (
        upstream.posted
    )
    assert [one[0] for one in upstream.posted if one[2].get("topic") == "only_b"] == ["b:2"] * 3


def test_a_partial_export_is_refused() -> None:
    for changes, why in ({"error": "timed out"}, "timed"), ({"answered_s": 0.0}, "not answered"):
        nodes = {"a:2": of_node("a:2"), "b:2": replace(of_node("b:2"), **changes)}
        snapshot = make(1.0, nodes, (), (), Snapshot())
        with pytest.raises(NotComplete, match=f"b:2: .*{why}"):
            definitions.taken(snapshot)


def test_a_refused_setting_names_its_topic() -> None:
    found = definitions.read('{"version":1,"topics":[{"name":"t","settings":{"max_depth":"x"}}]}')
    refusal = DaemonRefused("a", "got response 400", 400, "INVALID_ARG_MAX_DEPTH 'x'")
    upstream = Saying(lambda address, path: refusal if path.endswith("/config") else {})
    with pytest.raises(SettingRefused, match=r"^t: INVALID_ARG_MAX_DEPTH 'x'"):
        asyncio.run(definitions.put(upstream, ["a"], found))


@each(
    ("text", "message"),
    [
        ("", "no definitions"),
        ("[]", "no definitions"),
        ('{"version":1}', "no definitions"),
        ('{"version":2,"topics":[]}', "version 2"),
        ('{"version":1,"topics":[{"name":"a","colour":"red"}]}', "colour"),
        ('{"version":1,"topics":[{"name":"a b"}]}', "topic 'a b' is no name"),
        ('{"version":1,"topics":[{"name":"a#ephemeral"}]}', "is no name"),
        ('{"version":1,"topics":[{"name":"a"},{"name":"a"}]}', "named twice"),
        ('{"version":1,"topics":[{"name":"a","channels":[{"name":"/"}]}]}', "channel of a '/'"),
        ('{"version":1,"topics":[{"name":"a","settings":{"colour":"red"}}]}', "'colour' is no"),
        ('{"version":1,"topics":[{"name":"a","settings":{"max_depth":5}}]}', "no definitions"),
    ],
)
def test_invalid_definitions(text: str, message: str) -> None:
    with pytest.raises(DefinitionsInvalid, match=message):
        definitions.read(text)
