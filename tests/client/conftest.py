"""A certificate of our own, made once."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    certificate: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    place = tmp_path_factory.mktemp("tls")
    made = Certificate(place / "certificate.pem", place / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-out", str(made.certificate), "-keyout", str(made.key)]
    subprocess.run(command, check=True, capture_output=True)
    return made
