"""Who is counted, known and written down: addresses behind proxies, sessions, tokens, refusals."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from e2e.lookupd import eventually
from penstock import limits
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.gate import COOKIE, LoginRefused, Tries
from penstock.nsqadmin.store import Entry, Store

from .conftest import Installation
from .running import PASSWORD, Admin, logged_in, with_users

TRIES = limits.ADMIN_LOGIN_TRIES


@contextmanager
def guarded(path: Path, *flags: str) -> Iterator[tuple[Admin, Store]]:
    with_users(path, ann=Role.DESTROY, bo=Role.VIEW)
    with closing(Store(path)) as store, Admin(path, *flags) as admin:
        yield admin, store


@pytest.fixture(scope="module")
def both(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Admin, Store]]:
    with guarded(tmp_path_factory.mktemp("gate") / "admin", installation.of_nsqd) as both:
        yield both


@pytest.fixture
def admin(both: tuple[Admin, Store]) -> Admin:
    return both[0]


@pytest.fixture
def store(both: tuple[Admin, Store]) -> Store:
    return both[1]


def log_in(admin: Admin, name: str, password: str = PASSWORD, by: str = "") -> int:
    """`by`: what a proxy says of where it comes from."""
    return admin.log_in(name, password, **({"X-Forwarded-For": by} if by else {}))[0]


def newest(store: Store, action: str) -> Entry:
    return next(one for one in store.audit(count=100) if one.action == action)


def test_wrong_passwords_behind_a_proxy_keep_out_only_their_client(
    installation: Installation, tmp_path: Path
) -> None:
    trusted = ("-trusted-proxy-cidr=127.0.0.1/32", "-trusted-proxy-cidr=10.0.0.0/8")
    guessing, other = "203.0.113.9, 10.0.0.2", "198.51.100.7"
    with guarded(tmp_path / "admin", installation.of_nsqd, *trusted) as (proxied, store):
        for _ in range(TRIES):
            assert log_in(proxied, "ann", "wrong", by=guessing) == 401
        for _ in range(3):
            assert log_in(proxied, "ann", by=guessing) == 429
        made_up = f"1.2.3.4, {guessing}"  # in front
        assert log_in(proxied, "bo", by=made_up) == 429
        assert log_in(proxied, "ann", by=other) == 303
        assert log_in(proxied, "ann") == 303  # the proxy itself, which is everybody: not counted
        entries = store.audit(count=100)
    logins = Counter(one.remote for one in entries if one.action == "login")
    assert logins.keys() == {"203.0.113.9", other, "127.0.0.1"}
    assert logins["203.0.113.9"] == TRIES + 1  # what must wait is written down once a minute


def test_a_forged_address_bypasses_nothing(admin: Admin, store: Store) -> None:
    """No flag names a proxy, so nobody's word for it counts."""
    for number in range(TRIES):
        assert log_in(admin, "ann", "wrong", by=f"203.0.113.{number}") == 401
    assert log_in(admin, "ann", by="198.51.100.7") == 429
    assert newest(store, "login").remote == "127.0.0.1"


def test_guesses_for_a_name_are_limited_across_clients() -> None:
    tries = Tries(lambda: 0.0, limits.ADMIN_LOGIN_WAIT_S)
    name = ("name", "ann")
    most = {name: limits.ADMIN_LOGIN_TRIES_OF_NAME}
    for _ in range(limits.ADMIN_LOGIN_TRIES_OF_NAME):
        tries.check(most)
        tries.failed(name)
    with pytest.raises(LoginRefused, match="too many tries"):
        tries.check(most)


def test_only_activity_keeps_a_session_alive(admin: Admin, store: Store) -> None:
    token = store.begin_session("ann")
    cookie = {"Cookie": f"{COOKIE}={token}"}
    store._db.execute("UPDATE sessions SET used_s = used_s - 3600")
    (before,) = store.sessions(86400)
    assert admin.request("GET", "/api/topics", headers=cookie)[0] == 200
    assert admin.request("GET", "/topics", headers=cookie)[0] == 200
    assert store.sessions(86400) == [before]
    status, _, headers = admin.request("POST", "/session", b"", cookie)
    assert status == 204
    assert headers["set-cookie"].startswith(f"{COOKIE}={token}; HttpOnly; Max-Age=43200")
    assert store.sessions(86400)[0].used_s > before.used_s + 3500
    foreign = cookie | {"Origin": "http://evil.example"}
    assert admin.request("POST", "/session", b"", foreign)[0] == 403
    assert admin.request("POST", "/session", b"")[0] == 403


def test_logouts_and_refusals_are_audited(
    admin: Admin, store: Store, installation: Installation
) -> None:
    headers = logged_in(store, "bo")
    for _ in range(3):
        assert admin.request("DELETE", "/api/topics/precious", None, headers)[0] == 403
    refused = [one for one in store.audit(count=100) if one.action == "request"]
    assert len(refused) == 1  # a script that goes on fills no disk
    assert (refused[0].who, refused[0].target) == ("bo", "DELETE /api/topics/precious")
    assert refused[0].result == "failed: bo may view, this needs the role destroy"
    assert admin.request("DELETE", "/api/topics/precious")[0] == 401  # nobody who is known
    assert admin.request("POST", "/logout", b"", headers)[0] == 303
    assert (newest(store, "logout").who, newest(store, "logout").result) == ("bo", "ok")
    assert len([one for one in store.audit(count=100) if one.action == "request"]) == 1


def test_a_token_lets_a_program_in_with_its_role(
    admin: Admin, store: Store, installation: Installation
) -> None:
    installation.nsqd.post("/topic/create?topic=automated")
    token = store.put_token("ci", Role.OPERATE)
    bearer = {"Authorization": f"Bearer {token}"}
    assert token.encode() not in Path(store._path).read_bytes()
    assert admin.request("GET", "/api/topics", headers=bearer)[0] == 200
    paused = admin.request("POST", "/api/topics/automated", {"action": "pause"}, bearer)
    assert paused[0] == 200
    entry = newest(store, "pause_topic")
    assert (entry.who, entry.how, entry.result) == ("ci", "token", "ok")
    status, body, _ = admin.request("DELETE", "/api/topics/automated", None, bearer)
    assert (status, json.loads(body)) == (403, {"message": "FORBIDDEN"})
    foreign = bearer | {"Origin": "http://evil.example"}
    act = {"action": "unpause"}
    assert admin.request("POST", "/api/topics/automated", act, foreign)[0] == 403
    store.remove_token("ci")
    eventually(lambda: admin.request("GET", "/api/topics", headers=bearer)[0] == 401)
    other = {"Authorization": "Bearer eyJhbGciOi.of.others"}  # as a proxy passes it on
    session = {"Cookie": f"{COOKIE}={store.begin_session('bo')}"}
    assert admin.request("GET", "/api/topics", headers=other | session)[0] == 200
    installation.nsqd.post("/topic/delete?topic=automated")
