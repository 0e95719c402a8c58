"""Logging in by an OIDC provider. authlib does the authorization code flow with PKCE, and checks
the ID token: its signature, its times, that it comes from the provider and is for us, and that it
holds the nonce that this browser was sent with. This module says what authlib leaves open:

- the signature is by an asymmetric algorithm, whatever the provider's document offers: a public key
  must never count as the secret of an HMAC, nor "none" as a signature;
- the provider is the one that was named, its addresses are https, and nothing else of its document
  reaches authlib;
- what a log-in began with waits in a cookie of that browser, not here: a callback that comes to a
  browser that has begun nothing, or something else, is refused. So somebody else's log-in can't be
  put upon a browser, nothing piles up here, and a restart in between hurts nobody.

Only a nsqadmin with -oidc-issuer imports it: authlib and its HTTP client take 12 MB.
"""

import base64
import hmac
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import StarletteOAuth2App
from authlib.oauth2.auth import encode_client_secret_basic
from httpx2 import HTTPError, InvalidURL, Timeout
from joserfc.errors import JoseError

from penstock import limits
from penstock.errors import ConfigError, PenstockError
from penstock.nsqadmin.access import Claimed
from penstock.nsqadmin.options import Options, is_safe_url

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA")  # fmt: skip
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_OPTIONAL = ("end_session_endpoint", "userinfo_endpoint")


class OidcFailed(PenstockError):
    """A login by the provider failed; the text has the reason, and no secret."""


class Provider(StarletteOAuth2App):  # type: ignore[misc]
    """The provider's description and keys are fetched again after a while."""

    def __init__(self, issuer: str, **options: Any) -> None:
        super().__init__(None, client_auth_methods=[("client_secret_basic", _basic)], **options)
        self.issuer = issuer
        self._known_s = self._keys_s = float("-inf")  # when they were asked for

    async def load_server_metadata(self) -> dict[str, Any]:
        if time.monotonic() - self._known_s > limits.ADMIN_OIDC_KNOWN_S:
            url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            self.server_metadata = read_provider(self.issuer, await self._ask(url))
            self._known_s = time.monotonic()
        return self.server_metadata

    async def fetch_jwk_set(self, force: bool = False) -> dict[str, Any]:
        """`force`: a token is signed by a key that is missing."""
        metadata = await self.load_server_metadata()
        age_s = time.monotonic() - self._keys_s
        if force and age_s < limits.ADMIN_OIDC_KEYS_S:
            raise OidcFailed("the token is signed by a key that the provider does not name")
        if force or age_s > limits.ADMIN_OIDC_KNOWN_S or "jwks" not in metadata:
            document = await self._ask(metadata["jwks_uri"])
            keys = [one for one in document["keys"] if one.get("use", "sig") == "sig"]
            metadata["jwks"] = {"keys": keys}
            self._keys_s = time.monotonic()
        return dict(metadata["jwks"])

    async def _ask(self, url: str) -> Any:
        async with self._get_session() as client:
            answer = await client.request("GET", url, withhold_token=True)
            return answer.raise_for_status().json()


def _basic(client: Any, *request: Any) -> Any:
    """Both are form-encoded first (RFC 6749, 2.3.1), which authlib leaves out."""
    names = ("client_id", "client_secret")
    quoted = {name: quote(getattr(client, name), safe="") for name in names}
    return encode_client_secret_basic(SimpleNamespace(**quoted), *request)


def read_provider(issuer: str, document: Any) -> dict[str, Any]:
    """The used part of the provider's document."""
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        claimed = document.get("issuer") if isinstance(document, dict) else None
        raise OidcFailed(f"the provider calls itself {claimed!r}, not {issuer!r}")
    found = {name: document.get(name) or "" for name in (*_NEEDED, *_OPTIONAL)}
    for name, value in found.items():
        if (value or name in _NEEDED) and not is_safe_url(value):
            raise OidcFailed(f"the provider's {name} is {value!r}: it has to be https")
    return found | {"issuer": issuer, "id_token_signing_alg_values_supported": list(_ALGORITHMS)}


