"""Which installation a verb works on.

What is written on the command line counts first, then the context that `--context` names, then
addresses in the environment, then the context in `PENSTOCK_CONTEXT`, then the selected one, then
the nsqd of this machine. Addresses on the command line replace those of a context; of a context
that nobody named they take nothing else either: its key is not shown to a stranger.
"""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.errors import ConfigError, PenstockError
from penstock.net.secretfile import first_secret
from penstock.tools import contexts
from penstock.tools.contexts import Context
from penstock.tools.verbs import WrongUse

DEFAULT_ADDRESS = "127.0.0.1:4151"
DEFAULT_TCP_ADDRESS = "127.0.0.1:4150"
NSQD_HTTP, NSQD_TCP, LOOKUPD_HTTP = (
    "nsqd_http_address", "nsqd_tcp_address", "lookupd_http_address",
)  # fmt: skip
HTTP = (NSQD_HTTP, LOOKUPD_HTTP)
TCP = (NSQD_TCP, LOOKUPD_HTTP, NSQD_HTTP)  # an nsqd tells its TCP port over HTTP
_FILES = ("tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify", "tls",
          "auth_secret_file", "auth_secret_env", "http_secret_file")  # fmt: skip
_SECRET_BYTES_MAX = 65536
SELECTED = "selected"


class Where(NamedTuple):
    context: Context  # what holds, wherever it was written
    name: str = ""  # of the context that it comes from
    origin: str = ""  # who chose that context

    def tls(self) -> ssl.SSLContext | None:
        """Raises ConfigError."""
        one = self.context
        skip = one.tls_insecure_skip_verify
        return from_files(one.tls_root_ca_file, one.tls_cert, one.tls_key, skip)

    def secret(self) -> str:
        """For AUTH. Raises PenstockError, and never shows it."""
        if self.context.auth_secret_env:
            found = os.environ.get(self.context.auth_secret_env, "")
            if not found:
                raise PenstockError(f"${self.context.auth_secret_env} is not set: AUTH's secret")
            return found
        if not self.context.auth_secret_file:
            return ""
        try:
            with open(self.context.auth_secret_file, "rb") as file:
                return file.read(_SECRET_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PenstockError(f"AUTH's secret cannot be read: {error}") from error

    def http_secret(self) -> str:
        """For changes over HTTP. Raises ConfigError, and never shows it."""
        return first_secret(self.context.http_secret_file, "http-secret-file")

    def lacks(self, *needed: str) -> PenstockError:
        wanted = " or ".join(needed)
        return PenstockError(f"context {self.name} has no {wanted}: penstock context save")


def add_context(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--context",
        metavar="NAME",
        help="an installation of penstock context list ($PENSTOCK_CONTEXT, or the selected one)",
    )


def add_files(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--tls-root-ca-file", metavar="FILE", help="authorities for TLS")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate to show")
    parser.add_argument("--tls-key", metavar="FILE", help="key of that certificate")
    parser.add_argument(
        "--tls-insecure-skip-verify", action="store_true", help="accept any certificate"
    )


def add_http_secret(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--http-secret-file",
        metavar="FILE",
        help="file that holds the secret for changes over HTTP, where nsqd has one",
    )


def add_auth(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--tls", action="store_true", help="upgrade TCP connections to TLS")
    parser.add_argument("--auth-secret-file", metavar="FILE", help="file that holds AUTH's secret")
    parser.add_argument(
        "--auth-secret-env", metavar="NAME", help="environment variable that holds it"
    )


def find(arguments: argparse.Namespace, kinds: Sequence[str] = HTTP) -> Where:
    """`kinds` are the addresses that the verb can use. Raises PenstockError."""
    given = {kind: tuple(getattr(arguments, kind, None) or ()) for kind in kinds}
    if all(given.get(kind) for kind in HTTP) and kinds == HTTP:
        raise WrongUse("give --nsqd-http-address or --lookupd-http-address, not both")
    files: dict[str, Any] = {
        name: getattr(arguments, name) for name in _FILES if getattr(arguments, name, None)
    }
    name, origin = getattr(arguments, "context", None) or "", "--context"
    if not name and not any(given.values()):
        given = {kind: from_environment(f"PENSTOCK_{kind.upper()}") for kind in kinds}
        if not any(given.values()):
            name, origin = chosen()
    base = contexts.load().get(name) if name else Context()
    addresses = given if any(given.values()) else {}
    return Where(msgspec.structs.replace(base, **addresses, **files), name, origin if name else "")


def chosen() -> tuple[str, str]:
    """The context that holds when nobody names one or gives an address: (name, who chose it)."""
    name = os.environ.get(contexts.VARIABLE, "")
    return (name, contexts.VARIABLE) if name else (contexts.load().selected, SELECTED)


def from_environment(name: str) -> tuple[str, ...]:
    """The members of a comma list."""
    return tuple(part.strip() for part in os.environ.get(name, "").split(",") if part.strip())


def announce(where: Where) -> None:
    """Before something is changed: where nobody typed an address it could be the wrong place."""
    if where.name:
        print(f"context {where.name} ({where.origin})", file=sys.stderr)


def tls_context(
    root_ca_file: str = "", cert: str = "", key: str = "", skip_verify: bool = False
) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) when a file cannot be used."""
    context = ssl.create_default_context(cafile=root_ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert or key:
        context.load_cert_chain(cert, key or None, _no_password)
    return context


def from_files(root_ca_file: str, cert: str, key: str, skip_verify: bool) -> ssl.SSLContext | None:
    """None: nothing was named, the system's authorities will do. Raises ConfigError."""
    if not (root_ca_file or cert or key or skip_verify):
        return None
    if bool(cert) != bool(key):
        raise ConfigError("--tls-cert", cert or key, "goes together with --tls-key")
    try:
        return tls_context(root_ca_file, cert, key, skip_verify)
    except OSError as error:
        shown = ", ".join(filter(None, (root_ca_file, cert, key)))
        raise ConfigError("TLS", shown, f"cannot be used: {error}") from error


def _no_password() -> str:
    raise ssl.SSLError("the key is encrypted; passphrases are not supported")
