"""Logging in and out: two plain pages, because only an answer to a request can set a cookie.

The session's token is in a cookie that scripts can't read and other sites' pages don't send along.
A log-in always begins a new session, whatever cookie came with it.
"""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock import limits
from penstock.nsqadmin import access
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.gate import COOKIE, LoginRefused
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import plain

_FORM = """<p class="bad" role="alert">{error}</p>
<form method="post" action="{base}/login"><input type="hidden" name="next" value="{target}">
<label>Name<input name="name" autocomplete="username" required autofocus value="{name}"></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required>
</label><button>Log in</button></form>"""


def add(app: FastAPI, ground: Ground) -> None:
    @app.get(f"{ground.base}/login", include_in_schema=False)
    async def form(request: Request, next: str = "") -> Response:
        return _page(ground, request, next)

    @app.post(f"{ground.base}/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        return await _login(ground, request)

    @app.post(f"{ground.base}/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        if not access.is_foreign(request.headers):
            ground.gate.logout(request.cookies)
        response = RedirectResponse(f"{ground.base}/login", 303)
        response.delete_cookie(COOKIE, path=ground.base or "/")
        return response


async def _login(ground: Ground, request: Request) -> Response:
    remote = request.client.host if request.client else ""
    if access.is_foreign(request.headers) or not ground.gate.is_own_host(request.headers, remote):
        return _page(ground, request, "", "This request came from another site.", status=403)
    fields = await _fields(request)
    name, target = fields.get("name", "")[:200], fields.get("next", "")
    caller = Caller(name, Role.NONE, "login", remote)
    try:
        token = await ground.gate.login(name, fields.get("password", ""), remote)
    except LoginRefused as error:
        ground.done(caller, "login", {}, f"failed: {error}")
        status = 429 if error.wait_s else 401
        return _page(ground, request, target, f"{error}".capitalize() + ".", name, status)
    ground.done(caller, "login", {}, "")
    response = RedirectResponse(_own(ground, target), 303)
    response.set_cookie(
        COOKIE, token, httponly=True, samesite="lax", path=ground.base or "/",
        secure=ground.options.secure_cookie,
        max_age=ground.options.session_lifetime_ns // limits.SECOND,
    )  # fmt: skip
    return response


async def _fields(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.ADMIN_BODY_BYTES_MAX:
            return {}
    found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[0] for key, values in found.items()}


def _own(ground: Ground, target: str) -> str:
    """Where to go on: a page of ours and nothing else, however it is written."""
    plain = target.startswith("/") and not target.startswith("//") and "\\" not in target
    if not plain or not target.isprintable():
        return f"{ground.base}/"
    return f"{ground.base}{target}"


def _page(
    ground: Ground, request: Request, target: str, error: str = "", name: str = "",
    status: int = 200,
) -> HTMLResponse:  # fmt: skip
    text = _FORM.format(
        error=escape(error), base=escape(ground.base), target=escape(target), name=escape(name)
    )
    return plain.page(request, "Log in", "Penstock", text, status)
