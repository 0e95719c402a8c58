"""Secrets never get in."""

import json

import pytest

from cases import each
from penstock.nsqadmin.bundle.hiding import clean, clean_text, clean_words, without_secrets

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
    assert SECRET not in without_secrets("stacks.txt", text.encode()).decode()


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
    message = clean_words(words)
    assert SECRET not in message
    assert message.startswith("nsqd\n")


def test_redaction_of_long_garbage_is_linear() -> None:
    """A bad pattern needs hours for it."""
    for piece in ("a", "a-", "a.", "token", "token ", "a:", "a@", "/a", "1:", "x://", '"', "="):
        text = piece * ((1 << 15) // len(piece))
        clean_text(text)
        without_secrets("metrics.txt", text.encode())


def test_a_flag_without_a_secret_stays() -> None:
    words = ["nsqd", "--data-path=/d", "--tls-key=/etc/key.pem", "--http-address", "h:1"]
    assert clean_words(words).split("\n") == words


def test_secrets_in_a_document() -> None:
    document = {"auth_secret": SECRET, "tokens": [SECRET], "url": f"http://x/{SECRET}",
                "deep": [{"my_password": SECRET}], "tls_key": "/etc/key.pem",
                "health": f"NOK - token={SECRET}"}  # fmt: skip
    message = clean(document)
    assert SECRET not in json.dumps(message)
    assert message["tls_key"] == "/etc/key.pem"


def test_documents_that_no_fast_encoder_takes() -> None:
    for text in (
        '{"n": 123456789012345678901234567890, "token": "x"}',
        '{"h": "\\ud800", "token": "x"}',
    ):
        message = json.loads(without_secrets("info.json", text.encode()))
        assert message["token"] == "***"
    assert len(json.loads(without_secrets("info.json", b'{"n": 1e5, "x": NaN}'))) == 2


def test_a_topic_named_like_a_secret_is_shown() -> None:
    document = {"topics": [{"topic_name": "tokens", "depth": 3}], "token": {"depth": 3}}
    assert clean(document) == document
    metrics = 'nsqd_topic_depth{topic="secret",channel="token"} 5\n'
    assert without_secrets("metrics.txt", metrics.encode()).decode() == metrics


def test_secrets_in_false_metrics_are_hidden() -> None:
    text = f"# HELP x y\npassword={SECRET}\nup 1\n# token: {SECRET}\n"
    message = without_secrets("metrics.txt", text.encode()).decode()
    assert SECRET not in message
    assert message.startswith("# HELP x y\n")
    assert "\nup 1\n" in message
