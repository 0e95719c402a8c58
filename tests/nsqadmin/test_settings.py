"""Settings over several nodes: what holds, where they differ; a refusal changes nothing."""

import asyncio

import pytest

from penstock.errors import FetchFailed
from penstock.nsqadmin import settings
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.settings import SettingRefused, SettingValues
from penstock.nsqadmin.upstream import DaemonRefused, Upstream, UpstreamFailed

from .saying import Saying, nodes

TOPIC = {"topic": "t"}
CHANNEL = {"topic": "t", "channel": "ch"}


def read(
    upstream: Upstream, nodes: list[str], about: dict[str, str]
) -> tuple[list[SettingValues], list[str]]:
    return asyncio.run(settings.read(upstream, nodes, about))


def write(upstream: Upstream, nodes: list[str], **changes: str) -> str:
    return asyncio.run(settings.write(upstream, nodes, TOPIC, changes))


def test_effective_settings_and_their_source() -> None:
    same = {"max_depth": 0, "trace_rate": 0.5, "max_age": "0s"}
    upstream = nodes(
        a=same | {"own": ["trace_rate", "max_depth"]},
        b=same | {"own": ["trace_rate"], "max_age": "24h0m0s"},
    )
    held = {one.setting.name: one for one in read(upstream, ["a", "b"], TOPIC)[0]}
    assert (held["trace_rate"].chosen, held["trace_rate"].origin) == ("0.5", "chosen here")
    assert (held["max_depth"].chosen, held["max_depth"].origin) == ("", "chosen on a")
    assert (held["max_age"].shown, held["max_age"].origin) == ("", "differs: a 0s, b 24h0m0s")


def test_a_channel_has_its_own() -> None:
    upstream = nodes(a={"max_attempts": 5, "dead_letter_topic": "t.ch.dead", "trace_rate": 0.0,
                            "own": ["max_attempts"]})  # fmt: skip
    held, _ = read(upstream, ["a"], CHANNEL)
    assert [(one.setting.name, one.chosen, one.shown) for one in held] == [
        ("max_attempts", "5", "5"), ("dead_letter_topic", "", "t.ch.dead"), ("trace_rate", "", "0"),
        ("ack_retry_cnt", "", ""), ("ack_old_than_time", "", ""), ("order", "", ""),
        ("poison", "", ""),
    ]  # fmt: skip


def test_nodes_without_settings_are_named() -> None:
    upstream = nodes(
        down=FetchFailed("down", "refused"),
        official=DaemonRefused("official", "got response 404", 404, "NOT_FOUND"),
        gone=DaemonRefused("gone", "got response 404", 404, "TOPIC_NOT_FOUND"),
    )
    held, notes = read(upstream, ["down", "official", "gone"], TOPIC)
    assert held == []
    assert notes == [
        "down does not tell: refused", "official has no such settings",
        "gone does not tell: it has no such topic (404 TOPIC_NOT_FOUND)",
    ]  # fmt: skip


def test_a_change_goes_to_all_and_says_who_missed_it() -> None:
    upstream = nodes(a={}, b={})
    assert write(upstream, ["a", "b"], max_depth="5") == ""
    wanted = ("/topic/config", {"topic": "t", "max_depth": "5"})
    assert upstream.posted == [("a", *wanted), ("b", *wanted)]
    upstream = nodes(a={}, b=FetchFailed("b", "refused"), c={})
    assert write(upstream, ["a", "b", "c"], max_depth="5") == "WARNING: b: refused"
    with pytest.raises(UpstreamFailed):
        write(nodes(a={}, b=FetchFailed("b", "refused")), ["a", "b"], max_depth="5")


def test_a_refusal_of_the_first_node_changes_nothing() -> None:
    text = "INVALID_ARG_MAX_AGE '5': '5' is no duration"
    upstream = nodes(a=DaemonRefused("a", "got response 400", 400, text), b={})
    with pytest.raises(SettingRefused, match="'5' is no duration"):
        write(upstream, ["a", "b"], max_age="5")
    with pytest.raises(SettingRefused, match="no node"):
        write(upstream, [])
    assert upstream.posted == []


def test_settings_that_remove_messages_need_the_role() -> None:
    assert settings.roles_of(TOPIC, {"max_depth": "5", "trace_rate": "1"}) == Role.OPERATE
    assert settings.roles_of(TOPIC, {"max_depth": "5", "max_age": "1s"}) == Role.DESTROY
    assert settings.detail({"max_depth": "5", "max_age": ""}) == "max_depth=5, max_age=(default)"


def test_flags_are_shown_as_text() -> None:
    values = {"/config/msg_timeout": 90 * 10**9, "/config/max_msg_size": 1_048_576,
              "/config/max_rdy_count": 2500}  # fmt: skip
    refused = DaemonRefused("a", "got response 400", 400, "INVALID_OPTION")
    upstream = Saying(lambda address, path: values.get(path, refused))
    assert asyncio.run(settings.flags(upstream, "a")) == [
        ("Message timeout", "1m30s"), ("Largest message", "1,048,576 bytes"),
        ("Largest RDY", "2,500"),
    ]  # fmt: skip
