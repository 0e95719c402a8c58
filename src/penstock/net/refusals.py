"""What the HTTP server itself answers, whatever the application, before it hangs up."""

from __future__ import annotations

from penstock.net.api import HttpError, error_response


def _fixed(status: bytes) -> bytes:
    """As Go's server has it."""
    head = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return b"HTTP/1.1 " + status + b"\r\n" + head + status


BAD_REQUEST = _fixed(b"400 Bad Request")
TIMED_OUT = _fixed(b"408 Request Timeout")
HEADERS_TOO_LARGE = _fixed(b"431 Request Header Fields Too Large")
NO_DESCRIPTOR = _fixed(b"503 Service Unavailable") + (
    b": the daemon has no descriptor left for connections (ulimit -n)"
)
NO_ROOM = error_response(
    HttpError(503, "FAILED unanswered requests of all clients take too much memory", closes=True)
)
