"""Several installations in one nsqadmin: production, staging, a region each; one log-in, one audit
log.

| `-installation=`             | is                                                             |
|------------------------------|----------------------------------------------------------------|
| `NAME=lookupd:HOST:PORT,...` | what these nsqlookupds know                                    |
| `NAME=nsqd:HOST:PORT,...`    | these nsqds                                                    |
| `NAME=FILE`                  | what a TOML file says, with nsqadmin's own keys                |

The installation of the plain flags is the default one, at the official addresses; without plain
addresses that is the first one named. The others are below `/i/NAME`, pages and `/api` alike.

An installation has the values of nsqadmin's flags where its file does not say otherwise, with
three exceptions. Tables (`lake`, `trace_table`) belong to one installation and are never handed on.
Masked fields only become more: what is hidden by the flags is hidden everywhere. And
`-read-only=true` of nsqadmin holds everywhere, whatever a file says.

Who may do what: a file that names `admin_users` or `group_role` has rules of its own, and those two
of the flags do not count there, so a group may do more or less than elsewhere. Local users have
their role everywhere. So that nobody climbs from one installation into another by making a user,
that needs the role destroy in every one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.command.environment import nearest
from penstock.command.flags import Flag, read_file
from penstock.errors import ConfigError
from penstock.net.listener import parse_address

if TYPE_CHECKING:
    from penstock.nsqadmin.options import Options

FLAG = "installation"
NAME_RULE = "1 to 32 of a-z, 0-9 and -, a letter or digit at both ends"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_FORM = "it is not NAME=lookupd:HOST:PORT,..., NAME=nsqd:HOST:PORT,... or NAME=FILE"
_ADDRESSES = {"lookupd": "lookupd_http_address", "nsqd": "nsqd_http_address"}
_RULES = ("admin_user", "group_role")
_NOT_HANDED_ON = ("lake", "trace_table")

# Flags that make sense for one installation; a file may have their keys and no other.
_OWN = frozenset((
    "lookupd-http-address", "nsqd-http-address",
    "http-client-connect-timeout", "http-client-request-timeout",
    "http-client-tls-insecure-skip-verify", "http-client-tls-root-ca-file",
    "http-client-tls-cert", "http-client-tls-key", "http-client-secret-file",
    "graphite-url", "proxy-graphite", "statsd-prefix", "statsd-interval", "statsd-counter-format",
    "statsd-gauge-format", "poll-interval", "history-retention", "mask-field", "lake",
    "trace-table", "read-only", "admin-user", "group-role",
))  # fmt: skip


@dataclass(frozen=True)
class Installation:
    name: str
    options: Options  # nsqadmin's, with what is its own in place
    has_own_rules: bool = False


def read(options: Options, flags: tuple[Flag, ...]) -> list[Installation]:
    """All of them, the default one first. ConfigError."""
    plain = options.lookupd_http_address or options.nsqd_http_address
    check_name("installation-name", options.installation_name)
    found = [Installation(options.installation_name, options)] if plain else []
    for text in options.installation:
        found.append(_read_one(options, flags, text))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            rule = "two installations have this name; -installation-name is that of the plain flags"
            raise ConfigError(FLAG, name, rule)
    return found


def check_name(flag: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(flag, name, f"the name of an installation has {NAME_RULE}")


def _read_one(options: Options, flags: tuple[Flag, ...], text: str) -> Installation:
    name, equals, place = text.partition("=")
    if not equals or not place:
        raise ConfigError(FLAG, text, _FORM)
    check_name(FLAG, name)
    kind, _, listed = place.partition(":")
    if kind not in _ADDRESSES:
        return _of_file(options, flags, name, place)
    addresses = tuple(part.strip() for part in listed.split(",") if part.strip())
    if not addresses:
        raise ConfigError(FLAG, text, _FORM)
    return _made(options, name, {_ADDRESSES[kind]: addresses})


def _check_address(name: str, address: str) -> None:
    if "://" not in address and not parse_address(address, name).host:
        raise ConfigError(name, address, "host:port, or http://host:port")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What is wrong with the options of an installation says which one it is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{FLAG} {name}: {error.name}", error.value, error.rule) from error


def _of_file(options: Options, flags: tuple[Flag, ...], name: str, path: str) -> Installation:
    own = [flag for flag in flags if flag.name in _OWN]
    known = {flag.file_key for flag in own}
    try:
        document = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(FLAG, f"{name}={path}", f"failed to load the file: {error}") from error
    for key in document:
        if key not in known:
            near = nearest(key, known)
            meant = f"; is it {near}?" if near else ""
            rule = f"no key of an installation{meant}; there are {', '.join(sorted(known))}"
            raise ConfigError(f"{FLAG} {name}: {path}", key, rule)
    with naming(name):
        given = read_file(own, path)
    attributes = {flag.name: flag.attribute for flag in own}
    return _made(options, name, {attributes[key]: value for key, value in given.items()})


def _made(options: Options, name: str, given: Mapping[str, Any]) -> Installation:
    values: dict[str, Any] = dict.fromkeys((*_ADDRESSES.values(), *_NOT_HANDED_ON), ())
    has_own_rules = any(rule in given for rule in _RULES)
    if has_own_rules:
        values |= dict.fromkeys(_RULES, ())
    values |= given
    for one in _ADDRESSES.values():
        for address in values[one]:
            _check_address(f"{FLAG} {name}", address)
    if not any(values[one] for one in _ADDRESSES.values()):
        rule = "it names neither nsqlookupd_http_addresses nor nsqd_http_addresses"
        raise ConfigError(FLAG, name, rule)
    values["mask_field"] = tuple(dict.fromkeys((*options.mask_field, *given.get("mask_field", ()))))
    if options.read_only == "true":
        values["read_only"] = "true"
    kept = {field.name for field in fields(options)}
    return Installation(
        name, replace(options, **{k: v for k, v in values.items() if k in kept}), has_own_rules
    )
