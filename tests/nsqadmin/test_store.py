"""What is kept across restarts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, NotFound
from penstock.nsqadmin.access import Claimed, Role
from penstock.nsqadmin.pages.people import put_user
from penstock.nsqadmin.store import Store

HOUR_S = 3600.0
HASHED = "00:11"  # of some password
ANN = Claimed("ann@x", "ann@x", ("ops", "sre"))


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def store(tmp_path: Path, clock: _Clock) -> Iterator[Store]:
    made = Store(tmp_path, clock)
    yield made
    made.close()


def test_a_file_of_before_is_taken_over(tmp_path: Path) -> None:
    for _ in range(2):
        store = Store(tmp_path)
        store.put_user("ann", HASHED, Role.VIEW)
        session = store.session(store.begin_session("ann"), HOUR_S)
        assert session is not None
        assert (session.user, session.claimed) == ("ann", None)
        store.close()


def test_a_provider_s_session_ends_used_or_not(store: Store, clock: _Clock) -> None:
    store.put_user("bo", HASHED, Role.VIEW)
    tokens = store.begin_session("ann@x", ANN), store.begin_session("bo")
    clock.now_s -= 5  # it was ahead, and is set right
    assert all(store.session(token, HOUR_S) for token in tokens)
    clock.now_s += 5
    for _ in range(3):
        clock.now_s += HOUR_S / 2 - 1
        found = [store.session(token, HOUR_S) for token in tokens]
        for session in found:
            if session is not None:
                store.renew(session, HOUR_S)
    by_provider, by_password = found
    assert by_provider is None
    assert by_password is not None
    clock.now_s += HOUR_S
    assert store.session(tokens[1], HOUR_S) is None
    clock.now_s -= HOUR_S  # a clock that is set back brings nothing back
    assert store.session(tokens[1], HOUR_S) is None


def test_a_local_user_of_the_same_name_is_another(store: Store) -> None:
    token = store.begin_session("ann@x", ANN)
    store.put_user("ann@x", HASHED, Role.DESTROY)
    store.remove_user("ann@x")
    session = store.session(token, HOUR_S)
    assert session is not None
    assert (session.claimed, session.user) == (ANN, ANN.name)
    store.end_session(session.key)
    assert store.session(token, HOUR_S) is None


def test_sessions_and_logins_are_listed_without_tokens(store: Store, clock: _Clock) -> None:
    store.put_user("bo", HASHED, Role.VIEW)
    token = store.begin_session("bo")
    store.begin_session("ann@x", ANN)
    store.begin("bo", "login", "::1", [("login", "")], result="ok")
    clock.now_s += 10
    store.begin("bo", "login", "::1", [("login", "")], result="failed: wrong")
    assert store.last_logins() == {"bo": 1000.0}
    answer = store.sessions(HOUR_S)
    assert sorted((one.user, bool(one.claimed)) for one in answer) == [
        ("ann@x", True),
        ("bo", False),
    ]
    assert token not in str(answer)
    clock.now_s += HOUR_S
    assert store.sessions(HOUR_S) == []
    store.begin_session("bo", lifetime_s=HOUR_S)  # those that nobody has ended go
    assert store._db.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


def test_two_who_take_the_last_roles_from_each_other(store: Store) -> None:
    for name in ("ann", "bo"):
        store.put_user(name, HASHED, Role.DESTROY)

    async def at_once() -> list[object]:
        lowered = (put_user(store, name, "correct horse", "view") for name in ("ann", "bo"))
        return await asyncio.gather(*lowered, return_exceptions=True)

    refused = [one for one in asyncio.run(at_once()) if isinstance(one, ConfigError)]
    assert len(refused) == 1
    assert Role.DESTROY in [one.role for one in store.users()]


def test_another_password_ends_the_other_sessions(store: Store) -> None:
    store.put_user("bo", HASHED, Role.OPERATE)
    tokens = [store.begin_session("bo") for _ in range(2)]
    kept = store.session(tokens[0], HOUR_S)
    assert kept is not None
    store.set_password("bo", "00:22", keep=kept.key)
    assert store.password_hash("bo") == "00:22"
    assert [bool(store.session(token, HOUR_S)) for token in tokens] == [True, False]
    user = store.user("bo")
    assert user is not None
    assert user.role is Role.OPERATE
    with pytest.raises(NotFound):
        store.set_password("nobody", "00:22", keep="")


def test_the_audit_log_is_narrowed(store: Store, clock: _Clock) -> None:
    for who, action, result in (
        ("ann", "pause_topic", "ok"),
        ("bo", "pause_topic", "failed: gone"),
        ("bo", "delete%topic", "WARNING: one"),
    ):
        clock.now_s += 1
        store.begin(who, "local", "::1", [(action, "orders")], result=result)
    asked: list[tuple[dict[str, Any], int]] = [
        ({}, 3),
        ({"who": "B"}, 2),
        ({"action": "pause"}, 2),
        ({"action": "%"}, 1),
        ({"target": "order", "result": "ok"}, 1),
        ({"result": "failed"}, 1),
        ({"result": "warning"}, 1),
        ({"since_s": 1002.0}, 2),
        ({"until_s": 1002.0}, 2),
        ({"who": "' OR 1=1 --"}, 0),
    ]
    for narrowed, count in asked:
        assert len(store.audit(**narrowed)) == count, narrowed


def test_the_use_of_a_token_is_written_down_now_and_then(tmp_path: Path) -> None:
    """Also after a clock that was ahead."""
    clock = _Clock()
    store = Store(tmp_path, clock)
    secret = store.put_token("ci", Role.OPERATE)
    assert [tuple(one) for one in store.tokens()] == [("ci", Role.OPERATE, 1000.0, 0.0)]
    for now_s, used_s in ((1000.0, 1000.0), (1029.0, 1000.0), (1030.0, 1030.0), (900.0, 900.0)):
        clock.now_s = now_s
        found = store.token(secret)
        assert found is not None
        store.use_token(found)
        assert [one.used_s for one in store.tokens()] == [used_s]
    store.close()
