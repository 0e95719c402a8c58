"""Logging in by an OIDC provider, by hand-made requests: what is believed, and what is not."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from cases import each
from penstock.errors import ConfigError
from penstock.nsqadmin.access import Claimed
from penstock.nsqadmin.gate import COOKIE
from penstock.nsqadmin.oidc import OidcFailed, groups_in, read_provider, who
from penstock.nsqadmin.options import read_options
from penstock.nsqadmin.store import Store

from .conftest import Installation
from .provider import CLIENT_ID, SHARED, Provider, flags_of
from .running import Admin


class World(NamedTuple):
    provider: Provider
    admin: Admin

    def begin(self, target: str = "") -> tuple[str, str]:
        """The address that the browser is sent to, and its cookie."""
        status, _, headers = self.admin.request("GET", f"/login/oidc?next={target}")
        assert status == 303
        assert "HttpOnly" in headers["set-cookie"]
        return headers["location"], headers["set-cookie"].partition(";")[0]

    def come_back(self, way: str, cookie: str) -> tuple[int, str, dict[str, str]]:
        """What the browser is told after the provider has sent it back."""
        parts = urlsplit(way)
        given = {"Cookie": cookie} if cookie else {}
        path = f"{parts.path}?{parts.query}"
        status, body, headers = self.admin.request("GET", path, headers=given)
        return status, body.decode(), headers

    def log_in(self, target: str = "") -> tuple[int, str, dict[str, str]]:
        way, cookie = self.begin(target)
        return self.come_back(followed(way), cookie)

    def session(self) -> str:
        status, body, headers = self.log_in()
        assert (status, body) == (303, "")
        return session_in(headers)


def session_in(headers: dict[str, str]) -> str:
    """Its cookie, "" if none is set."""
    found = re.search(rf"{COOKIE}=[^;]+(?=;.*HttpOnly)", headers.get("set-cookie", ""))
    return found[0] if found else ""


def followed(url: str) -> str:
    """Where the provider sends the browser."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return str(connection.getresponse().headers["Location"])


