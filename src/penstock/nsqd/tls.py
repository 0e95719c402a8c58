"""TLS according to nsqd's flags: contexts, requirements for clients, names for `/stats`.

A certificate and its key make TLS available; without them the other flags can only be an error.
`--tls-client-auth-policy` is `require` (a certificate, whoever signed it), `require-verify` (one
that chains to --tls-root-ca-file, or to the system's authorities without that) or empty (none is
asked for). Either policy implies --tls-required: nobody gets past it by staying in the clear.

TLS 1.0 and 1.1 are broken, and OpenSSL refuses them by now: the floor is TLS 1.2, whatever lower
version --tls-min-version names. The log says so once.

What follows an IDENTIFY that agreed on TLS or compression: the answer to it, a JSON object, still
goes out in the clear. Then, in this order:

1. TLS: the handshake, and `OK` over TLS. Only now does a connection of a daemon that requires TLS
   do anything but IDENTIFY.
2. snappy or deflate: the streams change, and `OK` comes compressed.

The client's connection stands still meanwhile: none of its commands is read before the last step
is done. An upgrade that fails is told in the clear, and is the end of the connection.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.net.link import Links, ServerLink
from penstock.net.tls import accept_any_certificate, no_password
from penstock.wire.frames import OK, FrameType, encode_frame
from penstock.wire.identify import compression

if TYPE_CHECKING:
    from penstock.nsqd.options import Options
    from penstock.nsqd.session import Session

log = logging.getLogger("penstock.nsqd")

_OK_FRAME = encode_frame(FrameType.RESPONSE, OK)


def server_context(options: Options) -> ssl.SSLContext | None:
    """None without a certificate. Raises ConfigError: the daemon must not start with less security
    than requested."""
    if not (options.tls_cert or options.tls_key):
        if options.tls_required != "false":
            rule = "cannot require TLS client connections without TLS key and cert"
            raise ConfigError("tls-required", options.tls_required, rule)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    is_newest = options.tls_min_version == "tls1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_newest else ssl.TLSVersion.TLSv1_2
    if options.tls_min_version in ("tls1.0", "tls1.1"):
        log.warning("tls-min-version: %s is not safe; using tls1.2", options.tls_min_version)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake costs us more than the client
    _load_certificate(context, options)
    if options.tls_root_ca_file:
        _load_authorities(context, options.tls_root_ca_file)
    elif options.tls_client_auth_policy == "require-verify":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if options.tls_client_auth_policy == "require-verify":
        context.verify_mode = ssl.CERT_REQUIRED
    elif options.tls_client_auth_policy == "require":
        accept_any_certificate(context)
    return context


def client_context(options: Options) -> ssl.SSLContext | None:
    """For requests to the https of others; None: the system's authorities. Raises ConfigError."""
    if not options.tls_root_ca_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authorities(context, options.tls_root_ca_file)
    return context


def new_contexts(
    options: Options, serves_tls: bool
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """For clients, and for our own requests. Raises ConfigError, and then the old ones stay."""
    server = server_context(options)
    if (server is not None) != serves_tls:
        rule = "TLS cannot be switched on or off while nsqd runs: restart it"
        raise ConfigError("tls-cert", options.tls_cert, rule)
    return server, client_context(options)


def _load_certificate(context: ssl.SSLContext, options: Options) -> None:
    for name, path in (("tls-cert", options.tls_cert), ("tls-key", options.tls_key)):
        _check_readable(name, path)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key, password=no_password)
    except (ssl.SSLError, ValueError) as error:
        rule = f"a PEM certificate, with the key that belongs to it ({error})"
        raise ConfigError("tls-cert", options.tls_cert, rule) from error


def _check_readable(name: str, path: str) -> None:
    if not path:
        raise ConfigError(name, path, "-tls-cert and -tls-key go together")
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(name, path, f"a readable PEM file ({error.strerror})") from error


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable("tls-root-ca-file", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        rule = f"a PEM file of certificates ({error})"
        raise ConfigError("tls-root-ca-file", path, rule) from error


# OpenSSL's names of TLS 1.2 suites and those of everyone else. TLS 1.3 has only one kind of name.
_STANDARD_NAMES = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}


def cipher_name(name: str) -> str:
    return _STANDARD_NAMES.get(name, name)


def version_name(name: str) -> str:
    """`TLSv1.3` as NSQ shows it."""
    return name.replace("TLSv", "TLS")


class Upgrades:
    def __init__(self, links: Links) -> None:
        self._links = links
        self.soon = links.soon
        self.context: ssl.SSLContext | None = None  # set when the daemon starts

    def start(self, session: Session, done: Callable[[str], None]) -> None:
        """`done` is called once, now or later, with why it failed, or with nothing. Not at all
        when the connection ends before."""
        if session.conn.ended:  # while its IDENTIFY was read
            return
        link = session.link = ServerLink(self._links, session.conn)

        def shaken(failure: str) -> None:
            if failure:
                link.open()
            else:
                session.conn.locked = False
                link.send(_OK_FRAME)
                self._compress(session, link)
            done(failure)

        if session.settings.tls and self.context is not None:
            link.secure(self.context, shaken)
        else:
            self._compress(session, link)
            done("")

    def _compress(self, session: Session, link: ServerLink) -> None:
        streams = compression(session.settings)
        if streams is not None:
            link.compress(*streams)
            link.send(_OK_FRAME)
        link.open()
