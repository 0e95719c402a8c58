"""The persistent data of nsqadmin: users, sessions and the audit log, in one SQLite file.

An action is in the log before it is done: with the result "begun", which is then replaced. What
can't be written down is not done (`StoreFailed`), as when the disk is full. Ending a session always
works: what can't be written is remembered until nsqadmin ends.

`claimed` is "" for a local user, else what an OIDC provider has said of one (JSON). Such a session
ends so long after its log-in, used or not: only at the next one the provider is asked again.

The `used_s` of sessions and tokens is written down every half minute at most; that of a token is 0
before its first use.

The file and its directory are private. Tokens and passwords are kept as hashes only: who reads the
file can't log in with it. Calls are short and made in the event loop, but for hashing a password,
which takes a tenth of a second on purpose and belongs into a thread.
"""

import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock import limits
from penstock.errors import ConfigError, NotFound, PenstockError
from penstock.log.disk import Lock, OsDisk
from penstock.nsqadmin.access import ROLE_NAMES, Claimed, Role

log = logging.getLogger("penstock.nsqadmin.store")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
    name TEXT PRIMARY KEY, password TEXT NOT NULL, -- scrypt: salt and hash
    role TEXT NOT NULL, created_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    token TEXT PRIMARY KEY, -- SHA-256 of it
    user TEXT NOT NULL, csrf TEXT NOT NULL, created_s REAL NOT NULL, used_s REAL NOT NULL,
    claimed TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
    token TEXT PRIMARY KEY, -- SHA-256 of it
    name TEXT NOT NULL UNIQUE, role TEXT NOT NULL, created_s REAL NOT NULL, used_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, who TEXT NOT NULL, how TEXT NOT NULL,
    remote TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, detail TEXT NOT NULL,
    result TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS audit_time ON audit (time_s);
CREATE TABLE IF NOT EXISTS nodes (address TEXT PRIMARY KEY, heard_s REAL NOT NULL,
    told BLOB NOT NULL) WITHOUT ROWID; -- told: JSON, what it held (`noderecords.py`)
"""
_END_OF_USER = "DELETE FROM sessions WHERE user = ? AND claimed = ''"
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 64 << 20}  # 32 MiB, some 0.1 s


FILE = "admin.db"
TOKEN_PREFIX = "penstock_"  # so that other programs' bearer tokens, passed on by a proxy, are none
BEGUN = "begun"  # also what stays of an action in whose midst nsqadmin was killed


class StoreFailed(PenstockError):
    """The file can't be written, or read: the disk is full, or fails, or the file is damaged."""


class FileDamaged(PenstockError):
    """A file that prevents a start of nsqadmin."""


