"""TLS as a client of nsqd and nsqlookupd, from the files that an operator names."""

from __future__ import annotations

import ssl

from penstock.errors import ConfigError


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
