"""`penstock admin`: users of nsqadmin, made where its files are.

The pages can make users too, but not the first one on a machine that is reached over the network:
there nobody may change anything before somebody can log in.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.nsqadmin.access import ROLE_NAMES
from penstock.nsqadmin.options import default_data_path
from penstock.nsqadmin.store import Store, User, check_user_name, hash_password
from penstock.tools.verbs import DONE, FAILED, VerbParser, add_yes, confirm, print_json, run_verb


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock admin",
        description="Users of nsqadmin. It may run meanwhile.",
        examples=["penstock admin users", "penstock admin put-user ann --role operate"],
    )
    _add_common(parser, default_data_path(os.environ), False)
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
    for below in (users, put, remove):
        _add_common(below, argparse.SUPPRESS, argparse.SUPPRESS)
    return parser


def _add_common(parser: argparse.ArgumentParser, data_path: str, as_json: bool | str) -> None:
    """Before the verb or behind it: what is not said behind it does not undo what stands before."""
    parser.add_argument(
        "--data-path", default=data_path, metavar="PATH", help="nsqadmin's -data-path"
    )
    parser.add_argument("--json", action="store_true", default=as_json, help="for programs")


def admin_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "remove-user":
        question = f"remove the user {arguments.name}"
        if not confirm(arguments, question, arguments.name):
            return FAILED
    if arguments.verb == "put-user":
        check_user_name(arguments.name)
        password = hash_password(_password(arguments))
    store = Store(Path(arguments.data_path))
    try:
        if arguments.verb == "put-user":
            store.put_user(arguments.name, password, ROLE_NAMES[arguments.role])
        elif arguments.verb == "remove-user":
            store.remove_user(arguments.name)
        _show(store.users(), arguments.json)
    finally:
        store.close()
    return DONE


def _password(arguments: argparse.Namespace) -> str:
    if arguments.password_stdin or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    while True:
        first = getpass.getpass("Password: ")
        if first == getpass.getpass("Once more: "):
            return first
        print("They differ.", file=sys.stderr)


def _show(users: list[User], as_json: bool) -> None:
    if as_json:
        print_json([{"name": one.name, "role": one.role.name.lower()} for one in users])
        return
    for one in users:
        print(f"{one.name:<24} {one.role.name.lower()}")
    if not users:
        print("no users: nobody has to log in")
