"""Which installation a verb works on, when several things say so."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from e2e.certificates import Certificates
from penstock.errors import ConfigError, PenstockError
from penstock.tools import connection, contexts
from penstock.tools.connection import Where
from penstock.tools.contexts import Context, ContextTrouble
from penstock.tools.utility import consumer_changes, producer_changes


@pytest.fixture(autouse=True)
def kept(no_contexts: None) -> None:
    with contexts.changed() as found:
        found.put("one", Context(nsqd_http_address=("one:1",), tls_root_ca_file="/one.pem"))
        found.put("two", Context(nsqd_http_address=("two:1", "two:2"), nsqd_tcp_address=("two:3",)))
        found.put("tcp", Context(nsqd_tcp_address=("tcp:3",)))


def found(kinds: tuple[str, ...] = connection.HTTP, **given: Any) -> Where:
    return connection.find(given, kinds)


def test_the_order_of_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found().addresses() == ["127.0.0.1:4151"]
    with contexts.changed() as kept:
        kept.select("one")
    assert found()[1:] == ("one", "selected")
    monkeypatch.setenv("PENSTOCK_CONTEXT", "two")
    assert found()[1:] == ("two", "PENSTOCK_CONTEXT")
    assert found().addresses() == ["two:1", "two:2"]
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "env:1, env:2")
    assert found() == Where(Context(nsqd_http_address=("env:1", "env:2")))
    assert found(context="one")[1:] == ("one", "--context")
    given = found(nsqd_http_address=["given:1"])
    assert given == Where(Context(nsqd_http_address=("given:1",)))


def test_a_corrupt_file_does_not_lead_to_this_machine() -> None:
    contexts.path().write_text("x")
    with pytest.raises(ContextTrouble, match="is corrupt"):
        found()
    assert found(nsqd_http_address=["given:1"]).context.nsqd_http_address == ("given:1",)


def test_a_context_without_such_an_address() -> None:
    with pytest.raises(PenstockError, match="context tcp has no nsqd_http_address or lookupd"):
        found(context="tcp").addresses()
    assert found(connection.TCP, context="tcp").context.nsqd_tcp_address == ("tcp:3",)


def test_a_secret_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    assert Where(Context(auth_secret_file=str(tmp_path / "secret"))).secret() == "from a file"
    in_variable = Where(Context(auth_secret_env="THE_SECRET"))
    with pytest.raises(PenstockError, match=r"\$THE_SECRET is not set"):
        in_variable.secret()
    monkeypatch.setenv("THE_SECRET", "from a variable")
    assert in_variable.secret() == "from a variable"
    with pytest.raises(PenstockError, match="secret cannot be read"):
        Where(Context(auth_secret_file=str(tmp_path / "gone"))).secret()
    assert Where(Context()).secret() == ""


def test_files_for_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "tls")
    assert Where(Context()).tls() is None
    assert Where(Context(tls_root_ca_file=str(certificates.authority))).tls() is not None
    with pytest.raises(ConfigError, match=r"/one.pem.* cannot be used"):
        found(context="one").tls()
    with pytest.raises(ConfigError, match="goes together with --tls-key"):
        found(nsqd_http_address=["a:1"], tls_cert="c").tls()


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
    ("given", "output"),
    [
        ("fly", "'fly' is not valid: is no option; there are auth_secret, "),
        ("snappy,perhaps", "'snappy,perhaps' is not valid: must be true or false"),
        ("max_in_flight,many", "must be a whole number"),
        ("msg_timeout,soon", "no duration"),
        ("tls_v1,perhaps", "must be true or false"),
        ("tls_root_ca_file,/nowhere", ""),
    ],
)
def test_invalid_options_are_named(given: str, output: str) -> None:
    options = [given, "tls_v1"] if given.startswith("tls_root") else [given]
    with pytest.raises(ConfigError) as caught:
        consumer_changes(options)
    assert output in str(caught.value)