@contextmanager
def opened(path: Path, loss: str) -> Iterator[sqlite3.Connection]:
    """A private database; FileDamaged when its first statements fail."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        yield db
        db.execute(f"PRAGMA busy_timeout={limits.ADMIN_LOCK_MS}")
    except sqlite3.Error as error:
        db.close()
        raise FileDamaged(
            f"{path} can't be used ({error}); make room when its disk is full; when it is damaged,"
            " put back a copy of it, or move it and its -wal and -shm away:"
            f" {loss} then begin again"
        ) from error


def lock(directory: str) -> Lock:
    """One nsqadmin at a time writes the charts and keeps the sessions of a directory."""
    Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return OsDisk().lock(directory)
    except BlockingIOError as error:
        rule = "another nsqadmin runs with it: give each a -data-path of its own"
        raise ConfigError("data-path", directory, rule) from error


class Holder(NamedTuple):
    """The permissions of a user, or of a token, without the token itself."""

    name: str
    role: Role
    created_s: float
    used_s: float = 0.0  # of a token; 0: never


class Session(NamedTuple):
    key: str  # the hash of its token
    user: str
    csrf: str
    created_s: float
    used_s: float
    claimed: Claimed | None  # by a provider


class Entry(NamedTuple):
    id: int
    time_s: float
    who: str
    how: str
    remote: str
    action: str
    target: str
    detail: str
    result: str  # "ok", or what was said instead


class Store:
    def __init__(self, directory: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._path = directory / FILE
        self._clock_s = clock_s
        self._ended: set[str] = set()  # sessions that could not be taken out of the file
        with opened(self._path, "users and the audit log") as self._db:
            self._prepare()

    def _prepare(self) -> None:
        self._db.execute("PRAGMA synchronous=FULL")  # an action that is not in the log has not been
        self._db.executescript(_SCHEMA)
        for table in ("users", "sessions"):
            found = self._db.execute(f"PRAGMA quick_check('{table}')").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)

    def _write(self, *statements: tuple[str, Sequence[object]]) -> sqlite3.Cursor:
        """All statements or none. Raises StoreFailed."""
        cursor = self._db.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            for query, values in statements:
                cursor.execute(query, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreFailed(f"{self._path} can't be written ({error})") from error
        return cursor

    def close(self) -> None:
        self._db.close()

    # --- users ---

    def _holders(self, columns: str, table: str, where: str, *values: str) -> list[Holder]:
        query = f"SELECT name, role, {columns} FROM {table} {where} ORDER BY name"
        rows = self._db.execute(query, values)
        return [Holder(name, ROLE_NAMES[role], *times_s) for name, role, *times_s in rows]

    def users(self, where: str = "", *values: str) -> list[Holder]:
        return self._holders("created_s", "users", where, *values)

    def has_users(self) -> bool:
        return self._db.execute("SELECT 1 FROM users LIMIT 1").fetchone() is not None

    def user(self, name: str) -> Holder | None:
        """Read with each request: not all users are loaded."""
        return next(iter(self.users("WHERE name = ?", name)), None)

    def put_user(self, name: str, password_hash: str, role: Role) -> None:
        """Make a user, or give them another password and role; their sessions end."""
        check_user_name(name)
        values = (name, password_hash, role.name.lower(), self._clock_s())
        query = (
            "INSERT INTO users VALUES (?, ?, ?, ?) ON CONFLICT (name) DO"
            " UPDATE SET password = excluded.password, role = excluded.role"
        )
        self._write((query, values), (_END_OF_USER, (name,)))

    def set_password(self, name: str, password_hash: str, keep: str) -> None:
        """Another password for a user; their sessions end, but for the one with the key `keep`."""
        if self.user(name) is None:
            raise NotFound("user", name)
        self._write(
            ("UPDATE users SET password = ? WHERE name = ?", (password_hash, name)),
            (f"{_END_OF_USER} AND token != ?", (name, keep)),
        )

    def last_logins(self) -> dict[str, float]:
        """By user, from the audit log."""
        logins = "FROM audit WHERE action = 'login' AND result = 'ok'"
        return dict(self._db.execute(f"SELECT who, max(time_s) {logins} GROUP BY who"))

    def remove_user(self, name: str) -> None:
        if self.user(name) is None:
            raise NotFound("user", name)
        self._write(("DELETE FROM users WHERE name = ?", (name,)), (_END_OF_USER, (name,)))

    def password_hash(self, name: str) -> str:
        """The hash of a user, or one that no password has: both take the same time to compare."""
        row = self._db.execute("SELECT password FROM users WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else _NOBODYS

    # --- sessions ---

    def begin_session(
        self, user: str, claimed: Claimed | None = None, lifetime_s: float = math.inf
    ) -> str:
        """Returns the token, which cannot be read here again. Sessions that nobody has ended are
        forgotten when they are this old."""
        token = secrets.token_urlsafe(32)
        now_s = self._clock_s()
        claims = json.dumps(claimed) if claimed is not None else ""
        values = (_digest(token), user, secrets.token_urlsafe(24), now_s, now_s, claims)
        self._write(
            ("DELETE FROM sessions WHERE used_s <= ?", (now_s - lifetime_s,)),
            ("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values),
        )
        return token

    def session(self, token: str, lifetime_s: float) -> Session | None:
        """The live session of a token. Reading it does not extend it: `renew` does."""
        found = next(iter(self._sessions("WHERE token = ?", _digest(token))), None)
        if found is None or found.key in self._ended:
            return None
        if not self._is_live(found.used_s, lifetime_s):
            self.end_session(found.key)
            return None
        return found if found.claimed or self.user(found.user) else None

    def _sessions(self, where: str, *values: object) -> list[Session]:
        rows = self._db.execute(f"SELECT * FROM sessions {where}", values)
        return [Session._make((*row[:5], _claimed(row[5]))) for row in rows]

    def renew(self, session: Session, lifetime_s: float) -> None:
        """A person has used it: its lifetime begins again. One by a provider has a fixed end."""
        now_s = self._clock_s()
        if session.claimed is None and now_s - session.used_s > renewal_s(lifetime_s):
            query = "UPDATE sessions SET used_s = ? WHERE token = ?"
            self._note((query, (now_s, session.key)), "a session")  # else it ends earlier

    def _note(self, statement: tuple[str, Sequence[object]], of: str) -> None:
        """The use of something: no reason to refuse it when this can't be written."""
        try:
            self._write(statement)
        except StoreFailed as error:
            log.debug("the use of %s could not be noted: %s", of, error)

    def has_session(self, key: str, lifetime_s: float) -> bool:
        query = "SELECT used_s FROM sessions WHERE token = ?"
        row = self._db.execute(query, (key,)).fetchone()
        is_there = row is not None and key not in self._ended
        return is_there and self._is_live(row[0], lifetime_s)

    def _is_live(self, used_s: float, lifetime_s: float) -> bool:
        """Used not long ago; or not far ahead, by a clock that was set back since."""
        return abs(self._clock_s() - used_s) < lifetime_s

    def sessions(self, lifetime_s: float) -> list[Session]:
        """The live ones, the last used first."""
        since_s = self._clock_s() - lifetime_s
        return self._sessions("WHERE used_s > ? ORDER BY used_s DESC", since_s)

    def end_session(self, key: str) -> None:
        try:
            self._write(("DELETE FROM sessions WHERE token = ?", (key,)))
        except StoreFailed as error:
            self._ended.add(key)
            log.error(
                "a session has ended until nsqadmin is started again, not for good: %s", error
            )

    # --- tokens of programs ---

    def put_token(self, name: str, role: Role) -> str:
        """Returns the token, which cannot be read here again."""
        check_user_name(name)
        if any(one.name == name for one in self.tokens()):
            raise ConfigError("token", name, "there is one of this name: remove it first")
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        values = (_digest(token), name, role.name.lower(), self._clock_s(), 0.0)
        self._write(("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", values))
        return token

    def tokens(self, where: str = "", *values: str) -> list[Holder]:
        return self._holders("created_s, used_s", "tokens", where, *values)

    def token(self, token: str) -> Holder | None:
        return next(iter(self.tokens("WHERE token = ?", _digest(token))), None)

    def use_token(self, token: Holder) -> None:
        """Note that a program has used it, so that people see which are no longer needed."""
        now_s = self._clock_s()
        if 0 <= now_s - token.used_s < limits.ADMIN_SESSION_TOUCH_S:
            return
        query = "UPDATE tokens SET used_s = ? WHERE name = ?"
        self._note((query, (now_s, token.name)), "a token")

    def remove_token(self, name: str) -> None:
        if all(one.name != name for one in self.tokens()):
            raise NotFound("token", name)
        self._write(("DELETE FROM tokens WHERE name = ?", (name,)))

    # --- nodes that were seen ---

    def nodes(self) -> list[tuple[str, float, bytes]]:
        return self._db.execute("SELECT address, heard_s, told FROM nodes").fetchall()

    def keep_nodes(self, rows: Iterable[tuple[str, float, bytes]]) -> None:
        self._write(*(("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?)", row) for row in rows))

    def forget_node(self, address: str) -> None:
        self._write(("DELETE FROM nodes WHERE address = ?", (address,)))

    # --- the audit log ---

    def begin(
        self, who: str, how: str, remote: str, actions: Sequence[tuple[str, str]], detail: str = "",
        result: str = BEGUN,
    ) -> list[int]:  # fmt: skip
        """Write down planned or past actions, as (action, target). Returns the ids for `end`."""
        now_s, columns = self._clock_s(), Entry._fields[1:]
        marks = ", ".join("?" * len(columns))
        query = f"INSERT INTO audit ({', '.join(columns)}) VALUES ({marks})"
        rows = [(now_s, who, how, remote, action, target, detail[:2000], result[:500])
                for action, target in actions]  # fmt: skip
        last = self._write(*((query, row) for row in rows)).lastrowid or 0
        return list(range(last - len(rows) + 1, last + 1))

    def end(self, ids: Sequence[int], result: str) -> None:
        query = "UPDATE audit SET result = ? WHERE id = ?"
        self._write(*((query, (result[:500], one)) for one in ids))

    def audit(
        self, search: str = "", who: str = "", action: str = "", target: str = "",
        result: str = "", since_s: float = 0.0, until_s: float = 0.0, before_id: int = 0,
        count: int = 100,
    ) -> list[Entry]:  # fmt: skip
        """The newest first. `result` is of _RESULTS; `search` is looked for in every column of
        text. Texts may be parts, in any case; "" and 0 are any."""
        texts = {"who": who, "action": action, "target": target, _ALL_TEXT: search}
        escapes = str.maketrans({one: f"\\{one}" for one in "\\%_"})
        wanted: dict[str, object] = {
            f"{column} LIKE ? ESCAPE '\\'": f"%{text.translate(escapes)}%"
            for column, text in texts.items() if text
        }  # fmt: skip
        numbers = {"id < ?": before_id, "time_s >= ?": since_s, "time_s <= ?": until_s}
        wanted |= {condition: value for condition, value in numbers.items() if value}
        where = " AND ".join([_RESULTS.get(result, _RESULTS["warning"]), *wanted])
        query = f"SELECT {', '.join(Entry._fields)} FROM audit WHERE {where}"
        rows = self._db.execute(f"{query} ORDER BY id DESC LIMIT ?", [*wanted.values(), count])
        return [Entry(*row) for row in rows]


