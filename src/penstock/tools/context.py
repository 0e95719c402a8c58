"""`penstock context`: name installations once, and switch between them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.command import terminal
from penstock.tools import contexts as file
from penstock.tools import where
from penstock.tools.contexts import Context, Contexts, ContextTrouble
from penstock.tools.verbs import (
    DONE,
    FAILED,
    VerbParser,
    WrongUse,
    add_json,
    add_yes,
    confirm,
    print_json,
    run_verb,
)

_LISTS = ("nsqd_http_address", "nsqd_tcp_address", "lookupd_http_address")
_TEXTS = {
    "description": ("TEXT", "what it is"),
    "admin": ("URL", "its nsqadmin"),
    "tls_root_ca_file": ("FILE", "authorities for TLS"),
    "tls_cert": ("FILE", "certificate to show"),
    "tls_key": ("FILE", "key of that certificate"),
    "auth_secret_file": ("FILE", "file that holds the secret for AUTH"),
    "auth_secret_env": ("NAME", "environment variable that holds it"),
    "http_secret_file": ("FILE", "file that holds the secret for changes over HTTP"),
}
_PATHS = frozenset(
    {"tls_root_ca_file", "tls_cert", "tls_key", "auth_secret_file", "http_secret_file"}
)
_FLAGS = {
    "tls": "TCP connections are upgraded to TLS (HTTP: say https:// in the address)",
    "tls_insecure_skip_verify": "accept any certificate",
}


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock context",
        description="Installations under a name. The selected one is what all verbs work on, "
        "unless --context, $PENSTOCK_CONTEXT or an address says otherwise.",
        examples=[
            "penstock context save prod --lookupd-http-address lookup1:4161 --select",
            "penstock context list",
        ],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser(
        "list", help="which there are", examples=["penstock context list --json"]
    )
    show = verbs.add_parser(
        "show", help="what one holds (the one in use)", examples=["penstock context show prod"]
    )
    show.add_argument("name", nargs="?", metavar="NAME")
    _add_save(verbs)
    select = verbs.add_parser(
        "select",
        help="use it from now on",
        examples=["penstock context select prod", "penstock context select --none"],
    )
    select.add_argument("name", nargs="?", metavar="NAME")
    select.add_argument("--none", action="store_true", help="use none: the nsqd of this machine")
    back = verbs.add_parser(
        "previous", help="use the one before this one", examples=["penstock context previous"]
    )
    remove = verbs.add_parser(
        "remove", help="forget it", examples=["penstock context remove test --yes"]
    )
    remove.add_argument("name", metavar="NAME")
    add_yes(remove)
    for one in (listing, show, select, back, remove):
        add_json(one)
    return parser


def _add_save(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    save = verbs.add_parser(
        "save",
        help="make it, or change what is given; an empty value takes one away",
        description="Secrets do not go in here: name a file or an environment variable.",
        examples=[
            "penstock context save test --nsqd-http-address 127.0.0.1:4151 --select",
            "penstock context save prod --lookupd-http-address lookup1:4161 "
            "--admin https://nsqadmin.example --tls-root-ca-file /etc/penstock/ca.pem",
        ],
    )
    save.add_argument("name", metavar="NAME")
    for name in _LISTS:
        option = f"--{name.replace('_', '-')}"
        save.add_argument(option, action="append", metavar="ADDRESS", help="may be repeated")
    for name, (metavar, about) in _TEXTS.items():
        save.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=about)
    for name, about in _FLAGS.items():
        option = f"--{name.replace('_', '-')}"
        save.add_argument(option, action=argparse.BooleanOptionalAction, help=about)
    save.add_argument("--select", action="store_true", help="and use it from now on")
    add_json(save)


def context_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    return {
        "list": _list,
        "show": _show,
        "save": _save,
        "select": _select,
        "previous": _previous,
        "remove": _remove,
    }[arguments.verb](arguments)


def _list(arguments: argparse.Namespace) -> int:
    contexts = file.load()
    used, origin = where.chosen()
    if arguments.json:
        found = {name: as_json(one) for name, one in sorted(contexts.context.items())}
        names = {"selected": contexts.selected or None, "previous": contexts.previous or None}
        print_json({**names, "used": used or None, "contexts": found})
        return DONE
    if not contexts.context:
        print("no contexts: penstock context save NAME makes one")
        return DONE
    rows = [
        ["*" if name == used else "", name, ", ".join(one.addresses), one.description]
        for name, one in sorted(contexts.context.items())
    ]
    print("\n".join(terminal.table(("", "NAME", "ADDRESSES", ""), rows, left=4)))
    if origin == file.VARIABLE:
        print(f"* is what ${origin} says; selected is {contexts.selected or 'none'}")
    return DONE


def _named(contexts: Contexts, name: str | None) -> str:
    """The one that is meant: by name, or in use."""
    found = name or where.chosen()[0]
    if not found:
        raise ContextTrouble("no context is selected: name one")
    contexts.get(found)
    return found


def as_json(context: Context) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(context)
    return found


def _show(arguments: argparse.Namespace) -> int:
    contexts = file.load()
    name = _named(contexts, arguments.name)
    _tell(contexts, name, arguments)
    return DONE


def _tell(contexts: Contexts, name: str, arguments: argparse.Namespace) -> None:
    shown = as_json(contexts.context[name])
    if arguments.json:
        print_json({"name": name, "selected": contexts.selected == name, **shown})
        return
    print(f"{name} (selected)" if contexts.selected == name else name)
    for field, value in shown.items():
        print(f"  {field} = {', '.join(value) if isinstance(value, list | tuple) else value}")


def _save(arguments: argparse.Namespace) -> int:
    with file.changed() as contexts:
        context = contexts.context.get(arguments.name, Context())
        contexts.put(arguments.name, msgspec.structs.replace(context, **_given(arguments)))
        if arguments.select:
            contexts.select(arguments.name)
    _tell(contexts, arguments.name, arguments)
    return DONE


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in (*_LISTS, *_TEXTS, *_FLAGS):
        value = getattr(arguments, name)
        if value is not None:
            found[name] = tuple(filter(None, value)) if name in _LISTS else value
        if value and name in _PATHS:  # the context is used from any directory
            found[name] = os.path.abspath(os.path.expanduser(value))
    for one, other in (where.HTTP, where.HTTP[::-1]):  # it has one of the two kinds
        if found.get(one):
            found.setdefault(other, ())
    return found


def _select(arguments: argparse.Namespace) -> int:
    if bool(arguments.name) == arguments.none:
        raise WrongUse("give a name, or --none")
    with file.changed() as contexts:
        contexts.select(arguments.name or "")
    return _tell_selected(contexts, arguments)


def _previous(arguments: argparse.Namespace) -> int:
    with file.changed() as contexts:
        contexts.go_back()
    return _tell_selected(contexts, arguments)


def _tell_selected(contexts: Contexts, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json({"selected": contexts.selected or None, "previous": contexts.previous or None})
    else:
        print(f"selected: {contexts.selected or 'none, the nsqd of this machine'}")
    return DONE


def _remove(arguments: argparse.Namespace) -> int:
    file.load().get(arguments.name)
    if not confirm(arguments, f"remove context {arguments.name}", arguments.name):
        return FAILED
    with file.changed() as contexts:
        contexts.remove(arguments.name)
    return _tell_selected(contexts, arguments)
