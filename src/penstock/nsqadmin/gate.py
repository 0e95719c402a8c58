"""The gate for every request: it identifies the caller, and refuses forbidden requests.

The rules are `access.py`'s; here they meet a request. `remote` is the address that a connection
comes from; behind a proxy that -trusted-proxy-cidr names, the client is the last address in
X-Forwarded-For that is not such a proxy (`client_of`).

Failed log-ins are counted by client, and by user name: after a few the next ones have to wait,
whatever their password. A name has many more tries than a client, so that nobody can keep somebody
else out with five wrong passwords. The address of a proxy that names no client is not counted: it
is everybody's.
"""

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping

from penstock import limits
from penstock.errors import PenstockError
from penstock.net.gate import is_loopback_host
from penstock.net.listener import ListenAddress
from penstock.nsqadmin import access
from penstock.nsqadmin.access import Caller, Claimed, Role, Rules
from penstock.nsqadmin.options import TRUSTED_BY_DEFAULT, Options, read_network
from penstock.nsqadmin.store import TOKEN_PREFIX, Session, Store, is_password

COOKIE = "penstock_admin"
CSRF_HEADER = "x-csrf-token"
_FORWARDED = "x-forwarded-for"
_TRIED_MAX = 10_000  # names and addresses with failed log-ins that are remembered


class Forbidden(PenstockError):
    """The caller may not do this; the text explains it."""


class LoginWanted(Forbidden):
    """The request needs a login."""


class LoginRefused(PenstockError):
    def __init__(self, wait_s: float = 0.0) -> None:
        text = f"too many tries: wait {wait_s:.0f} s" if wait_s else "wrong name or password"
        super().__init__(text)
        self.wait_s = wait_s


