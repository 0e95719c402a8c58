"""`penstock admin`: users of nsqadmin and tokens of programs, made where its files are.

The pages can make users too, but not the first one on a machine that is reached over the network:
there nobody may change anything before somebody can log in.
"""

import getpass
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from penstock.errors import ConfigError, PenstockError
from penstock.nsqadmin.access import ROLE_NAMES
from penstock.nsqadmin.options import default_data_path
from penstock.nsqadmin.store import FILE, Store, check_user_name, hash_password
from penstock.tools.app import Yes, arg, group, opt, switch, verb
from penstock.tools.output import Output, confirm, system_user

UNIT_DATA_PATH = Path("/var/lib/penstock/nsqadmin")  # deploy/systemd/penstock-nsqadmin.service

DataPath = Annotated[str, opt("PATH", "nsqadmin's files")]
Name = Annotated[str, arg("NAME")]
RoleName = Annotated[Literal["view", "operate", "destroy"], opt("", "what it may do")]

app = group(
    "Users of nsqadmin, and tokens of programs. nsqadmin may run meanwhile.",
    "admin users",
    "admin put-user ann --role operate",
)


@verb(app, "admin users --json")
def users(data_path: DataPath = "") -> Output:
    """List who may log in."""
    with _opened(data_path) as store:
        return _users(store)


@verb(app, "admin put-user ann --role operate --password-stdin")
def put_user(
    name: Name,
    role: RoleName = "view",
    from_stdin: Annotated[bool, switch("read the password from stdin", "--password-stdin")] = False,
    data_path: DataPath = "",
) -> Output:
    """Make a user, or set another password and role."""
    check_user_name(name)
    password = hash_password(_password(from_stdin))
    with _changed(data_path, "put_user", name, role) as store:
        store.put_user(name, password, ROLE_NAMES[role])
        return _users(store)


@verb(app, "admin remove-user ann --yes")
def remove_user(name: Name, yes: Yes = False, data_path: DataPath = "") -> Output:
    """Remove a user; their sessions end now."""
    confirm(yes, f"remove the user {name}", name)
    with _changed(data_path, "remove_user", name) as store:
        store.remove_user(name)
        return _users(store)


@verb(app, "admin tokens --json")
def tokens(data_path: DataPath = "") -> Output:
    """List the programs that may use the API."""
    with _opened(data_path) as store:
        return _tokens(store)


@verb(app, "admin put-token ci --role operate")
def put_token(name: Name, role: RoleName = "view", data_path: DataPath = "") -> Output:
    """Make a token for a program; it is shown once."""
    with _changed(data_path, "put_token", name, role) as store:
        token = store.put_token(name, ROLE_NAMES[role])
    advice = "It is not shown again. Send it as: Authorization: Bearer <token>"
    return Output({"name": name, "role": role, "token": token}, [token], errors=[advice])


@verb(app, "admin remove-token ci --yes")
def remove_token(name: Name, yes: Yes = False, data_path: DataPath = "") -> Output:
    """Remove a token; it no longer gives access."""
    confirm(yes, f"remove the token {name}", name)
    with _changed(data_path, "remove_token", name) as store:
        store.remove_token(name)
        return _tokens(store)


def _opened(data_path: str, makes: bool = False) -> closing[Store]:
    """Where nobody is to be made, a new file would only hide that the path is wrong."""
    path = Path(data_path) if data_path else found_data_path(os.environ)
    become_owner(path)
    if not makes and not (path / FILE).exists():
        raise PenstockError(f"{path} has no {FILE}: --data-path names the directory of nsqadmin")
    return closing(Store(path))


def found_data_path(environment: Mapping[str, str]) -> Path:
    """The directory of nsqadmin's files by default: that of its own -data-path, otherwise of the
    systemd unit. Raises PenstockError."""
    path = Path(default_data_path(environment))
    try:
        if not path.exists() and UNIT_DATA_PATH.exists():
            path = UNIT_DATA_PATH
    except OSError as error:
        rule = "run this as root, or say where nsqadmin's files are"
        raise ConfigError("--data-path", str(UNIT_DATA_PATH), f"{rule} ({error})") from error
    print(f"nsqadmin's data path is {path}", file=sys.stderr)
    return path


def become_owner(path: Path) -> None:
    """Root's files would lock out an nsqadmin that runs as another user."""
    if os.geteuid() != 0 or not path.is_dir():
        return
    owner = path.stat()
    if owner.st_uid != 0:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


@contextmanager
def _changed(data_path: str, action: str, name: str, role: str = "") -> Iterator[Store]:
    """The store, for a change that is written to the audit log before it is done."""
    check_user_name(name)
    with _opened(data_path, makes=bool(role)) as store:
        entries = store.begin(system_user(), "command line", "", [(action, name)], role)
        try:
            yield store
        except PenstockError as error:
            store.end(entries, f"failed: {error}")
            raise
        store.end(entries, "ok")


def _password(from_stdin: bool) -> str:
    if from_stdin or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    while True:
        first = getpass.getpass("Password: ")
        if first == getpass.getpass("Once more: "):
            return first
        print("They differ.", file=sys.stderr)


def _users(store: Store) -> Output:
    rows = [{"name": one.name, "role": one.role.name.lower()} for one in store.users()]
    lines = [f"{row['name']:<24} {row['role']}" for row in rows]
    return Output(rows, lines or ["no users: nobody has to log in"])


def _tokens(store: Store) -> Output:
    """With the last use of each: an unused token can be removed."""
    rows, lines = [], []
    for one in store.tokens():
        name, role, at_s = one.name, one.role.name.lower(), int(one.used_s)
        used = datetime.fromtimestamp(at_s, UTC).isoformat() if one.used_s else None
        rows.append({"name": name, "role": role, "last_used": used})
        lines.append(f"{name:<24} {role:<8} {f'last used {used}' if used else 'never used'}")
    return Output(rows, lines or ["no tokens"])
