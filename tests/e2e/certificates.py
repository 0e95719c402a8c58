"""Certificates for one test: an authority, a server called localhost, clients, a stranger."""

import ssl
from pathlib import Path

import trustme


class Certificates:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA()
        self.cert = directory / "server.pem"
        self.key = directory / "server.key"
        self.authority = directory / "authority.pem"
        server = self._authority.issue_cert("localhost", "127.0.0.1")
        server.private_key_pem.write_to_path(self.key)
        server.cert_chain_pems[0].write_to_path(self.cert)
        self._authority.cert_pem.write_to_path(self.authority)

    @property
    def flags(self) -> list[str]:
        return [f"--tls-cert={self.cert}", f"--tls-key={self.key}", "--https-address=127.0.0.1:0"]

    def server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.cert, self.key)
        return context

    def client_files(self, name: str = "client") -> tuple[Path, Path]:
        """Certificate and key of a client that the authority vouches for."""
        cert = self._authority.issue_cert(common_name=name)
        paths = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.cert_chain_pems[0].write_to_path(paths[0])
        cert.private_key_pem.write_to_path(paths[1])
        return paths

    def client(self, name: str = "") -> ssl.SSLContext:
        """A client that knows the authority; with a name it has a certificate too."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if name:
            context.load_cert_chain(*self.client_files(name))
        return context

    def stranger(self) -> ssl.SSLContext:
        """A client with a certificate that nobody knows."""
        context = self.client()
        trustme.CA().issue_cert(common_name="stranger").configure_cert(context)
        return context
