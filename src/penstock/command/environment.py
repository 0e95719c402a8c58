"""Names of environment variables that begin with `PENSTOCK_`, so that a misspelt one is found.

A program knows its own names. Others are right, too, in an environment that several programs
share: those of the other daemons, of pipelines and of the command line, and those that Kubernetes
makes for each service (`PENSTOCK_PORT_4150_TCP_ADDR`). Every other name is a mistake: an option
that somebody believes to be set.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib import import_module

from penstock.errors import ConfigError

PREFIX = "PENSTOCK_"
NEAR = 0.8  # so alike are two names of which one is the other misspelt

_DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")
COMMAND_LINE = frozenset(
    PREFIX + name for name in (
        "COMPLETION_SECONDS", "CONTEXT", "KERNEL", "LAKE", "LOOKUPD_HTTP_ADDRESS",
        "NSQD_HTTP_ADDRESS", "NSQD_TCP_ADDRESS",
    )
)  # fmt: skip
_BUILD_AND_TESTS = frozenset(PREFIX + name for name in ("BUILD", "FUZZ_SECONDS", "SAMPLE_CONFIG"))
PIPELINES = ("archive", "audit", "replay", "trace")

_KUBERNETES = re.compile(
    r"PENSTOCK_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK = re.compile(r"(tcp|udp|sctp)://")  # what Kubernetes puts into PENSTOCK_PORT


def check_names(own: Collection[str], environment: Mapping[str, str]) -> None:
    """For a daemon, which reads the names in `own`: raises ConfigError for an unknown variable."""
    pipelines = tuple(prefix_of(table) for table in PIPELINES)
    _refuse(own, environment, lambda name: not name.startswith(pipelines) or nearest(name, own))


def check_table_names(
    table: str, others: Iterable[str], own: Collection[str], environment: Mapping[str, str]
) -> None:
    """The same for a pipeline, whose names begin with that of its table. People name tables
    themselves, so a variable that begins otherwise, or as one of `others`, may be right."""
    mine, theirs = prefix_of(table), tuple(map(prefix_of, {*PIPELINES, *others} - {table}))
    _refuse(own, environment, lambda name: name.startswith(mine) and not name.startswith(theirs))


def check_near_misses(own: Collection[str], environment: Mapping[str, str]) -> None:
    """For the command line, where people may name variables as they like (for secrets, say)."""
    _refuse(own, environment, lambda name: nearest(name, own))


def _refuse(
    own: Collection[str], environment: Mapping[str, str], is_wrong: Callable[[str], object]
) -> None:
    """Raises ConfigError for a name that no program has, if it is wrong."""
    for name, value in sorted(environment.items()):
        if (
            name.startswith(PREFIX)
            and not (name in own or name.startswith(PREFIX + "TEST_"))
            and not _is_of_kubernetes(name, value)
            and name not in COMMAND_LINE | _BUILD_AND_TESTS | of_daemons()
            and is_wrong(name)
        ):
            raise ConfigError("environment", name, unknown("variable", name, own))


@cache
def of_daemons() -> frozenset[str]:
    """Their tables of flags are read only when a name is in question."""
    tables = (import_module(f"penstock.{daemon}.options").FLAGS for daemon in _DAEMONS)
    return frozenset(PREFIX + flag.file_key.upper() for flags in tables for flag in flags)


def prefix_of(table: str) -> str:
    return f"{PREFIX}{table}_".upper().replace("-", "_")


def nearest(name: str, names: Iterable[str], cutoff: float = NEAR) -> str:
    """The one of `names` that `name` is most like; empty when there is none. What all begin with
    counts for nothing."""
    by_rest = {one.removeprefix(PREFIX): one for one in names}
    found = difflib.get_close_matches(name.removeprefix(PREFIX), by_rest, 1, cutoff)
    return by_rest[found[0]] if found else ""


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """The rule that a name breaks. Its value may be a secret, so it is not shown."""
    near = nearest(name, names, 0.5)
    return f"there is no such {what}" + (f"; the nearest is {near}" if near else "")


def _is_of_kubernetes(name: str, value: str) -> bool:
    is_link = name.endswith("_PORT") and _LINK.match(value) is not None
    return is_link or _KUBERNETES.fullmatch(name) is not None
