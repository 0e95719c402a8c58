"""Secrets never get in, and names are replaced everywhere, the same by the same."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, examples
from penstock.nsqadmin.bundle.form import Kind
from penstock.nsqadmin.bundle.hiding import Names, clean, clean_text, clean_words, without_secrets

SECRET = "hunter2-Geheim"


@each(
    "text",
    [
        f"http://ann:{SECRET}@host:1/x",
        f"http://host/{SECRET}",
        f"http://host?access={SECRET}",
        f"https://host:1/a/b?k={SECRET}#x",
        f"http://host#{SECRET}",
        f"ann:{SECRET}@host:1",
        f"--auth-secret={SECRET}",
        f"password: {SECRET}",
        f'"client_token": "{SECRET}"',
        f"API-Key={SECRET}, more",
        f"Authorization={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"access_key={SECRET}",
    ],
)
def test_secrets_in_text(text: str) -> None:
    assert SECRET not in clean_text(text)
    assert SECRET not in without_secrets(Kind.TEXT, text.encode()).decode()


@pytest.mark.parametrize(
    "words",
    [
        ["nsqd", f"--oidc-secret={SECRET}"],
        ["nsqd", "-auth-token", SECRET],
        ["nsqd", f"--consumer-opt=auth_secret,{SECRET}"],
        ["nsqd", f"--auth-http-address=http://u:{SECRET}@h/p", "--data-path=/d"],
    ],
)
def test_secrets_in_a_command_line(words: list[str]) -> None:
    said = clean_words(words)
    assert SECRET not in said
    assert said.startswith("nsqd\n")


def test_long_nonsense_keeps_nobody_busy() -> None:
    """A bad pattern needs hours for it."""
    names = Names()
    names.of("topic", "a-b")
    for piece in ("a", "a-", "a.", "token", "token ", "a:", "a@", "/a", "1:", "x://", '"', "="):
        text = piece * ((1 << 15) // len(piece))
        clean_text(text)
        names.text(text)
        without_secrets(Kind.METRICS, text.encode())


def test_a_flag_without_a_secret_stays() -> None:
    words = ["nsqd", "--data-path=/d", "--tls-key=/etc/key.pem", "--http-address", "h:1"]
    assert clean_words(words).split("\n") == words


def test_secrets_in_a_document() -> None:
    document = {"auth_secret": SECRET, "tokens": [SECRET], "url": f"http://x/{SECRET}",
                "deep": [{"my_password": SECRET}], "tls_key": "/etc/key.pem",
                "health": f"NOK - token={SECRET}"}  # fmt: skip
    said = clean(document)
    assert SECRET not in json.dumps(said)
    assert said["tls_key"] == "/etc/key.pem"


def test_documents_that_no_fast_encoder_takes() -> None:
    for text in (
        '{"n": 123456789012345678901234567890, "token": "x"}',
        '{"h": "\\ud800", "token": "x"}',
    ):
        said = json.loads(without_secrets(Kind.JSON, text.encode()))
        assert said["token"] == "***"
    assert len(json.loads(without_secrets(Kind.JSON, b'{"n": 1e5, "x": NaN}'))) == 2


def test_a_topic_that_is_called_like_a_secret_is_none() -> None:
    document = {"topics": [{"topic_name": "tokens", "depth": 3}], "token": {"depth": 3}}
    assert clean(document) == document
    metrics = 'nsqd_topic_depth{topic="secret",channel="token"} 5\n'
    assert without_secrets(Kind.METRICS, metrics.encode()).decode() == metrics


def test_what_calls_itself_metrics_and_is_none() -> None:
    text = f"# HELP x y\npassword={SECRET}\nup 1\n# token: {SECRET}\n"
    said = without_secrets(Kind.METRICS, text.encode()).decode()
    assert SECRET not in said
    assert said.startswith("# HELP x y\n")
    assert "\nup 1\n" in said
    names = Names()
    names.of("topic", "orders")
    assert names.metrics('up 1\nx{topic="orders",le="+Inf"} 5\norders are late') == (
        'up 1\nx{topic="topic-1",le="+Inf"} 5\ntopic-1 are late'
    )


def test_an_answer_that_is_no_json_is_searched_as_text() -> None:
    assert SECRET not in without_secrets(Kind.JSON, f"password={SECRET}".encode()).decode()


# --- names ---

NAME = st.from_regex(r"[a-zA-Z0-9_.-]{4,20}(#ephemeral)?", fullmatch=True).filter(
    lambda name: name.strip(".-_") and not _is_ours(name)
)
FREE = st.text(min_size=4, max_size=20).filter(lambda name: not _is_ours(name))
# What a document without any name of others holds: these words may be in it, whatever it is of.
_OURS = json.dumps({
    "topics": [{"topic_name": "topic-", "channels": [{"channel_name": "channel-", "depth": 1}]}],
    "clients": [{"client_id": "client-", "hostname": "host-", "remote_address": "host-:4150"}],
    "health": "NOK - : disk full, /.../x.log", "#ephemeral": "value- path- zone- region-",
})  # fmt: skip


def _is_ours(name: str) -> bool:
    """A name that is part of the words around it would be found there."""
    return name in _OURS or bool(re.fullmatch(r"[\d.]+|(topic|channel|client|host)-\d+", name))


def document(topic: str, channel: str, client: str, host: str) -> dict[str, Any]:
    return {
        "topics": [{"topic_name": topic, "channels": [{"channel_name": channel, "depth": 1}]}],
        "clients": [{"client_id": client, "hostname": host, "remote_address": f"{host}:4150"}],
        "health": f"NOK - {topic}: disk full, /srv/{host}/{topic}/x.log",
    }


@settings(max_examples=examples(100), deadline=None)
@given(topic=NAME, channel=NAME, client=FREE, host=NAME)
def test_no_name_is_left_and_each_stays_itself(
    topic: str, channel: str, client: str, host: str
) -> None:
    names = Names()
    first = json.loads(_hidden(names, document(topic, channel, client, host)))
    text = json.dumps(first, ensure_ascii=False)
    metrics = names.metrics(f'depth{{topic="{topic}",channel="{channel}"}} 5')
    shown = first["topics"][0]
    for name in (topic, channel, client, host):
        assert name not in text
    assert f'topic="{shown["topic_name"]}"' in metrics
    assert f'channel="{shown["channels"][0]["channel_name"]}"' in metrics
    assert first["clients"][0]["remote_address"] == f"{first['clients'][0]['hostname']}:4150"
    assert topic.endswith("#ephemeral") == shown["topic_name"].endswith("#ephemeral")
    assert json.loads(_hidden(names, document(topic, channel, client, host))) == first  # stays


def _hidden(names: Names, document: dict[str, Any]) -> str:
    names.document(document)
    found = names.hide(Kind.JSON, json.dumps(document).encode())
    assert found is not None
    return found.decode()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(NAME, unique=True, max_size=30))
def test_different_names_stay_different(found: list[str]) -> None:
    names = Names()
    assert len({names.of("topic", one) for one in found}) == len(found)


def test_names_in_text_at_any_place() -> None:
    names = Names()
    for topic in ("orders", "orders.eu", "a-b", "Anna's topic"):
        names.of("topic", topic)
    text = "orders, (orders.eu) orders.us a-b: topic:orders/a-b; Anna's topic. reorders"
    assert names.text(text) == (
        "topic-1, (topic-2) topic-1.us topic-3: topic:topic-1/topic-3; topic-4. reorders"
    )


def test_addresses_and_directories_that_nobody_has_named() -> None:
    names = Names()
    text = names.text("10.1.2.3:4150 and fe80::1 at /home/ann/venv/lib/x.py, 127.0.0.1:1 ::1 12:30")
    assert text == "host-2:4150 and host-1 at /.../x.py, 127.0.0.1:1 ::1 12:30"
    assert names.address("10.1.2.3:99") == "host-2:99"


def test_hosts_of_urls_and_names_of_clients() -> None:
    names = Names()
    assert (
        names.text("see https://auth.acme.example:80/*** twice")
        == "see https://host-1:80/*** twice"
    )
    config = {"auth_http_addresses": ["http://auth.acme.example:80", "http://[fe80::1]:1"]}
    assert names.config(config) == {"auth_http_addresses": ["http://host-1:80", "http://host-2:1"]}
    agents = [{"user_agent": one} for one in ("go-nsq/1.1.0", "acme-billing/2", "acme-billing/2")]
    shown = [one["user_agent"] for one in names.document(agents)]
    assert shown == ["go-nsq/1.1.0", "agent-1", "agent-1"]


def test_registrations_of_nsqlookupd() -> None:
    found = Names().document({"channel:orders:billing": [], "client::": [], "topic:orders:": []})
    assert list(found) == ["channel:topic-1:channel-1", "client::", "topic:topic-1:"]


def test_what_has_to_stay_for_the_rules() -> None:
    names = Names()
    held = {"health": "OK", "topic_name": "_trace", "durability": "disk", "depth": 3}
    assert names.document(held) == held
    config = {"durability": "os", "broadcast_address": "till-7", "log_prefix": "[ann] ", "id": 4}
    assert names.config(config) == {
        "durability": "os", "broadcast_address": "host-1", "log_prefix": "value-1", "id": 4,
    }  # fmt: skip


def test_a_file_that_is_no_text_is_left_out() -> None:
    assert Names().hide(Kind.BINARY, b"\x1f\x8b...") is None
