"""A TLS server that insists on a client certificate and takes any.

NSQ's policy `require` is that: the certificate proves nothing by itself, but its name goes to the
authentication server, and the client has to hold its key. Python's `ssl` can demand a certificate
only together with verifying it, and offers no place for another verdict, though OpenSSL does. So
this module calls OpenSSL's `SSL_CTX_set_verify` itself, in the library that the interpreter is
already bound to, on the context inside Python's own object.

That reaches past a public interface, so it is checked first: the word that should be the context's
address has to answer with the verify mode that was set through the front door in this moment, for
each of two modes, and the callback has to be there afterwards. Where that fails (another
implementation of Python, a library without visible symbols) the daemon refuses to start.
"""

from __future__ import annotations

import ctypes
import ssl
import sys

from penstock.errors import ConfigError

_VERIFY_PEER_OR_FAIL = 0x01 | 0x02
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


# The object has to live as long as any context that calls it.
_accept = _CALLBACK(lambda verified, store: 1)


def accept_any_certificate(context: ssl.SSLContext) -> None:
    """Raises ConfigError where that cannot be arranged."""
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
    place = id(context) + object.__basicsize__  # the first field of the object
    address = ctypes.c_void_p.from_address(place).value
    for mode, expected in ((ssl.CERT_NONE, 0), (ssl.CERT_REQUIRED, _VERIFY_PEER_OR_FAIL)):
        context.verify_mode = mode
        if not address or library.SSL_CTX_get_verify_mode(address) != expected:
            raise ImportError("its contexts are laid out in an unknown way")
    library.SSL_CTX_set_verify(address, _VERIFY_PEER_OR_FAIL, _accept)
    if library.SSL_CTX_get_verify_callback(address) != ctypes.cast(_accept, ctypes.c_void_p).value:
        raise ImportError("OpenSSL did not keep the callback")
