"""A small OIDC provider for tests: real HTTP, real signed tokens, and it checks what it is sent.

Whoever comes is logged in as `claims` at once. `spoil` changes the claims of the next tokens, and
`sign` what they are signed with.
"""

import asyncio
import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, SECRET = "nsqadmin", "a secret/with+signs"

SHARED = b"a secret that stands among the public keys"

Claims = dict[str, Any]


class Provider:
    def __init__(self) -> None:
        self.claims: Claims = {"sub": "7", "email": "ann@x.example", "email_verified": True,
                               "groups": ["ops"]}  # fmt: skip
        self.userinfo: Claims = {}
        self.spoil: Callable[[Claims], Claims] = lambda claims: claims
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.sign: Callable[[Claims], str] = self._signed
        self.refuses = ""
        self.port = 80  # where the browser is sent back to: the daemon's, once it has one
        self.began: list[dict[str, str]] = []
        self.keys_asked = 0
        self.left: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    # --- its life ---

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/userinfo", self._userinfo)
        app.router.add_get("/logout", self._logout)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    # --- its pages ---

    async def _describe(self, request: web.Request) -> web.Response:
        return web.json_response({
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        })  # fmt: skip

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        self.began.append(asked)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        answer = {"state": asked["state"], "iss": self.issuer}
        if self.refuses:
            answer["error"] = self.refuses
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = asked
        raise web.HTTPFound(f"{self._ours(asked['redirect_uri'])}?{urlencode(answer)}")

    def _ours(self, url: str) -> str:
        return urlsplit(url)._replace(netloc=f"127.0.0.1:{self.port}").geturl()

    async def _token(self, request: web.Request) -> web.Response:
        fields = await request.post()
        pair = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        asked = self._codes.pop(str(fields["code"]), None)  # a code is good once
        digest = hashlib.sha256(str(fields["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or pair != f"{CLIENT_ID}:a%20secret%2Fwith%2Bsigns"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != fields["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now_s = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now_s, "exp": now_s + 300,
                  "nonce": asked["nonce"], **self.claims}  # fmt: skip
        token = self.sign(self.spoil(claims))
        return web.json_response({"id_token": token, "access_token": "at", "token_type": "Bearer"})

    def _signed(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    async def _keys(self, request: web.Request) -> web.Response:
        self.keys_asked += 1
        secret = {"kty": "oct", "k": base64.urlsafe_b64encode(SHARED).decode(), "kid": "shared"}
        return web.json_response({"keys": [self.key.as_dict(private=False), secret]})

    async def _userinfo(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer at"
        return web.json_response({"sub": self.claims["sub"], **self.userinfo})

    async def _logout(self, request: web.Request) -> web.Response:
        self.left.append(dict(request.query))
        raise web.HTTPFound(self._ours(request.query["post_logout_redirect_uri"]))
