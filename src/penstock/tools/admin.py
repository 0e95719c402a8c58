"""`penstock admin`: users of nsqadmin and tokens of programs, made where its files are.

The pages can make users too, but not the first one on a machine that is reached over the network:
there nobody may change anything before somebody can log in.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import ConfigError, PenstockError
from penstock.nsqadmin.access import ROLE_NAMES, Role
from penstock.nsqadmin.options import default_data_path
from penstock.nsqadmin.store import Store, Token, check_user_name, hash_password
from penstock.tools.verbs import DONE, FAILED, VerbParser, add_yes, confirm, print_json, run_verb

UNIT_DATA_PATH = Path("/var/lib/penstock/nsqadmin")  # deploy/systemd/penstock-nsqadmin.service


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock admin",
        description="Users of nsqadmin, and tokens of programs. It may run meanwhile.",
        examples=["penstock admin users", "penstock admin put-user ann --role operate"],
    )
    _add_common(parser, "", False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    users = verbs.add_parser(
        "users", help="who may log in", examples=["penstock admin users --json"]
    )
    put = verbs.add_parser(
        "put-user",
        help="make a user, or set another password and role",
        examples=["penstock admin put-user ann --role operate --password-stdin"],
    )
    put.add_argument("name", metavar="NAME")
    put.add_argument("--role", choices=list(ROLE_NAMES), default="view")
    put.add_argument("--password-stdin", action="store_true", help="read the password from stdin")
    remove = verbs.add_parser(
        "remove-user",
        help="their sessions end now",
        examples=["penstock admin remove-user ann --yes"],
    )
    remove.add_argument("name", metavar="NAME")
    add_yes(remove)
    tokens = verbs.add_parser(
        "tokens", help="programs that may use the API", examples=["penstock admin tokens --json"]
    )
    put_token = verbs.add_parser(
        "put-token",
        help="make a token for a program; it is shown once",
        examples=["penstock admin put-token ci --role operate"],
    )
    put_token.add_argument("name", metavar="NAME")
    put_token.add_argument("--role", choices=list(ROLE_NAMES), default="view")
    remove_token = verbs.add_parser(
        "remove-token",
        help="it no longer gives access",
        examples=["penstock admin remove-token ci --yes"],
    )
    remove_token.add_argument("name", metavar="NAME")
    add_yes(remove_token)
    for below in (users, put, remove, tokens, put_token, remove_token):
        _add_common(below, argparse.SUPPRESS, argparse.SUPPRESS)
    return parser


def _add_common(parser: argparse.ArgumentParser, data_path: str, as_json: bool | str) -> None:
    """Before the verb or behind it: what is not said behind it does not undo what stands before."""
    parser.add_argument(
        "--data-path",
        default=data_path,
        metavar="PATH",
        help="nsqadmin's -data-path (default: your own nsqadmin's, else that of the systemd unit)",
    )
    parser.add_argument("--json", action="store_true", default=as_json, help="for programs")


def found_data_path(environment: Mapping[str, str]) -> Path:
    """Where nsqadmin's files are, when nobody says it. Raises PenstockError."""
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


def admin_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    verb = arguments.verb
    if verb in ("remove-user", "remove-token"):
        question = f"remove the {verb.removeprefix('remove-')} {arguments.name}"
        if not confirm(arguments, question, arguments.name):
            return FAILED
    password = ""
    if verb == "put-user":
        check_user_name(arguments.name)
        password = hash_password(_password(arguments))
    path = Path(arguments.data_path) if arguments.data_path else found_data_path(os.environ)
    become_owner(path)
    store = Store(path)
    try:
        token = _do(store, arguments, password)
        if token:
            _show_token(arguments, token)
        else:
            _show(store, verb.endswith(("token", "tokens")), arguments.json)
    finally:
        store.close()
    return DONE


def _do(store: Store, arguments: argparse.Namespace, password: str) -> str:
    """Returns the token that was made, or ""."""
    verb, name = arguments.verb, getattr(arguments, "name", "")
    role = ROLE_NAMES.get(getattr(arguments, "role", ""), Role.VIEW)
    if verb in ("users", "tokens"):
        return ""
    with _written_down(store, verb.replace("-", "_"), name, role if "put" in verb else None):
        if verb == "put-user":
            store.put_user(name, password, role)
        elif verb == "remove-user":
            store.remove_user(name)
        elif verb == "remove-token":
            store.remove_token(name)
        else:
            return store.put_token(name, role)
    return ""


@contextmanager
def _written_down(store: Store, action: str, name: str, role: Role | None) -> Iterator[None]:
    """In the audit log, before it is done."""
    detail = role.name.lower() if role is not None else ""
    entries = store.begin(_system_user(), "command line", "", [(action, name)], detail)
    try:
        yield
    except PenstockError as error:
        store.end(entries, f"failed: {error}")
        raise
    store.end(entries, "ok")


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"  # one without a name, as in a container


def _password(arguments: argparse.Namespace) -> str:
    if arguments.password_stdin or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    while True:
        first = getpass.getpass("Password: ")
        if first == getpass.getpass("Once more: "):
            return first
        print("They differ.", file=sys.stderr)


def _show_token(arguments: argparse.Namespace, token: str) -> None:
    if arguments.json:
        print_json({"name": arguments.name, "role": arguments.role, "token": token})
        return
    print(token)
    print("It is not shown again. Send it as: Authorization: Bearer <token>", file=sys.stderr)


def _show(store: Store, are_tokens: bool, as_json: bool) -> None:
    if are_tokens:
        _show_tokens(store.tokens(), as_json)
        return
    found = store.users()
    if as_json:
        print_json([{"name": one.name, "role": one.role.name.lower()} for one in found])
        return
    for one in found:
        print(f"{one.name:<24} {one.role.name.lower()}")
    if not found:
        print("no users: nobody has to log in")


def _show_tokens(found: Sequence[Token], as_json: bool) -> None:
    """With the last use of each: what is used no longer can go."""
    if as_json:
        print_json(
            [
                {"name": one.name, "role": one.role.name.lower(), "last_used": _moment(one.used_s)}
                for one in found
            ]
        )
        return
    for one in found:
        last = _moment(one.used_s)
        used = f"last used {last}" if last else "never used"
        print(f"{one.name:<24} {one.role.name.lower():<8} {used}")
    if not found:
        print("no tokens")


def _moment(time_s: float) -> str | None:
    """None: there was none."""
    return datetime.fromtimestamp(int(time_s), UTC).isoformat() if time_s else None
