"""The TLS flags: contexts, start errors, policies for clients, and what is locked without TLS."""

import http.client
import json
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cases import each
from e2e.certificates import Certificates
from e2e.v2client import Closed, V2Client, pub
from e2e.v2upgraded import Upgraded
from penstock.command.flags import UsageError
from penstock.errors import ConfigError
from penstock.net import tls as anycert
from penstock.nsqd import cluster
from penstock.nsqd.options import Options, read_options
from penstock.nsqd.tls import cipher_name, server_context, version_name

from .world import Running, eventually


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
    certificates: Certificates, caplog: pytest.LogCaptureFixture, wanted: str, given: ssl.TLSVersion
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.nsqd"):
        context = server_context(options(*certificates.flags, f"--tls-min-version={wanted}"))
    assert context is not None
    assert context.minimum_version == given
    assert len(caplog.records) == (wanted in ("tls1.0", "tls1.1"))


def test_unusable_files(certificates: Certificates, tmp_path: Path) -> None:
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


def test_an_encrypted_key_is_refused_without_a_prompt(
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
    files = ("cert", certificates.cert), ("key", locked), ("ca", certificates.cert)
    with pytest.raises(ConfigError, match="the key is encrypted"):
        cluster._peer_tls(options(*(f"--cluster-tls-{name}={path}" for name, path in files)))


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
def test_values_of_tls_required(flags: list[str], required: str) -> None:
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
    caplog: pytest.LogCaptureFixture,
) -> None:
    flags = [*certificates.flags, f"--tls-root-ca-file={certificates.authority}"]
    contexts = certificates.client(), certificates.client("joe"), certificates.stranger()
    for context in contexts:
        if version == "tls1.2":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    caplog.set_level("INFO")
    with running(tmp_path, *flags, f"--tls-client-auth-policy={policy}") as nsqd:
        found = [can_connect(nsqd, context) for context in contexts]
    assert found == [nobody, True, stranger]
    assert stranger or "CERTIFICATE_VERIFY_FAILED: unable to get local issuer" in caplog.text


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
            client.send(pub("plain", b"x"))
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


