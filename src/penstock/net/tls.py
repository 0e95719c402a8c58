"""TLS without I/O: one side of one connection, bytes in and bytes out.

OpenSSL stands between two buffers in memory. What arrives is fed, plain bytes are read out in
large pieces (OpenSSL gives one record of 16 KiB at a time), and what is to be sent is encoded
whole. A peer that hangs up without saying so in TLS is treated as one that did: V2 has lengths, so
nothing can be cut off unnoticed.
"""

from __future__ import annotations

import ctypes
import ssl
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer


_RECORD_BYTES = 16384


class Tls:
    def __init__(self, context: ssl.SSLContext, server_side: bool = True) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self.ended = False  # the peer has said that it sends no more

    # --- bytes ---

    def feed(self, data: Buffer) -> None:
        self._incoming.write(data)

    def shake(self) -> bool:
        """Go on with the handshake; True when it is done. Raises ssl.SSLError."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def has_input(self) -> bool:
        """Is there unread input?"""
        return bool(self._incoming.pending or self._object.pending())

    def read_into(self, view: memoryview) -> int:
        """Plain bytes, as many as there are or as fit. Raises ssl.SSLError."""
        size, size_max = 0, len(view)
        read = self._object.read
        while size < size_max and self.has_input and not self.ended:
            try:
                count = read(_RECORD_BYTES, view[size:])
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.ended = True
                break
            if not count:  # how Python mostly gives the peer's farewell
                self.ended = True
                break
            size += count  # type: ignore[operator]
        return size

    def encode(self, data: bytes) -> bytes:
        """`data` as records, behind TLS's own messages."""
        done = self._object.write(data)
        while done < len(data):
            done += self._object.write(memoryview(data)[done:])
        return self._outgoing.read()

    def output(self) -> bytes:
        """TLS's own messages: the handshake, an alert, a new key."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def close(self) -> bytes:
        """Say that nothing more will be sent."""
        with suppress(ssl.SSLError):  # the peer has yet to say the same, or has broken off
            self._object.unwrap()
        return self.output()

    # --- the negotiated result ---

    @property
    def version(self) -> str:
        """Like `TLSv1.3`; empty before the handshake."""
        return self._object.version() or ""

    @property
    def cipher(self) -> str:
        found = self._object.cipher()
        return found[0] if found else ""

    @property
    def common_name(self) -> str:
        """The common name of the client's certificate, if it has shown one."""
        subject = (self._object.getpeercert() or {}).get("subject", ())
        for parts in subject:
            for name, value in parts:  # type: ignore[str-unpack]
                if name == "commonName":
                    return str(value)
        return ""


class TlsFiles(NamedTuple):
    """Of who asks daemons: authorities, certificate and key; "": the system's, and none."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    skip_verify: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError is one) when a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert or self.key:
            context.load_cert_chain(self.cert, self.key or None, no_password)
        return context


def http_client_tls(files: TlsFiles) -> ssl.SSLContext | None:
    """Of the options http-client-tls-…; None: none is given. ConfigError names the wrong one."""
    if not any(files):
        return None
    authorities = "http-client-tls-root-ca-file", files.ca, files._replace(cert="", key="")
    for name, value, tried in (authorities, ("http-client-tls-cert", files.cert, files)):
        try:
            context = tried.context()
        except OSError as error:
            raise ConfigError(name, value, str(error)) from error
    return context


def no_password() -> str:
    """For `load_cert_chain`: OpenSSL would prompt on the terminal."""
    raise ssl.SSLError("the key is encrypted; passphrases are not supported")


_VERIFY_PEER_OR_FAIL = 0x01 | 0x02
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


# The object has to live as long as any context that calls it.
_accept = _CALLBACK(lambda verified, store: 1)


def accept_any_certificate(context: ssl.SSLContext) -> None:
    """Make a TLS server insist on a client certificate, and take any. Raises ConfigError where that
    cannot be arranged.

    NSQ's policy `require` is that: the certificate proves nothing by itself, but its name goes to
    the authentication server, and the client has to hold its key. Python's `ssl` can demand a
    certificate only together with verifying it, and offers no place for another verdict, though
    OpenSSL does. So OpenSSL's `SSL_CTX_set_verify` is called here, in the library that the
    interpreter is already bound to, on the context inside Python's own object.

    That reaches past a public interface, so it is checked first: the word that should be the
    context's address has to answer with the verify mode that was set through the front door in this
    moment, for each of two modes, and the callback has to be there afterwards. Where that fails
    (another implementation of Python, a library without visible symbols) the daemon refuses to
    start.
    """
    try:
        _set_callback(context)
    except (AttributeError, OSError, ImportError) as error:
        rule = f"this Python cannot take unverified certificates ({error}); use require-verify"
        raise ConfigError("tls-client-auth-policy", "require", rule) from error


def _set_callback(context: ssl.SSLContext) -> None:
    if sys.implementation.name != "cpython":
        raise ImportError("it is not CPython")
    import _ssl

    library = ctypes.CDLL(_ssl.__file__)
    for name, result, arguments in (
        ("SSL_CTX_get_verify_mode", ctypes.c_int, [ctypes.c_void_p]),
        ("SSL_CTX_set_verify", None, [ctypes.c_void_p, ctypes.c_int, _CALLBACK]),
        ("SSL_CTX_get_verify_callback", ctypes.c_void_p, [ctypes.c_void_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    field_address = id(context) + object.__basicsize__  # the first field of the object
    address = ctypes.c_void_p.from_address(field_address).value
    for mode, expected in ((ssl.CERT_NONE, 0), (ssl.CERT_REQUIRED, _VERIFY_PEER_OR_FAIL)):
        context.verify_mode = mode
        if not address or library.SSL_CTX_get_verify_mode(address) != expected:
            raise ImportError("its contexts are laid out in an unknown way")
    library.SSL_CTX_set_verify(address, _VERIFY_PEER_OR_FAIL, _accept)
    if library.SSL_CTX_get_verify_callback(address) != ctypes.cast(_accept, ctypes.c_void_p).value:
        raise ImportError("OpenSSL did not keep the callback")
