"""Logging in and out: two plain pages, because only an answer to a request can set a cookie.

The session's token is in a cookie that scripts can't read and other sites' pages don't send along.
A log-in always begins a new session, whatever cookie came with it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock import limits
from penstock.nsqadmin import access
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import ApiError, body_of
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.gate import COOKIE, Forbidden, LoginRefused
from penstock.nsqadmin.options import CALLBACK
from penstock.nsqadmin.pages.style import plain
from penstock.nsqadmin.store import StoreFailed

if TYPE_CHECKING:
    from penstock.nsqadmin.oidc import OidcLogin

_BEGUN = "penstock_oidc"  # the cookie of a log-in by a provider that is on its way
_ERROR = """<p class="bad" role="alert">{error}</p>
"""
_PROVIDER = """<p><a class="way" href="{base}/login/oidc?next={next}">Log in with {provider}</a></p>
"""
_GONE = """<p>You have logged out here. <a href="{way}">Log out of {provider}, too</a></p>
"""
_FORM = """<form method="post" action="{base}/login">
<input type="hidden" name="next" value="{target}">
<label>Name<input name="name" autocomplete="username" required autofocus value="{name}"></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required>
</label><button>Log in</button></form>"""


def add(app: FastAPI, deps: Deps) -> None:
    @app.get(f"{deps.base}/login", include_in_schema=False)
    async def form(request: Request, next: str = "", out: str = "") -> Response:
        way_out = await deps.oidc.way_out(deps.base) if out and deps.oidc else ""
        return _page(deps, request, next, way_out=way_out)

    @app.post(f"{deps.base}/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        remote = request.client.host if request.client else ""
        if access.is_foreign(request.headers) or not deps.gate.is_own_host(request.headers, remote):
            return _page(deps, request, "", "This request came from another site.", status=403)
        fields = await _fields(request)
        name, target = fields.get("name", "")[:200], fields.get("next", "")
        caller = Caller(name, Role.NONE, "login", _client(deps, request))
        try:
            counted = deps.gate.counted(request.headers, remote)
            token = await deps.gate.login(name, fields.get("password", ""), counted)
            deps.audit.done(caller, "login")
        except LoginRefused as error:
            if not error.wait_s or deps.gate.is_new_refusal(caller.remote, "login"):
                deps.audit.note(caller, "login", f"failed: {error}")
            status = 429 if error.wait_s else 401
            return _page(deps, request, target, f"{error}".capitalize() + ".", name, status)
        except StoreFailed as error:
            return _page(deps, request, target, f"You can't log in now: {error}.", name, 503)
        return _keep(deps, RedirectResponse(_own(deps, target), 303), token, secure=False)

    @app.post(f"{deps.base}/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        session = deps.gate.session(request.cookies)
        by_provider = session is not None and session.claimed is not None
        if session is not None and not access.is_foreign(request.headers):
            how = "oidc" if by_provider else "session"
            caller = Caller(session.user, Role.NONE, how, _client(deps, request))
            deps.store.end_session(session.key)
            deps.audit.note(caller, "logout", "ok")
        more = "?out=1" if by_provider else ""  # it is left by a link: a form leads to us only
        response = RedirectResponse(f"{deps.base}/login{more}", 303)
        response.delete_cookie(COOKIE, path=deps.base or "/")
        return response

    @app.post(f"{deps.base}/session", include_in_schema=False)
    async def renew(request: Request) -> Response:
        """A page reports activity of its person."""
        if access.is_foreign(request.headers) or not deps.gate.renew(request.cookies):
            return Response(status_code=403)
        return _keep(deps, Response(status_code=204), request.cookies[COOKIE], False)

    if deps.oidc is not None:
        _add_provider(app, deps, deps.oidc)


def _add_provider(app: FastAPI, deps: Deps, oidc: OidcLogin) -> None:
    from penstock.nsqadmin.oidc import OidcFailed

    path = f"{deps.base}/login/oidc"
    secure = deps.options.oidc_redirect_url.startswith("https:")

    @app.get(path, include_in_schema=False)
    async def leave(request: Request, next: str = "") -> Response:
        try:
            way, cookie = await oidc.begin(next)
        except OidcFailed as error:
            return _page(deps, request, next, f"{error}".capitalize() + ".", status=502)
        response = RedirectResponse(way, 303)
        response.set_cookie(
            _BEGUN, cookie, max_age=limits.ADMIN_OIDC_S, path=path, httponly=True,
            samesite="lax", secure=secure,
        )  # fmt: skip
        return response

    @app.get(f"{deps.base}{CALLBACK}", include_in_schema=False)
    async def come_back(request: Request) -> Response:
        remote, name = _client(deps, request), ""
        try:
            cookie = request.cookies.get(_BEGUN, "")
            claimed, target = await oidc.finish(request.query_params, cookie)
            name = claimed.name
            token = deps.gate.login_by_provider(claimed, remote)
            deps.audit.done(Caller(name, Role.NONE, "oidc", remote), "login")
        except (OidcFailed, Forbidden, StoreFailed) as error:
            caller = Caller(name, Role.NONE, "oidc", remote)
            deps.audit.note(caller, "login", f"failed: {error}")
            status = {Forbidden: 403, StoreFailed: 503}.get(type(error), 401)
            response: Response = _page(deps, request, "", f"{error}.", status=status)
        else:
            response = _keep(deps, RedirectResponse(_own(deps, target), 303), token, secure)
        response.delete_cookie(_BEGUN, path=path)
        return response


def _keep(deps: Deps, response: Response, token: str, secure: bool) -> Response:
    """The browser has the session for its lifetime from now on."""
    response.set_cookie(
        COOKIE, token, httponly=True, samesite="lax", path=deps.base or "/",
        secure=deps.options.secure_cookie or secure,
        max_age=deps.options.session_lifetime_ns // limits.SECOND,
    )  # fmt: skip
    return response


def _client(deps: Deps, request: Request) -> str:
    remote = request.client.host if request.client else ""
    return deps.gate.client_of(request.headers, remote)


async def _fields(request: Request) -> dict[str, str]:
    try:
        body = await body_of(request, "")
    except ApiError:
        return {}
    found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[0] for key, values in found.items()}


def _own(deps: Deps, target: str) -> str:
    """The page to continue with: one of ours, however it is written."""
    is_plain = target.startswith("/") and not target.startswith("//") and "\\" not in target
    if not is_plain or not target.isprintable():
        return f"{deps.base}/"
    return f"{deps.base}{target}"


def _page(
    deps: Deps, request: Request, target: str, error: str = "", name: str = "",
    status: int = 200, way_out: str = "",
) -> HTMLResponse:  # fmt: skip
    oidc, parts = deps.oidc, [_ERROR] if error else []
    if oidc is not None:
        parts += [_GONE, _PROVIDER] if way_out else [_PROVIDER]
    if oidc is None or deps.store.has_users():
        parts.append(_FORM)
    shown = {"base": deps.base, "target": target, "name": name, "error": error, "way": way_out,
             "next": quote(target, safe=""),
             "provider": oidc.provider_name if oidc else ""}  # fmt: skip
    texts = {key: escape(value) for key, value in shown.items()}
    return plain(request, "Log in", "Penstock", "".join(parts).format(**texts), status)