def test_https_serves_what_http_serves(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
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
        assert json.loads(web.getresponse().read())["message"] == "MSG_TOO_BIG"
        web.close()
        web.request("GET", "/ping", headers={"Connection": "close"})
        assert web.getresponse().read() == b"OK"
        web.close()
        caplog.set_level("INFO")
        plain = http.client.HTTPConnection("localhost", address.port, timeout=40)
        plain.request("GET", "/ping")
        assert plain.getresponse().read() == b"Client sent an HTTP request to an HTTPS server.\n"
        plain.close()
    assert "TLS handshake failed: [SSL: HTTP_REQUEST]" in caplog.text


# --- A real daemon and clients that go over to TLS ---


FORMS: dict[str, dict[str, Any]] = {
    "tls": {"tls": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "tls+snappy": {"tls": True, "snappy": True},
    "tls+deflate": {"tls": True, "deflate": True},
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Running]:
    flags = [*certificates.flags, "--durability=os", "--min-disk-free=0"]
    with Running(tmp_path_factory.mktemp("data") / "data", *flags) as running:
        yield running
        assert not running.daemon.broken
        assert running.call(lambda: len(running.daemon.protocol.sessions)) == 0


@pytest.fixture
def port(node: Running) -> Iterator[int]:
    yield node.daemon.tcp_address.port
    links = node.daemon.node.links
    eventually(lambda: not node.call(lambda: len(links.by_serial)))  # every socket is back


def connect(port: int, certificates: Certificates, form: dict[str, Any], **more: Any) -> Upgraded:
    rest = {name: value for name, value in form.items() if name != "tls"}
    return Upgraded(port, certificates.client() if "tls" in form else None, **rest, **more)


def row(node: Running, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = node.channel(topic, "c")["clients"][0]
    return found


# --- what works ---


@every_form
def test_publish_and_consume(
    node: Running, port: int, certificates: Certificates, form: dict[str, Any]
) -> None:
    topic = "life-" + "-".join(form)
    with connect(port, certificates, form) as client:
        for name in ("snappy", "deflate"):
            assert client.answer[name] == form.get(name, False)
        assert client.answer["tls_v1"] == form.get("tls", False)
        client.pub(topic, b"one")
        client.mpub(topic, [b"two", b"three"])
        client.dpub(topic, 1, b"four")
        client.sub(topic, "c")
        client.rdy(10)
        messages = client.messages(4)
        assert sorted(message.body for message in messages) == [b"four", b"one", b"three", b"two"]
        client.fin(*[message.id for message in messages])
        client.settle()
        seen = row(node, topic)
        assert (seen["snappy"], seen["deflate"]) == (client.answer["snappy"], "deflate" in form)
        assert (seen["finish_count"], seen["pub_counts"][0]["count"]) == (4, 4)
        if "tls" in form:
            assert seen["tls"]
            assert (seen["tls_version"], seen["tls_cipher_suite"][:8]) == ("TLS1.3", "TLS_AES_")
        else:
            assert (seen["tls"], seen["tls_version"], seen["tls_cipher_suite"]) == (False, "", "")


def test_early_bytes_are_read_after_the_upgrade(port: int) -> None:
    """It need not wait for the OK: the stream changes right behind IDENTIFY."""
    with V2Client(port) as client:
        early = Upgraded.encoded.__get__(_Snappy())(pub("early", b"x"))
        body = b'{"feature_negotiation":true,"snappy":true}'
        client.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body + early)
        assert b'"snappy":true' in client.response()
        encoded = bytes(client._buffer)
        while encoded.count(b"OK") < 2:  # of the switch, and of the message
            data = client.socket.recv(4096)
            assert data
            encoded += data


class _Snappy:
    _snappy = True


# --- what fails ---


def test_garbage_instead_of_a_handshake(port: int) -> None:
    with V2Client(port) as client:
        client.identify(tls_v1=True)
        client.send(b"PUB test\n\0\0\0\1x")
        data = b""
        while chunk := client.socket.recv(4096):
            data += chunk
        assert b"E_IDENTIFY_FAILED IDENTIFY failed " in data


def test_a_handshake_that_goes_to_sleep(
    port: int, node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.limits.TLS_HANDSHAKE_NS", 50_000_000)
    with V2Client(port) as client:
        client.identify(tls_v1=True)
        assert client.error() == b"E_IDENTIFY_FAILED IDENTIFY failed TLS handshake timeout"
        with pytest.raises(Closed):
            client.frame()


@every_form
def test_garbage_after_the_upgrade_ends_the_connection(
    port: int, certificates: Certificates, form: dict[str, Any]
) -> None:
    with connect(port, certificates, form) as client:
        topic = "garbage-" + "-".join(form)
        client.pub(topic, b"before it")
        if "snappy" in form or "deflate" in form:
            client.send_raw(b"\xff" * 100)
        else:
            plain = socket.socket(fileno=client.socket.detach())
            plain.sendall(b"no record" * 10)
            client.socket = plain
        assert client.is_closed()


def test_a_client_that_closes_tls_properly_gets_its_answers(
    port: int, certificates: Certificates
) -> None:
    with connect(port, certificates, FORMS["tls"]) as client:
        client.send(b"".join(pub("goodbye", b"%d" % number) for number in range(50)))
        with pytest.raises(ssl.SSLError, match=r"APPLICATION_DATA_AFTER_CLOSE_NOTIFY"):
            client.socket.unwrap()  # it hears answers where it wanted only a goodbye


def test_the_daemon_closes_tls_properly(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path / "data", *certificates.flags, "--min-disk-free=0") as node:
        clients = [
            connect(node.daemon.tcp_address.port, certificates, form) for form in FORMS.values()
        ]
        node.stop()
        for client in clients:
            client.socket.settimeout(40)
            assert client.socket.recv(100) == b""  # a close_notify, or SSLEOFError would be raised
            client.close()
