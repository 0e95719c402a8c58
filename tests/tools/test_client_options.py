from __future__ import annotations

import ssl

import pytest

from penstock.errors import ConfigError
from penstock.tools.client_options import consumer_changes, producer_changes


def test_their_names_and_our_values() -> None:
    given = [
        "max_in_flight,20",
        "max-attempts,0",
        "snappy",
        "msg_timeout,5s",
        "heartbeat_interval,1500",
        "lookupd_poll_jitter,0.5",
        "user_agent,a,b",
        "write_timeout,1s",
    ]
    assert consumer_changes(given) == {
        "max_in_flight": 20,
        "max_attempts": 0,
        "snappy": True,
        "message_timeout_s": 5.0,
        "heartbeat_s": 1.5,
        "lookup_jitter": 0.5,
        "user_agent": "a,b",
    }


def test_a_producer_leaves_out_what_is_for_consumers() -> None:
    assert producer_changes(["max_in_flight,20", "deflate,true"]) == {"deflate": True}


def test_tls() -> None:
    assert consumer_changes(["tls_v1,false"]) == {"tls": None}
    strict = consumer_changes(["tls_v1"])["tls"]
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert strict.minimum_version is ssl.TLSVersion.TLSv1_2
    lax = consumer_changes(["tls_v1", "tls_insecure_skip_verify,true"])["tls"]
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fly", "'fly' is not valid: is no option; there are auth_secret, "),
        ("snappy,perhaps", "'snappy,perhaps' is not valid: must be true or false"),
        ("max_in_flight,many", "must be a whole number"),
        ("msg_timeout,soon", "no duration"),
        ("tls_v1,perhaps", "must be true or false"),
        ("tls_root_ca_file,/nowhere", ""),
    ],
)
def test_what_is_wrong_is_named(given: str, said: str) -> None:
    options = [given, "tls_v1"] if given.startswith("tls_root") else [given]
    with pytest.raises(ConfigError) as caught:
        consumer_changes(options)
    assert said in str(caught.value)
