"""The headers of `/pub_ext`: the query's `ext`, a JSON object, and headers of the request whose
names begin with `X-Nsqext-`, as Youzan's NSQ has them.

`X-Nsqext-Source: shop` is the member `source`: names are in lower case, values are texts. A header
of the request wins over a member of `ext` with its name; what else `ext` says stays. Without such
headers `ext` is stored as it came.
"""

from __future__ import annotations

import json

from penstock import limits
from penstock.kernel import Headers, parse_headers
from penstock.net.api import HttpError, Parameters
from penstock.net.exchange import Request

_PREFIX = b"x-nsqext-"
_SHOWN_BYTES = 100


def headers_of(request: Request, parameters: Parameters) -> tuple[bytes, Headers]:
    """The JSON, and what it says. Raises HttpError."""
    own = _own(request)
    if "ext" not in parameters and not own:
        raise HttpError(400, "MISSING_ARG_EXT")
    data = parameters.get("ext", "{}").encode("utf-8", "surrogateescape")
    found = _checked(data)
    return _joined(data, own) if own else (data, found)


def _checked(data: bytes) -> Headers:
    if len(data) > limits.HEADERS_BYTES_MAX:
        raise _wrong(f"{len(data)} bytes of JSON are more than {limits.HEADERS_BYTES_MAX}")
    found = parse_headers(data)
    if found.wrong_at >= 0:
        raise _wrong(f"ext is no flat object of strings from byte {found.wrong_at} on")
    return found


def _own(request: Request) -> dict[str, str]:
    """The members that headers of the request say."""
    own: dict[str, str] = {}
    for name, value in request.headers(_PREFIX):
        if not name:
            raise _wrong("X-Nsqext- has no name behind the dash")
        member = name.decode("ascii")
        if member in own:
            raise _wrong_header(member, value, "it is there twice")
        try:
            own[member] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _wrong_header(member, value, "it is no UTF-8") from error
        if parse_headers(_encoded({member: own[member]})).wrong_at >= 0:
            raise _wrong_header(member, value, "it is no decimal number of 64 bits")
    return own


def _joined(data: bytes, own: dict[str, str]) -> tuple[bytes, Headers]:
    joined = _encoded({**json.loads(data), **own})
    return joined, _checked(joined)


def _encoded(members: dict[str, str]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _wrong(rule: str) -> HttpError:
    return HttpError(400, f"E_INVALID_JSON_HEADER {rule}")


def _wrong_header(member: str, value: bytes, rule: str) -> HttpError:
    shown = repr(value[:_SHOWN_BYTES])[1:]  # without the b
    return _wrong(f"X-Nsqext-{member} {shown}: {rule}")