class Gate:
    def __init__(
        self, options: Options, store: Store, address: ListenAddress,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._options = options
        self._store = store
        self._host = address.host.strip("[]")
        self._is_loopback = is_loopback_host(self._host)
        self._trusted = [read_network("trusted-proxy-cidr", one)
                         for one in options.trusted_proxy_cidr]  # fmt: skip
        self._is_trust_given = options.trusted_proxy_cidr != TRUSTED_BY_DEFAULT
        self._hashing = asyncio.Semaphore(limits.ADMIN_LOGINS_AT_ONCE)
        self._config_network = options.allow_config_from_cidr and read_network(
            "allow-config-from-cidr", options.allow_config_from_cidr
        )
        self._group_roles = access.read_group_roles(options.group_role)
        groups = options.acl_groups_header if self._group_roles else ""
        self._headers = options.acl_http_header, options.acl_email_header, groups
        self._tries = Tries(clock_s, limits.ADMIN_LOGIN_WAIT_S)
        self._refusals = Tries(clock_s, limits.ADMIN_REFUSAL_S)
        self.lifetime_s = options.session_lifetime_ns / limits.SECOND  # of a session, without use

    # --- callers ---

    def rules(self) -> Rules:
        options = self._options
        exposed = not self._is_loopback and options.read_only != "false"
        has_logins = bool(options.oidc_issuer) or self._store.has_users()
        wanted = options.login == "required" or (options.login == "auto" and has_logins)
        return Rules(
            admin_users=options.admin_user,
            group_roles=self._group_roles,
            login_wanted=wanted,
            anonymous_role=Role.VIEW if exposed else Role.DESTROY,
            read_only=options.read_only == "true",
        )

    def caller(self, headers: Mapping[str, str], cookies: Mapping[str, str], remote: str) -> Caller:
        """`headers` has its names in lower case."""
        found = self._known_as(headers, cookies, remote)
        return found._replace(role=self._role(found))

    def _known_as(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], remote: str
    ) -> Caller:
        """Without the role. An unknown token is nobody's, whatever else a request has."""
        client, none = self.client_of(headers, remote), Role.NONE
        if token := _token_in(headers):
            held = self._store.token(token)
            if held is not None:
                self._store.use_token(held)
            return Caller(held.name if held else "", none, "token", client)
        if session := self.session(cookies):
            how, claims = "oidc" if session.claimed else "session", session.claimed
            return Caller(session.user, none, how, client, session.key, claims)
        claimed = access.claimed_in(headers, *self._headers)
        if claimed is not None and self._believes(headers, remote):
            return Caller(claimed.name, none, "header", client, claimed=claimed)
        is_own = self.is_own_host(headers, remote)
        return Caller("", none, "anonymous" if is_own else "foreign", client)

    def _role(self, one: Caller) -> Role:
        rules = self.rules()
        if one.claimed is not None:
            return rules.of_claimed(one.how, one.claimed, self._known(one.claimed))
        if one.how in ("anonymous", "foreign"):
            return rules.of_anonymous() if one.how == "anonymous" else Role.NONE
        holders = self._store.tokens if one.how == "token" else self._store.users
        roles = [each.role for each in holders("WHERE name = ?", one.name)]
        return rules.limit(max(roles, default=Role.NONE))

    def client_of(self, headers: Mapping[str, str], remote: str) -> str:
        """The sender of a request behind the proxies that the flag names."""
        return self.counted(headers, remote) or remote

    def counted(self, headers: Mapping[str, str], remote: str) -> str:
        """The address that wrong passwords count against; "" when it is unknown: all users share
        that of a named proxy."""
        is_proxy = self._is_trust_given and access.within(remote, self._trusted)
        return self._passed_on(headers) if is_proxy else remote

    def _passed_on(self, headers: Mapping[str, str]) -> str:
        """The last address that is no proxy's; "" without one."""
        for address in map(str.strip, reversed(headers.get(_FORWARDED, "").split(","))):
            if access.read_ip(address) is None:
                return ""
            if not access.within(address, self._trusted):
                return address
        return ""

    def _believes(self, headers: Mapping[str, str], remote: str) -> bool:
        """Whether the header with the user's name counts."""
        if not access.within(remote, self._trusted):
            return False
        own = access.is_own_host(headers.get("host", ""), self._host)
        return self._is_trust_given or (own and not self.rules().login_wanted)

    def _known(self, claimed: Claimed) -> Role | None:
        """The highest role of the local users that may be meant."""
        found = [self._store.user(name) for name in claimed.names]
        return max((user.role for user in found if user is not None), default=None)

    def session(self, cookies: Mapping[str, str]) -> Session | None:
        token = cookies.get(COOKIE, "")
        return self._store.session(token, self.lifetime_s) if token else None

    def renew(self, cookies: Mapping[str, str]) -> bool:
        """Activity of a person extends the session. False without a session, and for one by a
        provider, whose end is fixed."""
        session = self.session(cookies)
        if session is None or session.claimed is not None:
            return False
        self._store.renew(session, self.lifetime_s)
        return True

    def held(self, caller: Caller) -> Role:
        """The present permissions of the caller of a page that was opened earlier."""
        if caller.session and not self._store.has_session(caller.session, self.lifetime_s):
            return Role.NONE
        if caller.how == "header" and not self._is_trust_given and self.rules().login_wanted:
            return Role.NONE
        role = self._role(caller)
        return min(caller.role, role) if caller.how == "anonymous" else role

    # --- permissions ---

    def check(self, caller: Caller, role: Role) -> None:
        if caller.role >= role:
            return
        if caller.how == "foreign":
            raise Forbidden(
                "the Host header names no address of this machine; a proxy that passes its own name"
                " on has to be named by -trusted-proxy-cidr"
            )
        if caller.role == Role.NONE and caller.claimed is not None:
            raise Forbidden(f"{caller.shown} has logged in, and none of the groups"
                            f" ({', '.join(caller.claimed.groups) or 'none were given'}) has a role"
                            " here: see -group-role")  # fmt: skip
        if caller.role == Role.NONE:
            raise LoginWanted("log in first")
        if self.rules().read_only:
            raise Forbidden("nsqadmin runs with -read-only")
        raise Forbidden(f"{caller.shown} may {caller.role.name.lower()}, "
                        f"this needs the role {role.name.lower()}")  # fmt: skip

    def check_change(
        self, caller: Caller, role: Role, headers: Mapping[str, str], cookies: Mapping[str, str]
    ) -> None:
        self.check(caller, role)
        if access.is_foreign(headers):
            raise Forbidden("another site's page has sent this request")
        if caller.session:
            session = self.session(cookies)
            given = headers.get(CSRF_HEADER, "")
            if session is None or not hmac.compare_digest(session.csrf.encode(), given.encode()):
                raise Forbidden(f"the header {CSRF_HEADER} with the session's token is missing")

    def is_own_host(self, headers: Mapping[str, str], remote: str) -> bool:
        """Whether a browser that sends this could only have meant us."""
        if not self._is_loopback or access.is_own_host(headers.get("host", ""), self._host):
            return True
        return self._is_trust_given and access.within(remote, self._trusted)

    def may_configure(self, remote: str) -> bool:
        network = self._config_network
        return not network or access.within(remote, [network])

    # --- logging in ---

    async def login(self, name: str, password: str, remote: str) -> str:
        """The token of a new session; `remote` is the address that counts. LoginRefused."""
        await self.prove(name, password, remote)
        return self._store.begin_session(name, lifetime_s=self.lifetime_s)

    async def prove(self, name: str, password: str, remote: str) -> None:
        """Raises LoginRefused for a wrong password, and after too many attempts."""
        keys: dict[tuple[str, ...], int] = {("name", name): limits.ADMIN_LOGIN_TRIES_OF_NAME}
        if remote:
            keys["address", remote] = limits.ADMIN_LOGIN_TRIES
        self._tries.check(keys)
        for key in keys:  # counted before, so that many at once are counted too
            self._tries.failed(key)
        wanted = self._store.password_hash(name)
        async with self._hashing:
            is_right = await asyncio.to_thread(is_password, password, wanted)
        if not is_right or self._store.user(name) is None:
            raise LoginRefused
        for key in keys:
            self._tries.forget(key)

    def login_by_provider(self, claimed: Claimed, remote: str) -> str:
        """The token of a new session. Forbidden when the provider's user may do nothing here."""
        caller = Caller(claimed.name, Role.NONE, "oidc", remote, claimed=claimed)
        self.check(caller._replace(role=self._role(caller)), Role.VIEW)
        return self._store.begin_session(claimed.name, claimed, self.lifetime_s)

    def is_new_refusal(self, *key: str) -> bool:
        """Should it be recorded? Not repeatedly: nobody may fill the disk with them."""
        return self._refusals.failed(key) == 1


