"""The installation that a verb works on, and the options that select it.

What is written on the command line counts first, then the context that `--context` names, then
addresses in the environment, then the context in `PENSTOCK_CONTEXT`, then the selected one, then
the nsqd of this machine. Addresses on the command line replace those of a context; of a context
that nobody named they take nothing else either: its key is not shown to a stranger.
"""

import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import msgspec
import typer

from penstock.errors import ConfigError, PenstockError
from penstock.net.secret_file import first_secret
from penstock.net.tls import TlsFiles
from penstock.nsqdapi import calls
from penstock.tools import contexts
from penstock.tools.contexts import Context
from penstock.tools.nodes import Node, address_of, ask_all, ask_cluster
from penstock.tools.output import Row, WrongUse, confirm
from penstock.wire.names import is_ephemeral

DEFAULT_ADDRESS, DEFAULT_TCP_ADDRESS = "127.0.0.1:4151", "127.0.0.1:4150"
HTTP = ("nsqd_http_address", "lookupd_http_address")
TCP = ("nsqd_tcp_address", "lookupd_http_address", "nsqd_http_address")  # which tells its TCP port
OTHERS_SECONDS_MAX = 3.0  # for what others may know, too: one may just have died
_SECRET_BYTES_MAX = 65536
SELECTED = "selected"

# Each is a field of a context, too: what stands for its value, and what it is.
OPTIONS = {
    "nsqd_http_address": ("ADDRESS", f"an nsqd ({DEFAULT_ADDRESS}); may be repeated"),
    "nsqd_tcp_address": ("ADDRESS", f"an nsqd ({DEFAULT_TCP_ADDRESS}); may be repeated"),
    "lookupd_http_address": ("ADDRESS", "an nsqlookupd: all it knows; may be repeated"),
    "tls_root_ca_file": ("FILE", "authorities for TLS"),
    "tls_cert": ("FILE", "certificate to show"),
    "tls_key": ("FILE", "key of that certificate"),
    "tls_insecure_skip_verify": ("", "accept any certificate"),
    "http_secret_file": ("FILE", "the secret that nsqd wants for changes"),
    "tls": ("", "upgrade TCP connections to TLS"),
    "auth_secret_file": ("FILE", "file that holds AUTH's secret"),
    "auth_secret_env": ("NAME", "environment variable that holds it"),
}
_FILES = ("tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify")


def option(name: str, metavar: str, about: str, no: bool = False) -> Parameter:
    """`no`: a switch can be turned off again."""
    kind: Any = bool if not metavar else list[str] if metavar == "ADDRESS" else str
    spelled = name.replace("_", "-")
    spelled = f"--{spelled}/--no-{spelled}" if no and not metavar else f"--{spelled}"
    found = typer.Option(spelled, metavar=metavar or None, help=about, show_default=False)
    default = None if metavar or no else False
    hint: Any = Annotated[kind if default is False else kind | None, found]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def context_names(incomplete: str) -> list[str]:
    try:
        return sorted(contexts.load().context)
    except PenstockError:
        return []


ContextName = Annotated[str | None, typer.Option(
    "--context", metavar="NAME", help="an installation of penstock context list",
    autocompletion=context_names,
)]  # fmt: skip


