"""Logging in by an OIDC provider: the rules of what is believed, and asking the provider.

Authorization code with PKCE: the browser is sent to the provider with a challenge, comes back with
a code, and the code and the verifier of the challenge are exchanged for a signed ID token. It is
believed when

- its signature is of a key that the provider publishes, by an asymmetric algorithm: a public key
  must never count as the secret of an HMAC, nor "none" as a signature;
- it comes from this provider (`iss`), is for us (`aud`, and `azp` where that stands), has not
  expired, and was not issued in the future, give or take a minute;
- it holds the nonce that this browser was sent with, so that nobody puts another log-in's in.

What a log-in began with waits in a cookie of that browser (`Begun`), not here: a callback that
comes to a browser that has begun nothing, or something else, is refused. So somebody else's log-in
can't be put upon a browser, nothing piles up here, and a restart in between hurts nobody.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from penstock import limits
from penstock.errors import ConfigError, FetchFailed, PenstockError
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.access import Claimed
from penstock.nsqadmin.options import Options

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

CALLBACK = "/login/oidc/callback"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "EdDSA")  # fmt: skip
_JSON = {"Accept": "application/json"}


class OidcFailed(PenstockError):
    """A log-in by the provider came to nothing; the text says why, and holds no secret."""


class UnknownKey(OidcFailed):
    """The token is signed by a key that was not there when the keys were fetched."""


class Provider(NamedTuple):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    userinfo_endpoint: str = ""


def read_provider(issuer: str, document: Any) -> Provider:
    """Of what it says of itself."""
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        told = document.get("issuer") if isinstance(document, dict) else None
        raise OidcFailed(f"the provider calls itself {told!r}, not {issuer!r}")
    wanted = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    found = {name: document.get(name) or "" for name in Provider._fields[1:]}
    for name, value in found.items():
        if not value and name not in wanted:
            continue
        if not isinstance(value, str) or not is_safe_url(value):
            raise OidcFailed(f"the provider's {name} is {value!r}: it has to be https")
    return Provider(issuer, **found)


def is_safe_url(text: str) -> bool:
    """https, or this machine."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and local))


