"""Definitions: what is refused before anything is changed, and that out and in is the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.nsqadmin import definitions
from penstock.nsqadmin.definitions import DefinitionsInvalid, Summary
from penstock.nsqadmin.settings import SettingRefused
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.upstream import DaemonRefused, Producer, Upstream

SNAPSHOT = Snapshot(
    1.0,
    {"a": NodeState("a", Producer("h", "a", 1, 2, "1"))},
    {
        name: TopicState(name, nodes=["a"], paused=name == "orders",
                         channels={"mail": ChannelState(name, "mail"),
                                   "x#ephemeral": ChannelState(name, "x#ephemeral")})
        for name in ("orders", "gone#ephemeral", "_trace")
    },
)  # fmt: skip
CONFIGS = {
    "/topic/config": {"max_depth": 5, "max_age": "0s", "own": ["max_depth"]},
    "/channel/config": {"max_attempts": 3, "own": ["max_attempts"]},
}


class _Upstream(Upstream):
    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.posted: list[tuple[str, str, dict[str, str]]] = []

    async def get(self, address: str, path: str, query: Any = None) -> Any:
        return CONFIGS[path]

    async def post(self, address: str, path: str, query: Any = None, body: bytes = b"") -> Any:
        if self.refusal and path.endswith("/config"):
            raise DaemonRefused(address, "got response 400", 400, self.refusal)
        self.posted.append((address, path, dict(query)))
        return {}


def test_out_and_in_is_the_same() -> None:
    upstream = _Upstream()
    text = definitions.to_text(asyncio.run(definitions.taken(upstream, SNAPSHOT))).decode()
    mail = {"name": "mail", "settings": {"max_attempts": "3"}}
    orders = {"name": "orders", "paused": True, "settings": {"max_depth": "5"}, "channels": [mail]}
    assert json.loads(text) == {"version": 1, "topics": [orders]}
    found = definitions.read(text)
    assert definitions.summary(found, SNAPSHOT) == Summary(1, 1, 0, 0)
    assert definitions.summary(found, Snapshot()) == Summary(1, 1, 1, 1)
    assert asyncio.run(definitions.put(upstream, ["a", "b"], found)) == ""
    topic, channel = {"topic": "orders"}, {"topic": "orders", "channel": "mail"}
    wanted = [
        ("/topic/create", topic), ("/topic/config", topic | {"max_depth": "5"}),
        ("/topic/pause", topic), ("/channel/create", channel),
        ("/channel/config", channel | {"max_attempts": "3"}),
    ]  # fmt: skip
    assert upstream.posted == [(node, *one) for one in wanted for node in ("a", "b")]


def test_a_refused_setting_names_its_topic() -> None:
    found = definitions.read('{"version":1,"topics":[{"name":"t","settings":{"max_depth":"x"}}]}')
    with pytest.raises(SettingRefused, match=r"^t: INVALID_ARG_MAX_DEPTH 'x'"):
        asyncio.run(definitions.put(_Upstream("INVALID_ARG_MAX_DEPTH 'x'"), ["a"], found))


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(DefinitionsInvalid, match=said):
        definitions.read(text)
