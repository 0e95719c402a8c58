"""Contexts: the installations that an operator switches between, each under a name.

One TOML file holds them all. It names addresses, files and environment variables, never a secret
itself: a password in an address is refused, and AUTH's secret stands in a file or a variable.

    version = 1
    selected = "prod"

    [context.prod]
    description = "what earns the money"
    lookupd_http_address = ["lookup1:4161", "lookup2:4161"]
    tls_root_ca_file = "/etc/penstock/ca.pem"

The file is private, `penstock/contexts.toml` below the user's directory of configurations, and is
replaced as a whole by a rename. Two commands that change it at the same time wait for each other.
"""

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.log.disk import OsDisk, replace_file

VARIABLE = "PENSTOCK_CONTEXT"
VERSION = 1
NAME_CHARACTERS_MAX = 64  # it has to fit into a column
TEXT_CHARACTERS_MAX = 4096  # a path on Linux; nothing here is longer

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


class ContextTrouble(PenstockError):
    """An unknown name, an invalid value, a damaged file: the text names it."""


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Each field is an option of `penstock context save`."""

    description: str = ""
    nsqd_http_address: tuple[str, ...] = ()
    nsqd_tcp_address: tuple[str, ...] = ()
    lookupd_http_address: tuple[str, ...] = ()
    tls: bool = False  # of TCP connections; HTTP says it by https://
    tls_root_ca_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_insecure_skip_verify: bool = False
    auth_secret_file: str = ""
    auth_secret_env: str = ""
    http_secret_file: str = ""  # for changes over HTTP

    @property
    def addresses(self) -> list[str]:
        return [*self.nsqd_http_address, *self.lookupd_http_address, *self.nsqd_tcp_address]

    def check(self, name: str) -> None:
        """ContextTrouble names the broken rule."""
        if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
            rule = f"letters, digits, _ . and -, {NAME_CHARACTERS_MAX} at most"
            raise ContextTrouble(f"{name!r} is no name of a context: {rule}")
        broken = [rule for is_broken, rule in self._rules() if is_broken]
        if broken:
            raise ContextTrouble(f"context {name}: {broken[0]}")

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield not self.addresses, "it needs an address"
        both_kinds = bool(self.nsqd_http_address and self.lookupd_http_address)
        yield both_kinds, "nsqd_http_address or lookupd_http_address, not both"
        yield bool(self.tls_cert) != bool(self.tls_key), "tls_cert and tls_key go together"
        both_secrets = bool(self.auth_secret_file and self.auth_secret_env)
        yield both_secrets, "auth_secret_file or auth_secret_env, not both"
        for field, value in msgspec.structs.asdict(self).items():
            for text in value if isinstance(value, tuple) else (str(value),):
                password = "a user and a password in an address are not supported"
                yield "://" in text and "@" in text, f"{field}: {password}"  # which is not shown
                odd = not text.isprintable() or len(text) > TEXT_CHARACTERS_MAX
                rule = f"{TEXT_CHARACTERS_MAX} characters at most, without control characters"
                yield odd, f"{field}: {rule}"


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    version: int = VERSION
    selected: str = ""
    context: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        found = self.context.get(name)
        if found is None:
            names = ", ".join(sorted(self.context))
            others = f"there are {names}" if names else "there are none: penstock context save NAME"
            raise ContextTrouble(f"there is no context {name!r}; {others}")
        return found

    def put(self, name: str, context: Context) -> None:
        context.check(name)
        self.context[name] = context

    def select(self, name: str) -> None:
        """An empty name selects none."""
        if name:
            self.get(name)
        self.selected = name

    def remove(self, name: str) -> None:
        self.get(name)
        del self.context[name]
        self.selected = "" if self.selected == name else self.selected


def read(text: str) -> Contexts:
    """Raises ContextTrouble, whose text does not name the file."""
    try:
        found = msgspec.convert(tomllib.loads(text), Contexts)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ContextTrouble(str(error)) from error
    if found.version != VERSION:
        raise ContextTrouble(f"version {found.version} is not known here, only {VERSION}")
    for name, context in found.context.items():
        context.check(name)
    if found.selected:
        found.get(found.selected)
    return found


def to_text(contexts: Contexts) -> str:
    lines = [f"version = {contexts.version}"]
    if contexts.selected:
        lines.append(f"selected = {_toml(contexts.selected)}")
    for name, context in sorted(contexts.context.items()):
        lines += ["", f"[context.{_toml(name)}]"]
        chosen = msgspec.to_builtins(context).items()
        lines += [f"{field} = {_toml(value)}" for field, value in chosen]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """JSON's strings, lists and booleans are TOML's too: control characters are refused before."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def path() -> Path:
    above = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(above):  # the specification says that a relative one does not count
        above = os.path.expanduser("~/.config")
    return Path(above) / "penstock" / "contexts.toml"


def load() -> Contexts:
    """Raises ContextTrouble when it is damaged; no file is no context."""
    file = path()
    try:
        return read(file.read_bytes().decode())
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ContextTrouble(f"{file} cannot be read: {error}") from error
    except ContextTrouble as error:
        raise ContextTrouble(f"{file} is corrupt: {error}; repair it, or move it away") from error


@contextmanager
def changed() -> Iterator[Contexts]:
    """The contents of the file, written back when the block ends without an error."""
    file = Path(os.path.realpath(path()))  # who links it elsewhere keeps the link
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        contexts = load()
        yield contexts
        replace_file(OsDisk(), str(file), to_text(contexts).encode())
        os.fsync(directory)
    finally:
        os.close(directory)
