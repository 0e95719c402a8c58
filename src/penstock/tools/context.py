"""`penstock context`: name installations once, and switch between them."""

import os
from inspect import Parameter
from typing import Annotated, Any

import msgspec

from penstock.command import terminal
from penstock.tools import connection, contexts
from penstock.tools.app import Yes, arg, group, switch, verb
from penstock.tools.connection import HTTP, OPTIONS, Connection
from penstock.tools.contexts import Context, Contexts, ContextTrouble
from penstock.tools.output import Output, WrongUse, confirm

_PATHS = ("tls_root_ca_file", "tls_cert", "tls_key", "auth_secret_file", "http_secret_file")

Name = Annotated[str, arg("NAME", autocompletion=connection.context_names)]
OneName = Annotated[str, arg("[NAME]", "the one in use", autocompletion=connection.context_names)]

app = group(
    "Named installations. All verbs work on the selected one, unless --context, "
    "$PENSTOCK_CONTEXT or an address says otherwise.",
    "context save prod --lookupd-http-address lookup1:4161 --select",
    "context list",
)


class Fields(Connection):
    """All fields of a context, instead of the target of a verb."""

    @classmethod
    def parameters(cls) -> list[Parameter]:
        fields = {"description": ("TEXT", "what it is"), **OPTIONS}
        return [connection.option(name, *one, no=True) for name, one in fields.items()]

    def chosen(self) -> dict[str, Any]:
        """The given fields; an empty value removes a field."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, list):
                found[name] = tuple(filter(None, value))
            elif value and name in _PATHS:  # the context is used from any directory
                found[name] = os.path.abspath(os.path.expanduser(value))
            elif value is not None:
                found[name] = value
        for one, other in (HTTP, HTTP[::-1]):  # it has one of the two kinds
            if found.get(one):
                found.setdefault(other, ())
        return found


@verb(app, "context list --json", name="list")
def list_contexts() -> Output:
    """List the contexts."""
    found = contexts.load()
    used, origin = connection.chosen()
    rows = sorted(found.context.items())
    cells = [
        ["*" * (name == used), name, ", ".join(one.addresses), one.description]
        for name, one in rows
    ]
    lines = ["no contexts: penstock context save NAME makes one"]
    if rows:
        lines = terminal.table(("", "NAME", "ADDRESSES", ""), cells, left=4)
        if origin == contexts.VARIABLE:
            lines.append(f"* is what ${origin} says; selected is {found.selected or 'none'}")
    documents = {name: msgspec.to_builtins(one) for name, one in rows}
    document = {"selected": found.selected or None, "used": used or None, "contexts": documents}
    return Output(document, lines)


@verb(app, "context show prod")
def show(name: OneName = "") -> Output:
    """Show a context (without a name the one in use)."""
    found, name = contexts.load(), name or connection.chosen()[0]
    if not name:
        raise ContextTrouble("no context is selected: name one")
    found.get(name)
    return _shown(found, name)


def _shown(found: Contexts, name: str) -> Output:
    shown = msgspec.to_builtins(found.context[name])
    lines = [f"{name} (selected)" if found.selected == name else name]
    for field, value in shown.items():
        text = ", ".join(value) if isinstance(value, list | tuple) else value
        lines.append(f"  {field} = {text}")
    return Output({"name": name, "selected": found.selected == name, **shown}, lines)


@verb(
    app,
    "context save test --nsqd-http-address 127.0.0.1:4151 --select",
    "context save prod --lookupd-http-address lookup1:4161 --tls-root-ca-file /etc/penstock/ca.pem",
)
def save(
    name: Name, fields: Fields, select: Annotated[bool, switch("and select it")] = False
) -> Output:
    """Make or change a context; an empty value removes a field.

    Secrets do not go in here: name a file or an environment variable."""
    with contexts.changed() as found:
        before = found.context.get(name, Context())
        found.put(name, msgspec.structs.replace(before, **fields.chosen()))
        if select:
            found.select(name)
    return _shown(found, name)


@verb(app, "context select prod", "context select --none")
def select(
    name: OneName = "", none: Annotated[bool, switch("use the nsqd of this machine")] = False
) -> Output:
    """Select a context for the verbs that follow."""
    if bool(name) == none:
        raise WrongUse("give a name, or --none")
    with contexts.changed() as found:
        found.select(name)
    return _selected(found)


@verb(app, "context remove test --yes")
def remove(name: Name, yes: Yes = False) -> Output:
    """Remove a context."""
    contexts.load().get(name)
    confirm(yes, f"remove context {name}", name)
    with contexts.changed() as found:
        found.remove(name)
    return _selected(found)


def _selected(found: Contexts) -> Output:
    line = f"selected: {found.selected or 'none, the nsqd of this machine'}"
    return Output({"selected": found.selected or None}, [line])