def read_begun(cookie: str, state: str) -> dict[str, Any]:
    """The login that this browser has begun; who changes its cookie harms only its user."""
    try:
        begun = json.loads(base64.urlsafe_b64decode(cookie))
        own_state, until_s = str(begun["state"]), float(begun["until_s"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise OidcFailed("this browser has begun no log-in: try again") from error
    if not state or not hmac.compare_digest(own_state.encode(), state.encode()):
        raise OidcFailed("this answer belongs to another log-in: try again")
    if not 0 < until_s - time.time() <= limits.ADMIN_OIDC_S:
        raise OidcFailed("the log-in took too long: try again")
    return dict(begun)


def _code_in(query: Mapping[str, str], issuer: str) -> str:
    if query.get("iss", issuer) != issuer:
        raise OidcFailed("the answer is from another provider")
    if query.get("error"):
        words = query.get("error_description") or query["error"]
        raise OidcFailed(f"the provider refuses: {words[:200]}")
    if not query.get("code"):
        raise OidcFailed("the provider has sent no code")
    return query["code"]


def who(claims: Mapping[str, Any], groups_claim: str) -> Claimed:
    """Known by an email address that the provider has verified, otherwise by its own id of the
    user: names that users choose give no role."""
    subject = str(claims["sub"])
    email = claims.get("email")
    verified = isinstance(email, str) and claims.get("email_verified") is True
    name = email if isinstance(email, str) and verified else subject
    if not name.isprintable() or not 0 < len(name) <= limits.ADMIN_OIDC_NAME_MAX:
        raise OidcFailed("the provider's name of the user is too long, or can't be shown")
    return Claimed(name, name if verified else "", groups_in(claims, groups_claim))


def groups_in(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The claim may be inside another: realm_access.roles."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return tuple(one.strip() for one in found.split(",") if one.strip())
    if not isinstance(found, list):
        return ()
    return tuple(one for one in found if isinstance(one, str))[: limits.ADMIN_OIDC_GROUPS_MAX]


@contextmanager
def _failing() -> Iterator[None]:
    """Turns errors of authlib into OidcFailed."""
    try:
        yield
    except HTTPError as error:
        raise OidcFailed(f"the provider does not answer: {error}") from error
    except (AuthlibBaseError, JoseError, InvalidURL, LookupError, RuntimeError, TypeError,
            ValueError, AttributeError) as error:  # fmt: skip
        why = str(error).rstrip(": .")
        if "expired" in why or "in the future" in why or "not yet valid" in why:
            why += "; compare its clock with that of this machine"
        raise OidcFailed(f"the provider is not believed: {why}") from error


class OidcLogin:
    def __init__(self, options: Options) -> None:
        """Raises ConfigError."""
        self._redirect_url = options.oidc_redirect_url
        self._groups_claim = options.oidc_groups_claim
        timeout_s = options.http_client_request_timeout_ns / limits.SECOND
        connect_s = options.http_client_connect_timeout_ns / limits.SECOND
        self._provider = Provider(
            options.oidc_issuer,
            client_id=options.oidc_client_id,
            client_secret=_secret(options.oidc_client_secret_file),
            client_kwargs={
                "scope": options.oidc_scopes,
                "code_challenge_method": "S256",
                "verify": _authorities(options.oidc_root_ca_file),
                "timeout": Timeout(timeout_s, connect=connect_s),
                "trust_env": False,
            },
        )

    @property
    def provider_name(self) -> str:
        return urlsplit(self._provider.issuer).netloc

    async def begin(self, target: str) -> tuple[str, str]:
        """The URL for the browser, and the cookie that it has to bring back. OidcFailed."""
        with _failing():
            begun = await self._provider.create_authorization_url(self._redirect_url)
        way = str(begun.pop("url"))
        begun |= {"target": target[:2000], "until_s": time.time() + limits.ADMIN_OIDC_S}
        return way, base64.urlsafe_b64encode(json.dumps(begun).encode()).decode()

    async def finish(self, query: Mapping[str, str], cookie: str) -> tuple[Claimed, str]:
        """The user, and the page to continue with. OidcFailed."""
        begun = read_begun(cookie, query.get("state", ""))
        code = _code_in(query, self._provider.issuer)
        with _failing():
            token = await self._provider.fetch_access_token(
                self._redirect_url, code=code, code_verifier=begun["code_verifier"]
            )
            claims = await self._claims(token, begun["nonce"])
            return who(claims, self._groups_claim), str(begun["target"])

    async def _claims(self, token: dict[str, Any], nonce: str) -> dict[str, Any]:
        """Some providers give groups and the email address only on a further request."""
        must_be = {"iss": self._provider.issuer, "aud": self._provider.client_id, "nonce": nonce}
        rules = {name: {"essential": True, "value": value} for name, value in must_be.items()}
        rules |= {name: {"essential": True} for name in ("sub", "exp", "iat")}
        claims = await self._provider.parse_id_token(
            token, nonce, rules, leeway=limits.ADMIN_OIDC_LEEWAY_S
        )
        if claims is None:
            raise OidcFailed("the provider has sent no ID token")
        known = groups_in(claims, self._groups_claim) and "email" in claims
        metadata = await self._provider.load_server_metadata()
        if known or not metadata["userinfo_endpoint"] or "access_token" not in token:
            return dict(claims)
        more = await self._provider.userinfo(token=token)
        if more.get("sub") != claims["sub"]:
            raise OidcFailed("the provider tells of another user than its token")
        return {**more, **claims}

    async def way_out(self, base: str) -> str:
        """The logout URL of the provider; "" when it has none, or does not answer."""
        with suppress(OidcFailed), _failing():
            await self._provider.load_server_metadata()
        way = self._provider.server_metadata.get("end_session_endpoint")
        if not way:
            return ""
        ours = urlsplit(self._redirect_url)
        back = f"{ours.scheme}://{ours.netloc}{base}/login"
        query = {"client_id": self._provider.client_id, "post_logout_redirect_uri": back}
        return f"{way}{'&' if '?' in way else '?'}{urlencode(query)}"


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        found = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("oidc-client-secret-file", path, f"it can't be read: {error}") from error
    if not found:
        raise ConfigError("oidc-client-secret-file", path, "it is empty")
    return found


def _authorities(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("oidc-root-ca-file", path, str(error)) from error
