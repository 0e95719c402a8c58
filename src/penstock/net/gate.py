"""Which requests an HTTP listener lets in: not those of web pages, and changes only with the
secret, where there is one.

A browser sends requests to any address that a page names: to the loopback interface of its user, to
hosts behind a firewall. The page cannot read the answers, but a POST has then been done. Three
headers, which no page can forge, give such a request away:

- `Origin` names the page that sends it. Browsers put it on every POST, clients on none.
- `Sec-Fetch-Site` says how the page is related to us, `cross-site` mostly.
- `Host` is the name in the URL. A page whose own name was made to resolve to our address (DNS
  rebinding) is of the same origin for its browser, and may read answers too; but the name is its
  own. So a listener on the loopback interface answers only to names of this host, to IP addresses,
  which nothing resolves, and to a configured list. A listener on another interface cannot know by
  which names clients reach it, and checks them only if there is such a list.

What changes something must not come from a page of a foreign origin, nor from one whose name is not
ours. What only reads may, because browsers keep the answer from the page, except what costs much
(`/debug/`).

All of it is decided from the head of a request alone: no body is read for a request that is
refused.
"""

import hmac
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.errors import ConfigError

READING = frozenset(("GET", "HEAD", "OPTIONS"))
ANY = "*"
_COSTLY = "/debug/"
_UNCHECKED = "/ping"  # what load balancers ask, under names of their own
_RELATED = (None, b"same-origin", b"none")
_HOST = re.compile(rb"[0-9A-Za-z!$%&'()*+,\-.:;=\[\]_~]*")
_NAME = re.compile(r"[0-9A-Za-z_]([0-9A-Za-z_.-]*[0-9A-Za-z_])?", re.ASCII)
_BEARER = b"bearer "


class Caller(NamedTuple):
    """The sender of a request, from its head; None: the header is missing."""

    host: bytes | None = None
    origin: bytes | None = None
    fetch_site: bytes | None = None
    authorization: bytes | None = None


class Denial(NamedTuple):
    status: int
    message: str


class Gate:
    """For one listener. `own_names`: those of this host. `allowed`: further names, or `*`."""

    def __init__(
        self,
        is_loopback: bool = False,
        own_names: Iterable[str] = (),
        allowed: Iterable[str] = (),
        secrets: Iterable[bytes] = (),
    ) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)
        self._own = frozenset(name.lower() for name in own_names)
        self._checks_hosts = (is_loopback or bool(self._allowed)) and ANY not in self._allowed
        self._is_loopback = is_loopback
        self._secrets = tuple(secrets)

    def denial(self, method: str, path: str, caller: Caller) -> Denial | None:
        """Why this request is not served; None: it is."""
        if self._checks_hosts and caller.host and path != _UNCHECKED:
            host = host_of(caller.host.decode("latin-1"))
            if not self._is_ours(host):
                rule = "not a name of this listener; see --http-allowed-host"
                return Denial(403, f"HOST_DENIED {host[:100]!r}: {rule}")
        changes = method not in READING
        if (changes or path.startswith(_COSTLY)) and self._is_foreign(caller):
            origin = (caller.origin or b"a page of another site").decode("latin-1")
            rule = "web pages of other hosts may change nothing here; see --http-allowed-host"
            return Denial(403, f"ORIGIN_DENIED {origin[:100]!r}: {rule}")
        if changes and self._secrets and not self._knows_secret(caller.authorization):
            rule = "changes need the header Authorization: Bearer SECRET; see --http-secret-file"
            return Denial(401, f"SECRET_DENIED {rule}")
        return None

    def _is_ours(self, host: str) -> bool:
        return (
            host in self._allowed
            or host in self._own
            or host == "localhost"
            or host.endswith(".localhost")
            or _address(host) is not None
        )

    def _is_foreign(self, caller: Caller) -> bool:
        if caller.origin is None:
            return caller.fetch_site not in _RELATED and ANY not in self._allowed
        try:
            url = urlsplit(caller.origin.decode("latin-1").lower())
            host = url.hostname or ""
        except ValueError:
            return True
        if host in self._allowed or ANY in self._allowed:
            return False
        if self._is_loopback and is_loopback_host(host):
            return False
        is_same = url.netloc.encode("latin-1") == (caller.host or b"").lower()
        return not (host and is_same and self._is_ours(host))

    def _knows_secret(self, authorization: bytes | None) -> bool:
        given = authorization or b""
        if given[: len(_BEARER)].lower() != _BEARER:
            return False
        secret = given[len(_BEARER) :].strip()
        return any(hmac.compare_digest(secret, known) for known in self._secrets)


def is_host(value: bytes) -> bool:
    """Can this be the value of a Host header? The characters that Go's server accepts."""
    return _HOST.fullmatch(value) is not None


def host_of(authority: str) -> str:
    """The host of `host:port`, in lower case, without brackets and the dot at the end."""
    host = authority.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.removesuffix(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback_host(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback
    return host == "localhost" or host.endswith(".localhost")


# --- configuration ---


def check_allowed(names: Iterable[str]) -> None:
    """Raises ConfigError."""
    for name in names:
        if name != ANY and not _NAME.fullmatch(name) and _address(name) is None:
            raise ConfigError("http-allowed-host", name, "a host name without a port, or *")
