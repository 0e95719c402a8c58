"""`penstock bundle`: one file with everything that a report about an installation needs, and a verb
that reads it and reports faults.

Exit codes of `gather`: 0 the file is there (what did not answer is written in it), 1 it is not, 2
the command line is wrong. Those of `analyze` are those of `penstock check`: 0 nothing but notes, 1
warnings, 2 faults, 3 the file is no bundle, or the command line is wrong.
"""

import asyncio
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from penstock import limits
from penstock.command.terminal import Progress, printable
from penstock.errors import BundleBroken, PenstockError
from penstock.nsqadmin.attention import Finding, Level, folded
from penstock.nsqadmin.bundle import files
from penstock.nsqadmin.bundle.files import About, Bundle
from penstock.nsqadmin.bundle.gather import file_name, make
from penstock.nsqadmin.bundle.judge import judge, rows_of
from penstock.nsqadmin.words import count
from penstock.tools.app import arg, group, opt, verb
from penstock.tools.check import CRITICAL, OK, UNKNOWN, WARNING, WORDS
from penstock.tools.connection import DEFAULT_ADDRESS, HTTP, Http, Where
from penstock.tools.output import Output, system_user

_CODES = {Level.NOTE: OK, Level.WARN: WARNING, Level.BAD: CRITICAL}

app = group(
    "One file for a report: what every nsqd and nsqlookupd says of itself, and what is wrong. "
    "Bodies of messages and secrets are never in it.",
    "bundle gather --lookupd-http-address lookup1:4161",
    "bundle analyze penstock-bundle-20260102-030405.zip",
)


class Both(Http):
    """Unlike other verbs this one uses nsqds and nsqlookupds."""

    kinds = HTTP[::-1]


@verb(
    app,
    "bundle gather",
    "bundle gather -o report.zip --seconds 10",
    "bundle gather --lookupd-http-address lookup1:4161",
)
def gather(
    at: Both,
    output: Annotated[str, opt("FILE.zip", "by default named by time", "--output", "-o")] = "",
    seconds: Annotated[
        int, opt("N", "between two samples, for rates", min=0, max=limits.BUNDLE_SECONDS_MAX)
    ] = limits.BUNDLE_SECONDS,
) -> Output:
    """Ask all daemons, and write FILE.zip."""
    path = Path(output or file_name(time.time()))
    nsqds, lookupds = _addresses(at.where)
    command = shlex.join(["penstock", *sys.argv[1:]])
    about = About(who=system_user(), command=command, seconds=seconds)
    with Progress("gathering") as progress:
        making = make(path, nsqds, lookupds, about, at.where.tls(),
                      lambda share: progress.show(int(share * 100), 100))  # fmt: skip
        failures = asyncio.run(making)
    size, rows = path.stat().st_size, msgspec.to_builtins(failures)
    lines = [f"{path}: {size:,} bytes"]
    if failures:
        lines.append(f"not answered: {len(failures)} of the questions; the file says which and why")
    lines.append(f"What is wrong: penstock bundle analyze {shlex.quote(str(path))}")
    return Output({"file": str(path), "bytes": size, "failures": rows}, lines)


def _addresses(found: Where) -> tuple[tuple[str, ...], tuple[str, ...]]:
    nsqds, lookupds = found.context.nsqd_http_address, found.context.lookupd_http_address
    if not nsqds and not lookupds:
        if found.name:
            raise found.lacks(*HTTP)
        nsqds = (DEFAULT_ADDRESS,)
    for one in (*nsqds, *lookupds):
        if "@" in one:
            host = one.rpartition("@")[2]
            raise PenstockError(f"{host}: a URL with a user and a password is not supported")
        if "/" in one and "://" not in one:
            raise PenstockError(f"{one}: a bundle is gathered over host:port or a URL, no socket")
    return nsqds, lookupds


@verb(app, "bundle analyze report.zip", "bundle analyze report.zip --json")
def analyze(file: Annotated[str, arg("FILE")]) -> int | Output:
    """Say what is wrong; exit code 0: nothing, 1: warnings, 2: faults."""
    try:
        held = files.read(file)
        found = judge(held)
    except (BundleBroken, OSError) as error:
        print(f"penstock bundle: {error}", file=sys.stderr)
        return UNKNOWN
    code = max((_CODES[one.level] for one in found), default=OK)
    daemons = msgspec.to_builtins(held.manifest.daemons)
    about = {"status": WORDS[code], "made": held.manifest.made, "daemons": daemons}
    document = {**about, "findings": rows_of(found)}
    return Output(document, _lines(held, found, code), code)


def _lines(held: Bundle, found: list[Finding], code: int) -> Iterator[str]:
    daemons = count(len(held.manifest.daemons), "daemon")
    yield f"PENSTOCK {WORDS[code]} - {daemons}, gathered {printable(held.manifest.made)}"
    for row in rows_of(folded(found, "With --json all of them are listed.")):
        words = [printable(row[name]) for name in ("what", "why", "next_step") if row[name]]
        yield f"\n{row['level']:<8} " + "\n         ".join(words)
    if not found:
        yield "Nothing is wrong, as far as it shows."