class Begun(NamedTuple):
    """A log-in that is on its way."""

    state: str
    nonce: str
    verifier: str
    target: str  # where it goes on afterwards
    until_s: float

    def to_cookie(self) -> str:
        return _base64(json.dumps(self).encode())

    def challenge(self) -> str:
        return _base64(hashlib.sha256(self.verifier.encode()).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_cookie(text: str, state: str, now_s: float) -> Begun:
    """What this browser has begun. It is the browser's own: whoever changes it harms himself."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        own_state, nonce, verifier, target = map(str, found[:4])
        begun = Begun(own_state, nonce, verifier, target, float(found[4]))
    except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise OidcFailed("this browser has begun no log-in: try again") from error
    if not state or not hmac.compare_digest(begun.state.encode(), state.encode()):
        raise OidcFailed("this answer belongs to another log-in: try again")
    if not now_s < begun.until_s <= now_s + limits.ADMIN_OIDC_S:
        raise OidcFailed("the log-in took too long: try again")
    return begun


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _code_in(query: Mapping[str, str], issuer: str) -> str:
    if query.get("iss", issuer) != issuer:
        raise OidcFailed("the answer is from another provider")
    if query.get("error"):
        words = query.get("error_description") or query["error"]
        raise OidcFailed(f"the provider refuses: {words[:200]}")
    if not query.get("code"):
        raise OidcFailed("the provider has sent no code")
    return query["code"]


def read_keys(document: Any) -> KeySet:
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        keys = [one for one in document["keys"] if one.get("kty") != "oct"
                and one.get("use", "sig") == "sig"]  # fmt: skip
        return KeySet.import_key_set({"keys": keys})
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise OidcFailed("the provider's keys can't be read") from error


def check_token(
    token: str, keys: KeySet, issuer: str, client_id: str, nonce: str, now_s: float
) -> dict[str, Any]:
    """The claims of an ID token. UnknownKey and OidcFailed."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError

    try:
        claims = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
        jwt.JWTClaimsRegistry(
            now=int(now_s),
            leeway=limits.ADMIN_OIDC_LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(claims)
    except InvalidKeyIdError as error:
        raise UnknownKey("the token is signed by a key that the provider does not name") from error
    except (JoseError, ValueError, TypeError) as error:
        raise OidcFailed(f"the provider's token is not believed: {error}") from error
    audience, party = claims["aud"], claims.get("azp")
    is_alone = isinstance(audience, str) or len(audience) == 1
    if party != client_id and (party is not None or not is_alone):
        raise OidcFailed("the provider's token is for somebody else (azp)")
    return dict(claims)


def who(claims: Mapping[str, Any], groups_claim: str) -> Claimed:
    """Known by an email address that the provider has verified, else by its own id of the user:
    what users may choose by themselves gives nobody a role."""
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


# --- asking ---


class OidcLogin:
    def __init__(self, options: Options, clock_s: Callable[[], float] = time.time) -> None:
        """Raises ConfigError."""
        self._issuer = options.oidc_issuer
        self._client_id = options.oidc_client_id
        self._redirect_url = options.oidc_redirect_url
        self._scopes = options.oidc_scopes
        self._groups_claim = options.oidc_groups_claim
        self._secret = _secret(options.oidc_client_secret_file)
        self._clock_s = clock_s
        self._fetcher = Fetcher(
            options.http_client_connect_timeout_ns, options.http_client_request_timeout_ns,
            _authorities(options.oidc_root_ca_file), limits.ADMIN_OIDC_BYTES_MAX,
            keeps_connections=False,
        )  # fmt: skip
        self._provider: tuple[Provider, float] | None = None  # and when it was asked
        self._keys: tuple[KeySet, float] | None = None

    @property
    def provider_name(self) -> str:
        return urlsplit(self._issuer).netloc

    async def close(self) -> None:
        await self._fetcher.close()

    # --- a log-in ---

    async def begin(self, target: str) -> tuple[str, Begun]:
        """Where the browser has to go, and what it has to bring back. OidcFailed."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        until_s = self._clock_s() + limits.ADMIN_OIDC_S
        begun = Begun(state, nonce, verifier, target[:2000], until_s)
        provider = await self._ask_provider()
        return _with_query(provider.authorization_endpoint, {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_url,
            "scope": self._scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": begun.challenge(),
            "code_challenge_method": "S256",
        }), begun  # fmt: skip

    async def finish(self, query: Mapping[str, str], cookie: str) -> tuple[Claimed, str]:
        """Who has logged in, and where to go on. OidcFailed."""
        begun = from_cookie(cookie, query.get("state", ""), self._clock_s())
        code = _code_in(query, self._issuer)
        provider = await self._ask_provider()
        told = await self._exchange(provider, code, begun)
        claims = await self._check(provider, str(told.get("id_token") or ""), begun.nonce)
        access_token = told.get("access_token")
        if provider.userinfo_endpoint and isinstance(access_token, str):
            claims = await self._completed(provider, claims, access_token)
        return who(claims, self._groups_claim), begun.target

    def way_out(self, base: str) -> str:
        """Where the provider's session ends, "" when nobody knows."""
        if self._provider is None or not self._provider[0].end_session_endpoint:
            return ""
        ours = urlsplit(self._redirect_url)
        back = f"{ours.scheme}://{ours.netloc}{base}/login"
        query = {"client_id": self._client_id, "post_logout_redirect_uri": back}
        return _with_query(self._provider[0].end_session_endpoint, query)

    # --- asking ---

    async def _ask_provider(self) -> Provider:
        now_s = self._clock_s()
        if self._provider is None or now_s - self._provider[1] > limits.ADMIN_OIDC_KNOWN_S:
            place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            self._provider = (read_provider(self._issuer, await self._get(place)), now_s)
        return self._provider[0]

    async def _check(self, provider: Provider, token: str, nonce: str) -> dict[str, Any]:
        """A key that is not known may be new: then the keys are asked for again, now and then."""
        now_s = self._clock_s()
        keys, asked_s = self._keys or (None, 0.0)
        if keys is None or now_s - asked_s > limits.ADMIN_OIDC_KNOWN_S:
            keys, asked_s = await self._ask_keys(provider, now_s)
        try:
            return check_token(token, keys, self._issuer, self._client_id, nonce, now_s)
        except UnknownKey:
            if now_s - asked_s < limits.ADMIN_OIDC_KEYS_S:
                raise
        keys, _ = await self._ask_keys(provider, now_s)
        return check_token(token, keys, self._issuer, self._client_id, nonce, now_s)

    async def _ask_keys(self, provider: Provider, now_s: float) -> tuple[KeySet, float]:
        self._keys = (read_keys(await self._get(provider.jwks_uri)), now_s)
        return self._keys

    async def _exchange(self, provider: Provider, code: str, begun: Begun) -> dict[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "client_id": self._client_id,
            "code_verifier": begun.verifier,
        }
        headers = {**_JSON, "Content-Type": "application/x-www-form-urlencoded"}
        if self._secret:
            pair = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        body = urlencode(fields).encode()
        try:
            answer = await self._fetcher.request("POST", provider.token_endpoint, body, headers)
            told = json.loads(answer.body)
        except FetchFailed as error:
            raise OidcFailed(f"the provider does not answer: {error.reason}") from error
        except (ValueError, RecursionError) as error:
            raise OidcFailed("the provider's answer is no JSON") from error
        if answer.status != 200 or not isinstance(told, dict):
            reason = str(told.get("error", ""))[:100] if isinstance(told, dict) else ""
            raise OidcFailed(f"the provider refuses the code: {reason or answer.status}")
        return told

    async def _completed(
        self, provider: Provider, claims: dict[str, Any], access_token: str
    ) -> dict[str, Any]:
        """Some providers tell of groups and the email address only when they are asked again."""
        if groups_in(claims, self._groups_claim) and "email" in claims:
            return claims
        headers = {**_JSON, "Authorization": f"Bearer {access_token}"}
        more = await self._get(provider.userinfo_endpoint, headers)
        if not isinstance(more, dict) or more.get("sub") != claims["sub"]:
            raise OidcFailed("the provider tells of another user than its token")
        return {**more, **claims}

    async def _get(self, url: str, headers: Mapping[str, str] = _JSON) -> Any:
        try:
            return await self._fetcher.get_json(url, headers)
        except FetchFailed as error:
            raise OidcFailed(f"the provider does not answer: {error.reason}") from error


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


def _authorities(path: str) -> ssl.SSLContext | None:
    if not path:
        return None
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("oidc-root-ca-file", path, str(error)) from error
