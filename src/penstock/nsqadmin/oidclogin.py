"""Asking an OIDC provider: what it says of itself, its keys, and a code's ID token."""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from penstock import limits
from penstock.errors import ConfigError, FetchFailed
from penstock.net.fetch import Fetcher
from penstock.nsqadmin import oidc
from penstock.nsqadmin.access import Claimed
from penstock.nsqadmin.oidc import Begun, OidcFailed, Provider, UnknownKey
from penstock.nsqadmin.options import Options

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

CALLBACK = "/login/oidc/callback"
_JSON = {"Accept": "application/json"}


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
        begun = oidc.begin(target, self._clock_s())
        provider = await self._ask_provider()
        way = oidc.way_there(provider, self._client_id, self._redirect_url, self._scopes, begun)
        return way, begun

    async def finish(self, query: Mapping[str, str], cookie: str) -> tuple[Claimed, str]:
        """Who has logged in, and where to go on. OidcFailed."""
        begun = oidc.from_cookie(cookie, query.get("state", ""), self._clock_s())
        code = oidc.read_answer(query, self._issuer)
        provider = await self._ask_provider()
        told = await self._exchange(provider, code, begun)
        claims = await self._check(provider, str(told.get("id_token") or ""), begun.nonce)
        access_token = told.get("access_token")
        if provider.userinfo_endpoint and isinstance(access_token, str):
            claims = await self._completed(provider, claims, access_token)
        return oidc.who(claims, self._groups_claim), begun.target

    def way_out(self, base: str) -> str:
        """Where the provider's session ends, "" when nobody knows."""
        if self._provider is None:
            return ""
        ours = urlsplit(self._redirect_url)
        back = f"{ours.scheme}://{ours.netloc}{base}/login"
        return oidc.way_out(self._provider[0], self._client_id, back)

    # --- asking ---

    async def _ask_provider(self) -> Provider:
        now_s = self._clock_s()
        if self._provider is None or now_s - self._provider[1] > limits.ADMIN_OIDC_KNOWN_S:
            place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            self._provider = (oidc.read_provider(self._issuer, await self._get(place)), now_s)
        return self._provider[0]

    async def _check(self, provider: Provider, token: str, nonce: str) -> dict[str, Any]:
        """A key that is not known may be new: then the keys are asked for again, now and then."""
        now_s = self._clock_s()
        keys, asked_s = self._keys or (None, 0.0)
        if keys is None or now_s - asked_s > limits.ADMIN_OIDC_KNOWN_S:
            keys, asked_s = await self._ask_keys(provider, now_s)
        try:
            return oidc.check_token(token, keys, self._issuer, self._client_id, nonce, now_s)
        except UnknownKey:
            if now_s - asked_s < limits.ADMIN_OIDC_KEYS_S:
                raise
        keys, _ = await self._ask_keys(provider, now_s)
        return oidc.check_token(token, keys, self._issuer, self._client_id, nonce, now_s)

    async def _ask_keys(self, provider: Provider, now_s: float) -> tuple[KeySet, float]:
        self._keys = (oidc.read_keys(await self._get(provider.jwks_uri)), now_s)
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
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
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
        if oidc.groups_in(claims, self._groups_claim) and "email" in claims:
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
