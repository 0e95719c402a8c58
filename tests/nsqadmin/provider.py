"""A small OIDC provider for tests: real HTTP, real signed tokens, and it checks what it is sent.

Whoever comes is logged in as `claims` at once. `spoil` changes the claims of the next tokens, and
`sign` what they are signed with.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from e2e.answering import Answer, Answering

CLIENT_ID, SECRET = "nsqadmin", "a secret/with+signs"

SHARED = b"a secret that stands among the public keys"

Claims = dict[str, Any]


def json_answer(document: Claims, status: int = 200) -> Answer:
    return status, json.dumps(document).encode(), {"Content-Type": "application/json"}


class Provider(Answering):
    def __init__(self) -> None:
        super().__init__()
        self.issuer = self.url
        self.claims: Claims = {"sub": "7", "email": "ann@x.example", "email_verified": True,
                               "groups": ["ops"]}  # fmt: skip
        self.userinfo: Claims = {}
        self.spoil: Callable[[Claims], Claims] = lambda claims: claims
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.sign: Callable[[Claims], str] = self._signed
        self.refuses = ""
        self.browser_port = 80  # where the browser is sent back to: the daemon's, once it has one
        self.began: list[dict[str, str]] = []
        self.keys_asked = 0
        self.left: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        url = urlsplit(path)
        query = dict(parse_qsl(url.query))
        match method, url.path:
            case "GET", "/.well-known/openid-configuration":
                return json_answer(self._description())
            case "GET", "/authorize":
                return self._authorize(query)
            case "POST", "/token":
                return self._token(dict(parse_qsl(body.decode())), headers["Authorization"])
            case "GET", "/keys":
                return self._keys()
            case "GET", "/userinfo":
                assert headers["Authorization"] == "Bearer at"
                return json_answer({"sub": self.claims["sub"], **self.userinfo})
            case "GET", "/logout":
                self.left.append(query)
                return self._sent_back(query["post_logout_redirect_uri"])
        return json_answer({}, 404)

    def _description(self) -> Claims:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        }

    def _authorize(self, asked: dict[str, str]) -> Answer:
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
        return self._sent_back(asked["redirect_uri"], f"?{urlencode(answer)}")

    def _sent_back(self, url: str, query: str = "") -> Answer:
        ours = urlsplit(url)._replace(netloc=f"127.0.0.1:{self.browser_port}").geturl()
        return 302, b"", {"Location": ours + query}

    def _token(self, fields: dict[str, str], authorization: str) -> Answer:
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        asked = self._codes.pop(fields["code"], None)  # a code is good once
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or pair != f"{CLIENT_ID}:a%20secret%2Fwith%2Bsigns"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != fields["redirect_uri"]
        ):
            return json_answer({"error": "invalid_grant"}, 400)
        now_s = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now_s, "exp": now_s + 300,
                  "nonce": asked["nonce"], **self.claims}  # fmt: skip
        token = self.sign(self.spoil(claims))
        return json_answer({"id_token": token, "access_token": "at", "token_type": "Bearer"})

    def _signed(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def _keys(self) -> Answer:
        self.keys_asked += 1
        secret = {"kty": "oct", "k": base64.urlsafe_b64encode(SHARED).decode(), "kid": "shared"}
        return json_answer({"keys": [self.key.as_dict(private=False), secret]})


def flags_of(provider: Provider, path: Path) -> tuple[str, ...]:
    """Those of an nsqadmin whose secret lies in `path`."""
    secret = path / "secret"
    secret.write_text(f"{SECRET}\n")
    return (
        f"-oidc-issuer={provider.issuer}", f"-oidc-client-id={CLIENT_ID}",
        f"-oidc-client-secret-file={secret}",
        "-oidc-redirect-url=http://127.0.0.1/login/oidc/callback",
        "-group-role=ops=operate", "-group-role=sre=destroy",
    )  # fmt: skip
