"""Identity and permissions of callers.

| how a caller is known          | name         | role                                         |
|--------------------------------|--------------|----------------------------------------------|
| token of a program             | the token's  | the token's                                  |
| session of a log-in            | the user's   | the user's                                   |
| session by an OIDC provider    | the verified | the same as by a header, but view where      |
|                                | email or id  | neither -group-role nor -admin-user is given |
| header of a trusted proxy      | the header's | destroy if -admin-user names it; or the      |
|                                |              | highest of the local user of that name and   |
|                                |              | of its groups by -group-role; else none with |
|                                |              | -group-role, view with -admin-user, destroy  |
|                                |              | with neither                                 |
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

import ipaddress
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.errors import ConfigError
from penstock.net.gate import host_of
from penstock.nsqadmin.options import Network


class Role(IntEnum):
    NONE = 0
    VIEW = 1
    OPERATE = 2  # pause, publish, replay, requeue, switch tracing: nothing is lost
    DESTROY = 3  # delete, empty, tombstone, users


ROLE_NAMES = {role.name.lower(): role for role in (Role.VIEW, Role.OPERATE, Role.DESTROY)}


class Claimed(NamedTuple):
    """A proxy's statement about its logged-in user."""

    name: str
    email: str = ""
    groups: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for one in (self.name, self.email) if one))


class Caller(NamedTuple):
    name: str  # "" when nobody has logged in
    role: Role
    how: str  # "session", "token", "oidc", "header", "anonymous"; "foreign": under another name
    remote: str  # the address that the request came from
    session: str = ""  # the hash of its token
    claimed: Claimed | None = None  # of a header, or by a provider

    @property
    def shown(self) -> str:
        email = self.claimed.email if self.claimed else ""
        return f"{self.name} ({email})" if email not in ("", self.name) else (
            self.name or "anonymous"
        )  # fmt: skip


def claimed_in(headers: Mapping[str, str], *names: str) -> Claimed | None:
    """`names` of the headers in which a proxy passes on a user's name, email address and groups.
    None when the first two are missing. A header that occurs twice is not believed: a proxy that
    adds its own header to the one of the request has not removed that."""
    name, email, groups = (_only(headers, one.lower()) for one in names)
    if not name and not email:
        return None
    return Claimed(name or email, email, tuple(filter(None, map(str.strip, groups.split(",")))))


def _only(headers: Mapping[str, str], name: str) -> str:
    if not name:
        return ""
    every = getattr(headers, "getlist", None)
    found = every(name) if every is not None else [headers.get(name, "")]
    return found[0].strip() if len(found) == 1 else ""


EVERYBODY = "*"  # a group of -group-role: whoever has logged in


def read_group_roles(texts: Sequence[str]) -> dict[str, Role]:
    """Reads "GROUP=ROLE"; of a group named twice the highest counts."""
    found: dict[str, Role] = {}
    for text in texts:
        group, _, name = text.rpartition("=")
        role = ROLE_NAMES.get(name.strip())
        if not group.strip() or role is None:
            rule = f"it is not GROUP=ROLE, with a role of {', '.join(ROLE_NAMES)}"
            raise ConfigError("group-role", text, rule)
        found[group.strip()] = max(role, found.get(group.strip(), role))
    return found


class Rules(NamedTuple):
    """From the options, and the existence of users."""

    admin_users: Sequence[str]
    group_roles: Mapping[str, Role]
    login_wanted: bool
    anonymous_role: Role
    read_only: bool

    def limit(self, role: Role) -> Role:
        return min(role, Role.VIEW) if self.read_only else role

    def of_claimed(self, how: str, claimed: Claimed, known: Role | None) -> Role:
        """Whom a "header" names, or an "oidc" provider. `known`: the role of the local user of this
        name."""
        role = known or Role.NONE
        if any(name in self.admin_users for name in claimed.names):
            role = Role.DESTROY
        elif self.group_roles:
            groups = (*claimed.groups, EVERYBODY)
            role = max(role, *(self.group_roles.get(one, Role.NONE) for one in groups))
        elif not known:
            role = Role.VIEW if self.admin_users or how == "oidc" else Role.DESTROY
        return self.limit(role)

    def of_anonymous(self) -> Role:
        if self.login_wanted:
            return Role.NONE
        return Role.VIEW if self.admin_users else self.limit(self.anonymous_role)


def read_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for a text that is no address: a name, a unix socket, empty."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def within(address: str, networks: Sequence[Network]) -> bool:
    ip = read_ip(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    return ip is not None and any((mapped or ip) in network for network in networks)


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Does the browser say that another site's page has made this request?"""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin", "")
    if not origin:
        return False  # a program, or a browser of long ago
    return origin.partition("://")[2] != headers.get("host", "")


def is_own_host(host_header: str, given_host: str) -> bool:
    """Whether the name in the Host header can only mean us."""
    host = host_of(host_header)
    if host in ("localhost", given_host) or host.endswith(".localhost"):
        return True
    return read_ip(host) is not None  # an address can't be made to mean another machine
