"""The TLS flags: contexts, start errors, policies for clients, and what is locked without TLS."""

from __future__ import annotations

import http.client
import json
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cases import each
from e2e.certificates import Certificates
from e2e.v2client import Closed, V2Client, pub_bytes
from e2e.v2upgraded import Upgraded
from penstock.command.flags import UsageError
from penstock.errors import ConfigError
from penstock.net import anycert
from penstock.nsqd.options import Options, read_options
from penstock.nsqd.tls import cipher_name, server_context, version_name

from .world import Running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def running(tmp_path: Path, *flags: str) -> Iterator[Running]:
    with Running(tmp_path / "data", "--min-disk-free=0", *flags) as nsqd:
        yield nsqd


def options(*flags: str) -> Options:
    return read_options(flags, {})


# --- contexts ---


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("", ssl.TLSVersion.TLSv1_2),
        ("tls1.0", ssl.TLSVersion.TLSv1_2),
        ("tls1.1", ssl.TLSVersion.TLSv1_2),
        ("tls1.2", ssl.TLSVersion.TLSv1_2),
        ("tls1.3", ssl.TLSVersion.TLSv1_3),
    ],
)
def test_the_lowest_version(
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    wanted: str,
    given: ssl.TLSVersion,
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.nsqd"):
        context = server_context(options(*certificates.flags, f"--tls-min-version={wanted}"))
    assert context is not None
    assert context.minimum_version == given
    assert len(caplog.records) == (wanted in ("tls1.0", "tls1.1"))


def test_files_that_do_not_serve(certificates: Certificates, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    key, cert = f"--tls-key={certificates.key}", f"--tls-cert={certificates.cert}"
    for flags, name in (
        ([cert], "tls-key"),
        ([key], "tls-cert"),
        ([key, "--tls-cert=/no/such"], "tls-cert"),
        ([cert, "--tls-key=/no/such"], "tls-key"),
        ([key, f"--tls-cert={rubbish}"], "tls-cert"),
        ([key, cert, f"--tls-root-ca-file={rubbish}"], "tls-root-ca-file"),
        ([key, cert, "--tls-root-ca-file=/no/such"], "tls-root-ca-file"),
    ):
        with pytest.raises(ConfigError) as caught:
            server_context(options(*flags))
        assert caught.value.name == name


def test_an_encrypted_key_is_refused_and_nobody_is_asked(
    certificates: Certificates, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(certificates.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="the key is encrypted"):
        server_context(options(f"--tls-cert={certificates.cert}", f"--tls-key={locked}"))


@each(
    ("flags", "required"),
    [
        ([], "false"),
        (["--tls-required"], "true"),
        (["--tls-required=1"], "true"),
        (["--tls-required=0"], "false"),
        (["--tls-required=tcp-https"], "tcp-https"),
        (["--tls-client-auth-policy=require"], "true"),
        (["--tls-client-auth-policy=require-verify"], "true"),
        (["--tls-client-auth-policy=require", "--tls-required=false"], "true"),
        (["--tls-client-auth-policy=require-verify", "--tls-required=0"], "true"),
        (["--tls-client-auth-policy=require", "--tls-required=tcp-https"], "tcp-https"),
    ],
)
def test_what_is_required(flags: list[str], required: str) -> None:
    assert options(*flags).tls_required == required


def test_names_as_everybody_else_has_them() -> None:
    assert version_name("TLSv1.3") == "TLS1.3"
    assert cipher_name("TLS_AES_128_GCM_SHA256") == "TLS_AES_128_GCM_SHA256"
    assert cipher_name("ECDHE-RSA-AES128-GCM-SHA256") == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


# --- client certificates ---


def can_connect(nsqd: Running, context: ssl.SSLContext) -> bool:
    """To the V2 port and to HTTPS alike."""
    address = nsqd.daemon.https_address
    web = http.client.HTTPSConnection("localhost", address.port, timeout=40, context=context)
    try:
        with Upgraded(nsqd.daemon.tcp_address.port, context) as client:
            client.pub("policy", b"x")
        v2 = True
    except (Closed, OSError):
        v2 = False
    try:
        web.request("GET", "/ping")
        https = web.getresponse().read() == b"OK"
    except OSError:
        https = False
    finally:
        web.close()
    assert v2 == https
    return v2


@pytest.mark.parametrize("version", ["tls1.2", "tls1.3"])
@pytest.mark.parametrize(
    ("policy", "nobody", "stranger"),
    [("", True, True), ("require", False, True), ("require-verify", False, False)],
)
def test_policies(
    tmp_path: Path,
    certificates: Certificates,
    policy: str,
    nobody: bool,
    stranger: bool,
    version: str,
) -> None:
    flags = [
        *certificates.flags,
        f"--tls-client-auth-policy={policy}",
        f"--tls-root-ca-file={certificates.authority}",
    ]
    contexts = certificates.client(), certificates.client("joe"), certificates.stranger()
    for context in contexts:
        if version == "tls1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    with running(tmp_path, *flags) as nsqd:
        found = [can_connect(nsqd, context) for context in contexts]
    assert found == [nobody, True, stranger]


def test_the_name_in_a_certificate(tmp_path: Path, certificates: Certificates) -> None:
    flags = [*certificates.flags, "--tls-client-auth-policy=require"]
    with running(tmp_path, *flags) as nsqd:
        port = nsqd.daemon.tcp_address.port
        sessions = nsqd.daemon.protocol.sessions
        for context, name in (
            (certificates.client("joe"), "joe"),
            (certificates.stranger(), "stranger"),
        ):
            with Upgraded(port, context) as client:
                client.pub("named", b"x")
                assert nsqd.call(lambda: list(sessions.values())[-1].common_name) == name
                client.command("NONSENSE")
                assert client.is_closed()


def test_any_certificate_is_not_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    anycert.accept_any_certificate(context)
    assert context.verify_mode is ssl.CERT_REQUIRED
    monkeypatch.setattr("sys.implementation.name", "other")
    with pytest.raises(ConfigError, match="use require-verify"):
        anycert.accept_any_certificate(context)


# --- required ---


@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_a_policy_leaves_nobody_in_the_clear(
    tmp_path: Path, certificates: Certificates, policy: str
) -> None:
    flags = [*certificates.flags, f"--tls-client-auth-policy={policy}", "--tls-required=false"]
    with running(tmp_path, *flags, f"--tls-root-ca-file={certificates.authority}") as nsqd:
        with V2Client(nsqd.daemon.tcp_address.port) as client:
            client.identify()
            client.send(pub_bytes("plain", b"x"))
            assert client.error() == b"E_INVALID cannot PUB in current state (TLS required)"
        assert nsqd.request("POST", "/pub?topic=plain", b"x").status == 403
        assert "plain" not in nsqd.daemon.broker.topics


@pytest.mark.parametrize("policy", ["require_verify", "requireverify", "none", "true"])
def test_a_misspelt_policy_is_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="one of '', require, require-verify"):
        options(f"--tls-client-auth-policy={policy}")
    with pytest.raises(ConfigError, match="require-verify") as caught:
        read_options([], {"PENSTOCK_TLS_CLIENT_AUTH_POLICY": policy})
    assert caught.value.value == policy


def test_plain_http_says_where_to_go(tmp_path: Path, certificates: Certificates) -> None:
    with running(tmp_path, *certificates.flags, "--tls-required") as nsqd:
        https = nsqd.daemon.https_address.port
        for method, path in (("GET", "/ping"), ("POST", "/pub?topic=x"), ("GET", "/nonsense")):
            answer = nsqd.request(method, path, b"body" if method == "POST" else b"")
            assert answer.status == 403
            assert answer.body == b'{"message": "TLS_REQUIRED", "https_port": %d}' % https
            assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
            assert answer.headers["Content-Type"] == "application/json; charset=utf-8"


# --- HTTPS ---


def test_https_serves_what_http_serves(tmp_path: Path, certificates: Certificates) -> None:
    with running(tmp_path, *certificates.flags) as nsqd:
        address = nsqd.daemon.https_address
        web = http.client.HTTPSConnection(
            "localhost", address.port, timeout=40, context=certificates.client()
        )
        body = b"x" * 1_000_000
        for _ in range(3):
            web.request("POST", "/pub?topic=https", body)
            assert web.getresponse().read() == b"OK"
        web.request("GET", "/stats?format=json")
        found = json.loads(web.getresponse().read())
        assert found["topics"][0]["message_count"] == 3
        web.request("POST", "/pub?topic=https", b"x" * 2_000_000)
        assert web.getresponse().read() == b'{"message":"MSG_TOO_BIG"}'
        web.close()
        web.request("GET", "/ping", headers={"Connection": "close"})
        assert web.getresponse().read() == b"OK"
        web.close()


def test_an_empty_address_means_no_https(tmp_path: Path, certificates: Certificates) -> None:
    with running(tmp_path, *certificates.flags, "--https-address=") as nsqd:
        assert nsqd.daemon.https_address.port == 0
