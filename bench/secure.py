"""Penstock once more, with its clients behind TLS or compression: beside the plain one."""

from dataclasses import replace
from pathlib import Path

from bench.daemon import Contender
from bench.dialect import DaemonFailed

FORMS = ("tls", "snappy", "deflate", "tls+snappy", "tls+deflate")


def encoded(plain: Contender, form: str, directory: Path) -> Contender:
    """The same daemon, whose clients use one of FORMS."""
    parts = form.split("+")
    relay = tuple(f"--{part}" for part in parts if part != "tls")
    command = plain.command
    if "tls" in parts:
        cert, key, authority = certificate(directory)
        command += (f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=")
        relay += (f"--ca={authority}",)
    return replace(plain, name=f"{plain.name}-{form}", command=command, relay=relay)


def certificate(directory: Path) -> tuple[Path, Path, Path]:
    """Certificate, key and authority, made once for a run."""
    try:
        import trustme
    except ImportError as error:
        raise DaemonFailed("--form tls needs trustme: install penstock[bench]") from error
    paths = directory / "server.pem", directory / "server.key", directory / "authority.pem"
    if not paths[0].exists():
        authority = trustme.CA()
        server = authority.issue_cert("localhost")
        server.cert_chain_pems[0].write_to_path(paths[0])
        server.private_key_pem.write_to_path(paths[1])
        authority.cert_pem.write_to_path(paths[2])
    return paths
