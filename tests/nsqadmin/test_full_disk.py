"""nsqadmin that can't write: what can't be written down is not done, pages stay up, and it goes on
by itself; files that are damaged; two on one directory."""

import json
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from e2e.daemon import DaemonFailed
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.history import History
from penstock.nsqadmin.snapshot import Snapshot, TopicState
from penstock.nsqadmin.store import Store, StoreFailed

from .conftest import Installation
from .running import Admin, logged_in, with_users

DAY_S = 86_400.0


@contextmanager
def full_disk(pid: int = 0) -> Iterator[None]:
    """No file of this process may become longer than nothing: a write fails, as on a full disk."""
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(with_users(tmp_path, ann=Role.DESTROY))
    yield store
    store.close()


def test_nothing_is_half_written(store: Store) -> None:
    token = store.begin_session("ann")
    with full_disk():
        for write in (
            lambda: store.begin("ann", "session", "", [("a", "t"), ("b", "t")]),
            lambda: store.put_user("ann", "0:0", Role.VIEW),
            lambda: store.set_password("ann", "0:0", keep=""),
            lambda: store.remove_user("ann"),
            lambda: store.begin_session("ann"),
        ):
            with pytest.raises(StoreFailed, match=r"admin\.db can't be written"):
                write()
        user = store.user("ann")
        assert user is not None
        assert user.role is Role.DESTROY
        assert store.session(token, DAY_S) is not None
    assert store.audit() == []
    ids = store.begin("ann", "session", "", [("create_topic", "t"), ("create_channel", "t/c")])
    assert [one.result for one in store.audit()] == ["begun", "begun"]
    store.end(ids, "ok")
    found = [(one.id, one.action, one.result) for one in store.audit()][::-1]
    assert found == [(ids[0], "create_topic", "ok"), (ids[1], "create_channel", "ok")]


def test_a_file_that_another_program_holds_stops_nothing_for_long(store: Store) -> None:
    """All pages wait for it in the event loop."""
    with closing(sqlite3.connect(store._path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun_s = time.monotonic()
        with pytest.raises(StoreFailed, match="locked"):
            store.begin_session("ann")
        assert time.monotonic() - begun_s < 5


def test_a_session_ends_also_without_a_disk(store: Store) -> None:
    session = store.session(store.begin_session("ann"), DAY_S)
    assert session is not None
    with full_disk():
        store.renew(session, 0.0)  # its use need not be noted
        store.end_session(session.key)
        assert not store.has_session(session.key, DAY_S)
    assert not store.has_session(session.key, DAY_S)


def test_charts_lose_only_unwritten_minutes(tmp_path: Path) -> None:
    """Also a series that was new then, and values that do not move are written again."""
    history = History(tmp_path, DAY_S)

    def minute(number: int, *names: str) -> None:
        topics = {name: TopicState(name, in_rate=5.0) for name in names}
        history.take(Snapshot(60.0 * (1_000_000 + number), topics=topics))

    minute(0, "old")
    minute(1, "old")
    assert history.troubles == []
    with full_disk():
        minute(2, "old", "new")
        minute(3, "old", "new")
        minute(4, "old", "new")
        assert "history.db can't be written" in history.troubles[0]
    for number in (5, 6, 7):
        minute(number, "old", "new")
    assert history.troubles == []
    begin_s = 60.0 * 1_000_000
    samples = {name: history.minutes(name, begin_s, begin_s + 60 * 6) for name in ("old", "new")}
    known = {name: [one.values is not None for one in found] for name, found in samples.items()}
    assert known["old"] == [True, False, False, False, True, True, True]
    assert known["new"] == [True, True, True]
    history.close()


def test_an_action_is_refused_and_done_when_there_is_room_again(
    installation: Installation, tmp_path: Path
) -> None:
    path = tmp_path / "admin"
    with closing(Store(with_users(path, dora=Role.DESTROY))) as store:
        headers = logged_in(store, "dora")
    with Admin(path, installation.of_nsqd) as admin:
        made = {"topic": "room"}
        assert admin.request("GET", "/ping")[0] == 200  # it is up
        with full_disk(admin.pid):
            status, body, _ = admin.request("POST", "/api/topics", made, headers)
            assert status == 503
            assert json.loads(body)["message"].startswith("STORE_FAILED: not done, because the")
            assert "room" not in admin_topics(admin, headers)
            assert admin.request("PUT", "/config/log_level", b"debug", headers)[0] == 503
            for page in ("/", "/topics", "/audit", "/users"):
                assert admin.request("GET", page, headers=headers)[0] == 200
            assert admin.log_in("dora", "wrong")[0] == 401
            assert admin.log_in("dora")[0] == 503
        assert admin.request("POST", "/api/topics", made, headers)[0] == 200
        assert "room" in admin_topics(admin, headers)
        assert admin.log_in("dora")[0] == 303
        assert admin.request("DELETE", "/api/topics/room", None, headers)[0] == 200
    store = Store(path)
    done = [(one.action, one.result) for one in store.audit()][::-1]
    store.close()
    assert done == [("create_topic", "ok"), ("login", "ok"), ("delete_topic", "ok")]


def admin_topics(admin: Admin, headers: dict[str, str]) -> list[str]:
    found: list[str] = json.loads(admin.request("GET", "/api/topics", headers=headers)[1])["topics"]
    return found


@pytest.mark.parametrize(("name", "loss"), [("admin.db", "users and the audit log"),
                                            ("history.db", "charts")])  # fmt: skip
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, name: str, loss: str) -> None:
    path = tmp_path / "admin"
    path.mkdir()
    (path / name).write_bytes(b"this is no database, " * 500)
    with pytest.raises(DaemonFailed) as raised:
        Admin(path, "-nsqd-http-address=127.0.0.1:1").start()
    text = str(raised.value)
    assert f"FATAL: failed to start nsqadmin - {path / name} can't be used" in text
    assert f"move it and its -wal and -shm away: {loss}" in text
    assert "Traceback" not in text


def test_a_page_that_was_overwritten_is_found(tmp_path: Path) -> None:
    """Not only a head that says what it is."""
    with_users(tmp_path, ann=Role.DESTROY)
    database = sqlite3.connect(tmp_path / "admin.db")
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'users'"
    (page,) = database.execute(query).fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with (tmp_path / "admin.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(Exception, match=r"admin\.db can't be used"):
        Store(tmp_path)


def test_two_on_one_directory(installation: Installation, tmp_path: Path) -> None:
    """The second is told so; tools may still make users there."""
    path, asked = tmp_path / "admin", installation.of_nsqd
    with Admin(path, asked) as first:
        second = Admin(path, asked, stderr=tmp_path / "second.stderr")
        with pytest.raises(DaemonFailed, match="give each a -data-path of its own"):
            second.start()
        with_users(path, dora=Role.DESTROY)
        assert first.request("GET", "/api/topics")[0] == 401
        first.kill()
        first.start()