class Tries:
    """What failed, by key: (how often, when last), until nothing of it failed for a while."""

    def __init__(self, clock_s: Callable[[], float], while_s: float) -> None:
        self._clock_s = clock_s
        self._while_s = while_s
        self._failed: dict[tuple[str, ...], tuple[int, float]] = {}

    def check(self, keys: Mapping[tuple[str, ...], int]) -> None:
        """Checks by key, with the number of its attempts."""
        wait_s = max(self._wait_s(key, most) for key, most in keys.items())
        if wait_s > 0:
            raise LoginRefused(max(wait_s, 1.0))

    def _wait_s(self, key: tuple[str, ...], most: int) -> float:
        count, at_s = self._failed.get(key, (0, 0.0))
        over = count >= most
        return at_s + self._while_s - self._clock_s() if over else 0.0

    def failed(self, key: tuple[str, ...]) -> int:
        now_s = self._clock_s()
        count, at_s = self._failed.pop(key, (0, now_s))
        count = 1 if now_s - at_s >= self._while_s else count + 1
        self._failed[key] = count, now_s
        if len(self._failed) > _TRIED_MAX:
            del self._failed[next(iter(self._failed))]
        return count

    def forget(self, key: tuple[str, ...]) -> None:
        self._failed.pop(key, None)


def _token_in(headers: Mapping[str, str]) -> str:
    """The token of a program; "" when it is none of ours."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(TOKEN_PREFIX) else ""