@pytest.fixture(scope="module")
def shared(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("oidc")
    with (
        Provider() as provider,
        Admin(path / "admin", installation.of_nsqd, *flags_of(provider, path)) as admin,
    ):
        yield World(provider, admin)


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """The provider as it was."""
    provider = shared.provider
    before = {name: getattr(provider, name)
              for name in ("claims", "userinfo", "spoil", "sign", "refuses", "key")}  # fmt: skip
    yield shared
    for name, value in before.items():
        setattr(provider, name, value)


def test_a_login_and_its_permissions(installation: Installation, world: World) -> None:
    admin = world.admin
    assert admin.request("GET", "/api/topics")[0] == 401
    installation.nsqd.post("/topic/create?topic=by_oidc")
    status, _, headers = world.log_in("/topics/by_oidc")
    assert (status, headers["location"]) == (303, "/topics/by_oidc")
    cookie = session_in(headers)
    store = Store(admin.data_path)
    session = store.session(cookie.partition("=")[2], 3600)
    entry = store.audit("login")[0]
    store.close()
    assert session is not None
    assert session.claimed == Claimed("ann@x.example", "ann@x.example", ("ops",))
    assert (entry.who, entry.how, entry.result) == ("ann@x.example", "oidc", "ok")
    assert admin.request("GET", "/api/topics", headers={"Cookie": cookie})[0] == 200
    act, path = {"action": "pause"}, "/api/topics/by_oidc"
    assert admin.request("POST", path, act, {"Cookie": cookie})[0] == 403  # the token is missing
    full = {"Cookie": cookie, "X-CSRF-Token": session.csrf}
    assert admin.request("POST", path, act, full)[0] == 200
    assert admin.request("DELETE", path, None, full)[0] == 403


def test_logging_out_ends_it(world: World) -> None:
    cookie = world.session()
    status, _, headers = world.admin.request("POST", "/logout", b"", {"Cookie": cookie})
    assert (status, headers["location"]) == (303, "/login?out=1")
    assert world.admin.request("GET", "/api/topics", headers={"Cookie": cookie})[0] == 401
    body = world.admin.request("GET", "/login?out=1")[1].decode()
    assert f"{world.provider.issuer}/logout?client_id={CLIENT_ID}" in body
    assert 'name="password"' not in body  # there are no local users


def test_without_a_group_nobody_gets_in(world: World) -> None:
    world.provider.claims = world.provider.claims | {"groups": ["dev"]}
    status, body, headers = world.log_in()
    assert status == 403
    assert "none of the groups (dev) has a role" in body
    assert session_in(headers) == ""


def test_groups_and_email_may_come_with_the_user_info(world: World) -> None:
    world.provider.claims = {"sub": "9"}
    world.provider.userinfo = {"email": "bo@x.example", "email_verified": True, "groups": ["sre"]}
    assert world.log_in()[0] == 303
    world.provider.userinfo |= {"sub": "10"}
    status, body, _ = world.log_in()
    assert status == 401
    assert "another user" in body


def forged(**more: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda claims: {
        name: value for name, value in (claims | more).items() if value is not None
    }


@pytest.mark.parametrize(
    "spoil",
    [
        forged(iss="http://127.0.0.1:1"), forged(aud="another"), forged(aud=None),
        forged(aud=[CLIENT_ID, "another"]), forged(azp="another"), forged(exp=1),
        forged(exp=None), forged(iat=9_999_999_999), forged(iat=None), forged(nonce="another"),
        forged(nonce=None), forged(sub=None), forged(sub=""), forged(nbf=9_999_999_999),
        forged(sub="x\ny", email=None), forged(sub="x" * 300, email=None),
    ],
)  # fmt: skip
def test_a_token_that_is_not_for_this_log_in(world: World, spoil: Any) -> None:
    world.provider.spoil = spoil
    status, body, headers = world.log_in()
    is_of_clocks = any(value in (1, 9_999_999_999) for value in spoil({}).values())
    assert (status, "; compare its clock" in body) == (401, is_of_clocks)
    assert session_in(headers) == ""


def test_a_token_for_several_names_who_asked(world: World) -> None:
    world.provider.spoil = forged(aud=[CLIENT_ID, "another"], azp=CLIENT_ID)
    assert world.log_in()[0] == 303


OTHER = RSAKey.generate_key(2048, {"kid": "one"})


def by_hand(claims: dict[str, Any], algorithm: str, kid: str, secret: bytes) -> str:
    """What a library would not sign for us."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    header = json.dumps({"alg": algorithm, "kid": kid}).encode()
    text = f"{part(header)}.{part(json.dumps(claims).encode())}"
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest() if secret else b""
    return f"{text}.{part(mac)}"


def test_a_signature_that_is_not_the_providers(world: World) -> None:
    public = world.provider.key.as_pem(private=False)
    for sign in (
        lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, OTHER),
        lambda claims: by_hand(claims, "HS256", "shared", SHARED),
        lambda claims: by_hand(claims, "HS256", "one", public),
        lambda claims: by_hand(claims, "none", "one", b""),
        lambda claims: "no token",
        lambda claims: "",
    ):
        world.provider.sign = sign
        status, body, _ = world.log_in()
        assert status == 401
        assert "secret" not in body


def test_keys_that_were_changed_are_asked_for_again_but_not_often(
    installation: Installation, tmp_path: Path
) -> None:
    with (
        Provider() as provider,
        Admin(tmp_path / "a", installation.of_nsqd, *flags_of(provider, tmp_path)) as admin,
    ):
        world = World(provider, admin)
        assert world.log_in()[0] == 303
        provider.key = RSAKey.generate_key(2048, {"kid": "two"})
        assert world.log_in()[0] == 401  # they were asked for just now
        assert provider.keys_asked == 1


def test_answers_for_another_login_are_refused(world: World) -> None:
    way, cookie = world.begin()
    back = followed(way)
    other = world.begin()[1]
    for given in ("", "penstock_oidc=nonsense", "penstock_oidc=W10", other):
        status, body, _ = world.come_back(back, given)
        assert status == 401
        assert "try again" in body
    assert world.come_back(back, cookie)[0] == 303
    assert world.come_back(back, cookie)[0] == 401  # a code is good once


def test_a_refusal_of_the_provider(world: World) -> None:
    world.provider.refuses = "access_denied<script>"
    status, body, _ = world.log_in()
    assert status == 401
    assert "refuses: access_denied&lt;script&gt;" in body
    way, cookie = world.begin()
    state = parse_qs(urlsplit(way).query)["state"][0]
    mixed = urlencode({"state": state, "code": "x", "iss": "https://evil.example"})
    status, body, _ = world.come_back(f"/login/oidc/callback?{mixed}", cookie)
    assert (status, "another provider" in body) == (401, True)


def test_a_session_lasts_through_a_restart_but_its_rights_do_not(world: World) -> None:
    cookie = {"Cookie": world.session()}
    world.admin.kill()
    world.admin.start()
    assert world.admin.request("GET", "/api/topics", headers=cookie)[0] == 200
    world.admin.request("POST", "/logout", b"", cookie)  # the provider was not asked since
    assert (
        f"{world.provider.issuer}/logout?".encode() in world.admin.request("GET", "/login?out=1")[1]
    )


def test_an_unreachable_provider_is_reported(installation: Installation, tmp_path: Path) -> None:
    with Provider() as provider:
        flags = flags_of(provider, tmp_path)
    with Admin(tmp_path / "a", installation.of_nsqd, *flags) as admin:
        status, body, _ = admin.request("GET", "/login/oidc")
        assert status == 502
        assert b"The provider does not answer" in body
        assert admin.request("GET", "/login?out=1")[0] == 200


# --- rules ---


def test_only_verified_names_count() -> None:
    claims = {"sub": "7", "email": "ann@x", "preferred_username": "admin", "groups": "a, b"}
    assert who(claims, "groups") == Claimed("7", "", ("a", "b"))
    assert who(claims | {"email_verified": "true"}, "groups").email == ""
    assert who(claims | {"email_verified": True}, "groups").name == "ann@x"


def test_groups_may_be_inside_another_claim() -> None:
    assert groups_in({"realm_access": {"roles": ["a", 7, "b"]}}, "realm_access.roles") == ("a", "b")
    assert groups_in({"a.b": ["c"]}, "a.b") == ("c",)
    assert groups_in({"groups": {"a": 1}}, "groups") == ()
    assert groups_in({}, "x.y") == ()


def test_a_provider_is_who_it_says_and_safe() -> None:
    fine = {"issuer": "https://i", "authorization_endpoint": "https://i/a",
            "token_endpoint": "https://i/t", "jwks_uri": "https://i/k"}  # fmt: skip
    offered = {"id_token_signing_alg_values_supported": ["HS256", "none"], "verify": False}
    found = read_provider("https://i", fine | offered)
    assert found["end_session_endpoint"] == ""
    assert "verify" not in found  # authlib would take it for an option of its HTTP client
    assert not {"HS256", "none"} & set(found["id_token_signing_alg_values_supported"])
    for spoiled in (
        fine | {"issuer": "https://j"}, fine | {"token_endpoint": "http://i/t"},
        fine | {"jwks_uri": "file:///k"}, fine | {"authorization_endpoint": 7}, [], None,
        fine | {"end_session_endpoint": "javascript:alert(1)"},
    ):  # fmt: skip
        with pytest.raises(OidcFailed):
            read_provider("https://i", spoiled)


@each(
    ("flags", "named"),
    [
        (["-oidc-issuer=http://idp.example"], "oidc-issuer"),
        (["-oidc-issuer=ftp://x"], "oidc-issuer"),
        (["-oidc-redirect-url=https://x/other"], "oidc-redirect-url"),
        (["-oidc-redirect-url=http://x/login/oidc/callback"], "oidc-redirect-url"),
        (["-oidc-redirect-url="], "oidc-redirect-url"),
        (["-oidc-client-id="], "oidc-client-id"),
        (["-oidc-scopes=email"], "oidc-scopes"),
    ],
)
def test_conflicting_flags(flags: list[str], named: str) -> None:
    fine = ["-nsqd-http-address=127.0.0.1:1", "-oidc-issuer=https://idp.example",
            "-oidc-client-id=x", "-oidc-redirect-url=https://x/login/oidc/callback"]  # fmt: skip
    read_options(fine, {})
    with pytest.raises(ConfigError, match=named):
        read_options([*fine, *flags], {})