_ALL_TEXT = "(who||' '||remote||' '||action||' '||target||' '||detail||' '||result)"
_RESULTS = {
    "": "1",
    "ok": "result = 'ok'",
    "failed": "result LIKE 'failed%'",
    "warning": "result != 'ok' AND result NOT LIKE 'failed%'",
}


def renewal_s(lifetime_s: float) -> float:
    """How often a session's use is recorded."""
    return min(limits.ADMIN_SESSION_TOUCH_S, lifetime_s / 4)


def check_user_name(name: str) -> None:
    rule = "1 to 64 printable characters without spaces"
    if not 0 < len(name) <= 64 or not name.isprintable() or any(one.isspace() for one in name):
        raise ConfigError("user name", name, rule)


def hash_password(password: str) -> str:
    """Takes a tenth of a second: call it in a thread."""
    if len(password) < limits.ADMIN_PASSWORD_MIN:
        rule = f"it has fewer than {limits.ADMIN_PASSWORD_MIN} characters"
        raise ConfigError("password", "***", rule)
    salt = secrets.token_bytes(16)
    return f"{salt.hex()}:{hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT).hex()}"


def is_password(password: str, password_hash: str) -> bool:
    """Takes a tenth of a second: call it in a thread."""
    salt, _, wanted = password_hash.partition(":")
    found = hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"), salt=bytes.fromhex(salt), **_SCRYPT
    )
    return hmac.compare_digest(found, bytes.fromhex(wanted))


_NOBODYS = f"{secrets.token_hex(16)}:{secrets.token_hex(64)}"


def _claimed(text: str) -> Claimed | None:
    if not text:
        return None
    name, email, groups = json.loads(text)
    return Claimed(name, email, tuple(groups))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
