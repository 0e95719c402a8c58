"""What a proxy says of its users, and the role that comes of it."""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.net.listener import ListenAddress
from penstock.nsqadmin.access import Claimed, Role, Rules, claimed_in, read_group_roles
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.options import read_options
from penstock.nsqadmin.store import Store

from .conftest import Installation
from .running import Admin

HEADERS = ("X-User", "X-Email", "X-Groups")
ROLES = {"ops": Role.OPERATE, "sre": Role.DESTROY}


def rules(admins: tuple[str, ...] = (), read_only: bool = False, **roles: Role) -> Rules:
    return Rules(
        admin_users=admins, group_roles=roles, login_wanted=False, anonymous_role=Role.VIEW,
        read_only=read_only,
    )  # fmt: skip


def test_headers_of_a_proxy() -> None:
    message = {"x-user": "auth0|7", "x-email": "ann@x.example", "x-groups": "ops, sre,,"}
    assert claimed_in(message, *HEADERS) == Claimed("auth0|7", "ann@x.example", ("ops", "sre"))
    ann = Claimed("ann@x.example", "ann@x.example")
    assert claimed_in({"x-email": "ann@x.example"}, *HEADERS) == ann
    assert claimed_in({"x-groups": "sre"}, *HEADERS) is None
    assert claimed_in(message, "x-user", "", "") == Claimed("auth0|7")


@pytest.mark.parametrize(
    ("claimed", "known", "given", "role"),
    [
        (Claimed("ann"), None, rules(), Role.DESTROY),  # as the official one
        (Claimed("ann"), None, rules(("bob",)), Role.VIEW),
        (Claimed("7", "bob"), None, rules(("bob",)), Role.DESTROY),
        (Claimed("ann"), Role.OPERATE, rules(("bob",)), Role.OPERATE),
        (Claimed("ann", groups=("ops",)), None, rules(**ROLES), Role.OPERATE),
        (Claimed("ann", groups=("dev", "ops", "sre")), None, rules(**ROLES), Role.DESTROY),
        (Claimed("ann"), None, rules(**{"*": Role.VIEW}), Role.VIEW),
        (Claimed("ann", groups=("dev",)), None, rules(**ROLES), Role.NONE),
        (Claimed("ann", groups=("dev",)), None, rules(("bob",), **ROLES), Role.NONE),
        (Claimed("ann", groups=("ops",)), Role.VIEW, rules(**ROLES), Role.OPERATE),
        (Claimed("ann", groups=("sre",)), None, rules(read_only=True, **ROLES), Role.VIEW),
    ],
)
def test_the_role_of_a_header(
    claimed: Claimed, known: Role | None, given: Rules, role: Role
) -> None:
    assert given.of_claimed("header", claimed, known) == role


def test_a_role_that_was_taken_away_counts_at_once(tmp_path: Path) -> None:
    """Of the caller of a page that is open still, whom a proxy has named."""
    flags = ["-nsqd-http-address=h:1", "-admin-user=nobody", "-login=off"]
    with closing(Store(tmp_path)) as store:
        gate = Gate(read_options(flags, {}), store, ListenAddress("127.0.0.1", 4171, ""))
        store.put_user("mara", "00:00", Role.OPERATE)
        caller = gate.caller({"x-forwarded-user": "mara", "host": "127.0.0.1"}, {}, "127.0.0.1")
        assert (caller.how, gate.held(caller)) == ("header", Role.OPERATE)
        store.put_user("mara", "00:00", Role.VIEW)
        assert gate.held(caller) == Role.VIEW


def test_the_mapping_is_read() -> None:
    found = read_group_roles(["ops=operate", "CN=a,OU=b=destroy", " * = view", "ops=view"])
    assert found == {"ops": Role.OPERATE, "CN=a,OU=b": Role.DESTROY, "*": Role.VIEW}
    for text in ("ops", "ops=", "=view", "ops=root", "ops=none"):
        with pytest.raises(ConfigError, match=r"it is not GROUP=ROLE"):
            read_group_roles([text])


@pytest.fixture(scope="module")
def proxied(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    """Behind an OIDC proxy on this machine."""
    flags = (
        installation.of_nsqd,
        "-trusted-proxy-cidr=127.0.0.0/8", "-acl-email-header=X-Forwarded-Email",
        "-group-role=ops=operate", "-group-role=sre=destroy", "-login=required",
        "-logout-url=/oauth2/sign_out",
    )  # fmt: skip
    with Admin(tmp_path_factory.mktemp("proxied") / "admin", *flags) as admin:
        yield admin


def headers_of(groups: str) -> dict[str, str]:
    return {"X-Forwarded-User": "auth0|7", "X-Forwarded-Email": "ann@x.example",
            "X-Forwarded-Groups": groups}  # fmt: skip


def test_a_user_without_a_role_is_refused_with_the_reason(proxied: Admin) -> None:
    status, body, _ = proxied.request("GET", "/", headers=headers_of("dev"))
    assert status == 403
    assert b"auth0|7 (ann@x.example) has logged in, and none of the groups (dev)" in body
    assert proxied.request("GET", "/")[2]["location"].startswith("/login")


def test_the_page_shows_the_name_and_the_logout(proxied: Admin) -> None:
    _, body, _ = proxied.request("GET", "/nodes", headers=headers_of("sre"))
    assert b"auth0|7 (ann@x.example) may look, operate and destroy" in body
    assert b"/oauth2/sign_out" in body


def test_a_header_that_stands_there_twice_is_not_believed(proxied: Admin) -> None:
    """A proxy that adds its own to the one that came from outside."""
    for name in ("X-Forwarded-User", "X-Forwarded-Groups"):
        connection = HTTPConnection("127.0.0.1", proxied.http_port, timeout=20)
        connection.putrequest("GET", "/api/topics")
        for header, value in (*headers_of("dev").items(), (name, "sre")):
            if header != "X-Forwarded-Email":
                connection.putheader(header, value)
        connection.endheaders()
        assert connection.getresponse().status in (401, 403)
        connection.close()
