"""Authentication of clients with certificates, by auth servers with certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from e2e.certificates import Certificates
from e2e.v2upgraded import Upgraded
from penstock.errors import ConfigError
from penstock.nsqd.options import read_options
from penstock.nsqd.tls import client_context

from .authserver import AuthServer
from .world import Running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert, certificates.key)
    return context


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_common_name_is_passed_on_and_a_403_leads_to_https(
    tmp_path: Path, certificates: Certificates, method: str
) -> None:
    with (
        AuthServer(server_tls(certificates)) as secure,
        AuthServer(https_port=secure.port) as plain,
        Running(
            tmp_path / "data",
            *certificates.flags,
            f"--tls-root-ca-file={certificates.authority}",
            "--tls-client-auth-policy=require-verify",
            f"--auth-http-address={plain.address}",
            f"--auth-http-request-method={method}",
        ) as nsqd,
        Upgraded(nsqd.daemon.tcp_address.port, certificates.client("someone")) as client,
    ):
        client.command("AUTH", b"all")
        frame = client.frame()
        assert frame is not None
        assert frame.data.startswith(b'{"identity":"u"'), frame
        for server in (plain, secure):
            ((_, _, asked),) = server.asked
            assert (asked["common_name"], asked["tls"]) == (["someone"], ["true"])


def test_a_server_that_nobody_vouches_for_is_not_believed(
    tmp_path: Path, certificates: Certificates
) -> None:
    with (
        AuthServer(server_tls(certificates)) as secure,
        Running(tmp_path / "data", f"--auth-http-address=https://{secure.address}/auth") as nsqd,
        nsqd.client() as client,
    ):
        assert client.ask(b"AUTH\n\0\0\0\3all").data == b"E_AUTH_FAILED AUTH failed"
        assert secure.asked == []


def test_the_file_of_authorities(tmp_path: Path, certificates: Certificates) -> None:
    assert client_context(read_options([], {})) is None
    for path in (tmp_path / "none", certificates.key):
        options = read_options([f"--tls-root-ca-file={path}"], {})
        with pytest.raises(ConfigError, match="tls-root-ca-file"):
            client_context(options)
