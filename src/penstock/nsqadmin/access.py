"""Who asks, and what they may do.

| how a caller is known          | name         | role                                         |
|--------------------------------|--------------|----------------------------------------------|
| session of a log-in            | the user's   | the user's                                   |
| header of a trusted proxy      | the header's | destroy if -admin-user names it, or there is |
|                                |              | no -admin-user; or the user's of that name;  |
|                                |              | else view                                    |
| nothing, under a foreign name  | ""           | none: nothing is told                        |
| nothing, log-in is asked for   | ""           | none: only the log-in page                   |
| nothing, listening on loopback | ""           | destroy, as the official one                 |
| nothing, listening beyond it   | ""           | view, unless -read-only=false                |

With -admin-user only those it names may change anything, but for users that have logged in. With
-read-only=true nobody may. A header from an address outside -trusted-proxy-cidr is not read; the
loopback interface, which is trusted unless the flag says otherwise, is not enough where somebody
has to log in, because every process of the machine is there, and not under a foreign name, because
a browser of the machine may be led there by a page of any site.

A request that changes something must also come from our own pages or from a program, never from
another site's page in the same browser (`is_foreign`): a session's request brings the session's
token; every request is refused when the browser says that another site has made it. Listening on
loopback the Host header must be a name of this machine or the address that was given, unless a
proxy that -trusted-proxy-cidr names sends the request: so that a foreign name that resolves to us
(DNS rebinding) is of no use, neither for changing nor for reading.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.nsqadmin.options import Network


class Role(IntEnum):
    NONE = 0
    VIEW = 1
    OPERATE = 2  # pause, publish, replay, requeue, switch tracing: nothing is lost
    DESTROY = 3  # delete, empty, tombstone, users


ROLE_NAMES = {role.name.lower(): role for role in (Role.VIEW, Role.OPERATE, Role.DESTROY)}


class Caller(NamedTuple):
    name: str  # "" when nobody has logged in
    role: Role
    how: str  # "session", "header", "anonymous", "foreign" (under a name that is not ours)
    remote: str  # the address that the request came from
    session: str = ""  # the hash of its token

    @property
    def shown(self) -> str:
        return self.name or "anonymous"


class Rules(NamedTuple):
    """From the options, and whether there are users."""

    admin_users: Sequence[str]
    header: str
    trusted: Sequence[Network]
    login_wanted: bool
    anonymous_role: Role
    read_only: bool

    def limit(self, role: Role) -> Role:
        return min(role, Role.VIEW) if self.read_only else role

    def by_header(self, name: str, known: Role | None, remote: str) -> Caller:
        """`known`: the role of the local user of this name."""
        if self.admin_users:
            role = Role.DESTROY if name in self.admin_users else known or Role.VIEW
        else:
            role = known or Role.DESTROY
        return Caller(name, self.limit(role), "header", remote)

    def anonymous(self, remote: str) -> Caller:
        if self.login_wanted:
            role = Role.NONE
        elif self.admin_users:
            role = Role.VIEW
        else:
            role = self.limit(self.anonymous_role)
        return Caller("", role, "anonymous", remote)


def within(address: str, networks: Sequence[Network]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False  # a unix socket, or nothing: it is in no network
    mapped = getattr(ip, "ipv4_mapped", None)
    return any((mapped or ip) in network for network in networks)


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site's page has made this request."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin", "")
    if not origin:
        return False  # a program, or a browser of long ago
    return urlsplit(origin).netloc != headers.get("host", "")


def is_own_host(host_header: str, given_host: str) -> bool:
    """Whether the name in the Host header can only mean us."""
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return False
    if host in ("localhost", given_host) or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True  # an address can't be made to mean another machine