class Where(NamedTuple):
    context: Context  # what holds, wherever it was written
    name: str = ""  # of the context that it comes from
    origin: str = ""  # who chose that context

    def tls_files(self) -> TlsFiles:
        """Raises ConfigError."""
        found = TlsFiles(*(getattr(self.context, name) for name in _FILES))
        if bool(found.cert) != bool(found.key):
            raise ConfigError("--tls-cert", found.cert or found.key, "goes together with --tls-key")
        return found

    def tls(self) -> ssl.SSLContext | None:
        """None: nothing was named, the system's authorities will do. Raises ConfigError."""
        files = self.tls_files()
        try:
            return files.context() if any(files) else None
        except OSError as error:
            shown = ", ".join(filter(None, files[:3]))
            raise ConfigError("TLS", shown, f"cannot be used: {error}") from error

    def secret(self) -> str:
        """For AUTH. Raises PenstockError, and never shows it."""
        if self.context.auth_secret_env:
            found = os.environ.get(self.context.auth_secret_env, "")
            if not found:
                raise PenstockError(f"${self.context.auth_secret_env} is not set: AUTH's secret")
            return found
        if not self.context.auth_secret_file:
            return ""
        try:
            with open(self.context.auth_secret_file, "rb") as file:
                return file.read(_SECRET_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PenstockError(f"AUTH's secret cannot be read: {error}") from error

    def http_secret(self) -> str:
        """For changes over HTTP. Raises ConfigError, and never shows it."""
        return first_secret(self.context.http_secret_file, "http-secret-file")

    def lacks(self, *needed: str) -> PenstockError:
        wanted = " or ".join(needed)
        return PenstockError(f"context {self.name} has no {wanted}: penstock context save")

    def announce(self) -> None:
        if self.name:
            print(f"context {self.name} ({self.origin})", file=sys.stderr)

    def addresses(self) -> list[str]:
        """The nsqds' HTTP addresses. Raises NodeFailed when no nsqlookupd answers."""
        if self.context.nsqd_http_address:
            return list(self.context.nsqd_http_address)
        if self.context.lookupd_http_address:
            return _known_to(self.context.lookupd_http_address, self.tls())
        if self.name:
            raise self.lacks(*HTTP)
        return [DEFAULT_ADDRESS]

    def speakers(self) -> list[str]:
        """Those addresses: where all that answer are nodes of one cluster, they speak for the
        others, which nothing waits for."""
        asked = [Node(one, OTHERS_SECONDS_MAX, self.tls()) for one in self.addresses()]
        answers = ask_all(asked, ask_cluster)
        clusters = {str(answer["cluster"]) for answer in answers.good.values()}
        is_alone = len(clusters) != 1 or any(error.status for error in answers.bad.values())
        return [node.address for node in asked if is_alone or node.address in answers.good]

    def tcp_addresses(self) -> tuple[list[str], list[str]]:
        """(nsqds, nsqlookupds). An nsqd known by its HTTP address reports its TCP port."""
        nsqds = list(self.context.nsqd_tcp_address)
        lookupds = list(self.context.lookupd_http_address)
        if not nsqds and not lookupds:
            nsqds = [_tcp_address(one, self.tls()) for one in self.context.nsqd_http_address]
        if nsqds or lookupds:
            return nsqds, lookupds
        if self.name:
            raise self.lacks(*TCP)
        return [DEFAULT_TCP_ADDRESS], []

    def client_options(self) -> dict[str, Any]:
        """The options of a Producer or a Consumer."""
        files = self.tls()
        tls = (files or True) if self.context.tls else None
        return {"tls": tls, "lookup_tls": files, "auth_secret": self.secret()}


def find(given: Mapping[str, Any], kinds: Sequence[str] = HTTP) -> Where:
    """`given` are options by name, `kinds` the addresses that can be used. Raises PenstockError."""
    typed = {kind: tuple(given.get(kind) or ()) for kind in kinds}
    if all(typed.get(kind) for kind in HTTP) and kinds == HTTP:
        raise WrongUse("give --nsqd-http-address or --lookupd-http-address, not both")
    others = {name: given[name] for name in OPTIONS if name not in TCP and given.get(name)}
    name, origin = given.get("context") or "", "--context"
    if not name and not any(typed.values()):
        commas = {kind: os.environ.get(f"PENSTOCK_{kind.upper()}", "") for kind in kinds}
        typed = {kind: tuple(filter(None, map(str.strip, text.split(","))))
                 for kind, text in commas.items()}  # fmt: skip
        if not any(typed.values()):
            name, origin = chosen()
    base = contexts.load().get(name) if name else Context()
    addresses = typed if any(typed.values()) else {}
    return Where(msgspec.structs.replace(base, **addresses, **others), name, origin if name else "")


def chosen() -> tuple[str, str]:
    """The context in force without a name or an address: (name, its source)."""
    name = os.environ.get(contexts.VARIABLE, "")
    return (name, contexts.VARIABLE) if name else (contexts.load().selected, SELECTED)


def _known_to(lookupds: Sequence[str], tls: ssl.SSLContext | None) -> list[str]:
    asked = [Node(one, OTHERS_SECONDS_MAX, tls) for one in lookupds]
    answers = ask_all(asked, http_addresses)
    found = {address for addresses in answers.good.values() for address in addresses}
    if not found and answers.bad:
        raise [*answers.bad.values()][-1]
    if not found:
        raise PenstockError(f"no nsqd with an HTTP port is registered with {', '.join(lookupds)}")
    return sorted(found)


def http_addresses(lookupd: Node) -> list[str]:
    """The nsqds that it knows, except those that serve HTTP on a unix socket, or not at all."""
    return [one.http_address for one in lookupd.ask(calls.nodes()) if one.http_port > 0]


def _tcp_address(http_address: str, tls: ssl.SSLContext | None) -> str:
    port = Node(http_address, tls=tls).get("/info", None, "tcp_port")["tcp_port"]
    host = address_of(http_address).host
    if not host or port <= 0:
        raise PenstockError(f"{http_address} does not tell a TCP address: --nsqd-tcp-address")
    return f"{calls.bracketed(host)}:{port}"


# --- the parameters of verbs ---


class Options:
    """A parameter of a verb that stands for several options: its annotated fields."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        vars(self).update(given)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        hints = get_type_hints(cls, include_extras=True).items()
        return [Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(cls, name), annotation=hint)
                for name, hint in hints]  # fmt: skip


class Connection(Options):
    """The target of a verb, resolved on first use."""

    names: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = HTTP

    @classmethod
    def parameters(cls) -> list[Parameter]:
        context = Parameter("context", Parameter.KEYWORD_ONLY, default=None, annotation=ContextName)
        return [*(option(name, *OPTIONS[name]) for name in cls.names), context]

    @cached_property
    def where(self) -> Where:
        return find(vars(self), self.kinds)

    def nodes(self, changes: bool = False) -> list[Node]:
        """`changes`: something is about to change on them. An address that nobody typed could be
        the wrong one, so it is named first."""
        if changes:
            self.where.announce()
        tls, secret = self.where.tls(), self.where.http_secret()
        return [Node(address, tls=tls, secret=secret) for address in self.where.addresses()]

    def members(self, changes: bool = False) -> list[Node]:
        """The nodes, and the others of their clusters: any may lead the partition in question."""
        nodes = self.nodes(changes)
        return [*nodes, *self.others(self.clusters(nodes)).values()]

    def clusters(self, nodes: Sequence[Node]) -> dict[str, Row]:
        """What the nodes of clusters say of theirs, by address. For one that hangs the verb waits
        here, and hardly again."""
        tls = self.where.tls()
        asked = [Node(one.address, OTHERS_SECONDS_MAX, tls) for one in nodes]
        answers = ask_all(asked, ask_cluster)
        for node, one in zip(nodes, asked, strict=True):
            node.silent = one.silent
        return answers.good

    def others(self, answers: Mapping[str, Row]) -> dict[tuple[str, int], Node]:
        """The live nodes, by cluster and number, beside those that gave these answers."""
        asked = {(one["cluster"]["uuid"], one["node"]) for one in answers.values()}
        found: dict[tuple[str, int], Node] = {}
        for address, answer in answers.items():
            for row in answer["nodes"]:
                key = answer["cluster"]["uuid"], row["node"]
                if not row["alive"] or key in asked or key in found:
                    continue
                at = f"{calls.bracketed(row['host'])}:{row['http_port']}"
                found[key] = Node(
                    f"https://{at}" if address.startswith("https://") else at, OTHERS_SECONDS_MAX,
                    self.where.tls(), self.where.http_secret(),
                )  # fmt: skip
        return found

    def once(self, *names: str, changes: bool = False) -> list[Node]:
        """The nodes, but one of each cluster: it forwards requests about topics and channels of
        these names to the others. Ephemeral ones are separate on each node."""
        nodes = self.nodes(changes)
        if len(nodes) < 2 or any(map(is_ephemeral, names)):
            return nodes
        clusters = self.clusters(nodes)
        found: dict[str, Node] = {}
        for node in nodes:
            answer = clusters.get(node.address)
            found.setdefault(answer["cluster"]["uuid"] if answer else node.address, node)
        return list(found.values())


def confirm_on(members: Sequence[Node], yes: bool, question: str, name: str) -> None:
    """Confirm a change on all of them."""
    confirm(yes, f"{question} on {', '.join(node.address for node in members)}", name)


class Http(Connection):
    names = (*HTTP, *_FILES, "http_secret_file")


class Tcp(Connection):
    names = (*TCP[:2], *_FILES, "tls", "auth_secret_file", "auth_secret_env")
    kinds = TCP
