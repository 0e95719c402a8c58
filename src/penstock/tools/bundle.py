"""`penstock bundle`: one file with all that a report about an installation needs, and a verb that
reads it and says what is wrong.

Exit codes of `gather`: 0 the file is there (what did not answer is written in it), 1 it is not, 2
the command line is wrong. Those of `analyze` are those of `penstock check`: 0 nothing but notes, 1
warnings, 2 faults, 3 the file is no bundle, or the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock import limits
from penstock.errors import BundleBroken, PenstockError
from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.bundle import reading
from penstock.nsqadmin.bundle.form import Failure
from penstock.nsqadmin.bundle.gather import make_fetcher
from penstock.nsqadmin.bundle.judge import judge, rows_of
from penstock.nsqadmin.bundle.making import Wish, file_name, make
from penstock.nsqadmin.bundle.reading import Bundle
from penstock.tools import nodes, where
from penstock.tools.check import CRITICAL, OK, UNKNOWN, WARNING, WORDS
from penstock.tools.verbs import DONE, VerbParser, add_json, print_json, run_verb
from penstock.tools.where import Where

_BOTH = (where.LOOKUPD_HTTP, where.NSQD_HTTP)
_CODES = {Level.NOTE: OK, Level.WARN: WARNING, Level.BAD: CRITICAL}


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock bundle",
        description="One file for a report: what every nsqd and nsqlookupd says of itself, and what"
        " is wrong. Bodies of messages and secrets are never in it.",
        examples=[
            "penstock bundle gather --lookupd-http-address lookup1:4161",
            "penstock bundle analyze penstock-bundle-20260102-030405.zip",
        ],
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    _add_gather(
        verbs.add_parser(
            "gather",
            help="ask all daemons, and write FILE.zip",
            examples=[
                "penstock bundle gather",
                "penstock bundle gather -o report.zip --seconds 10",
                "penstock bundle gather --lookupd-http-address lookup1:4161",
            ],
        )
    )
    read = verbs.add_parser(
        "analyze",
        help="say what is wrong; exit code 0: nothing, 1: warnings, 2: faults",
        examples=[
            "penstock bundle analyze report.zip",
            "penstock bundle analyze report.zip --json",
        ],
    )
    read.add_argument("file", metavar="FILE")
    add_json(read)
    return parser


def _add_gather(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.zip", help="by default it is named by time")
    parser.add_argument("--seconds", type=_seconds, default=limits.BUNDLE_SECONDS, metavar="N",
                        help="between two samples, for rates; a profile is taken meanwhile"
                        " (default %(default)s)")  # fmt: skip
    add_json(parser)
    nodes.add_arguments(parser)


def _seconds(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= limits.BUNDLE_SECONDS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds, 0 to {limits.BUNDLE_SECONDS_MAX}"
    )


def bundle_main(argv: Sequence[str]) -> int:
    if argv[:1] == ["analyze"]:
        return _analyze_main(argv)
    command = shlex.join(["penstock", "bundle", *argv])
    return run_verb(parser(), argv, lambda arguments: _gather(arguments, command))


# --- gather ---


def _gather(arguments: argparse.Namespace, command: str) -> int:
    path = Path(arguments.output or file_name(time.time()))
    found = where.find(arguments, _BOTH)
    nsqds, lookupds = _addresses(found)
    wish = Wish(_user(), command, nsqds, lookupds, arguments.seconds)
    tls, progress = found.tls(), _Progress()

    async def run() -> list[Failure]:
        fetcher = make_fetcher(wish.seconds, tls)
        try:
            return await make(path, wish, fetcher, progress.tell)
        finally:
            await fetcher.close()

    try:
        failures = asyncio.run(run())
    finally:
        progress.end()
    size = path.stat().st_size
    if arguments.json:
        rows = [one._asdict() for one in failures]
        print_json({"file": str(path), "bytes": size, "failures": rows})
        return DONE
    print(f"{path}: {size:,} bytes")
    if failures:
        print(f"{len(failures)} questions had no answer; the file says which and why")
    print(f"What is wrong: penstock bundle analyze {shlex.quote(str(path))}")
    return DONE


def _addresses(found: Where) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of nsqds and of nsqlookupds. Unlike other verbs this one asks both."""
    nsqds, lookupds = found.context.nsqd_http_address, found.context.lookupd_http_address
    if not nsqds and not lookupds:
        if found.name:
            raise found.lacks(*where.HTTP)
        nsqds = (where.DEFAULT_ADDRESS,)
    for one in (*nsqds, *lookupds):
        if "@" in one:
            host = one.rpartition("@")[2]
            raise PenstockError(f"{host}: a URL with a user and a password is not supported")
        if "/" in one and "://" not in one:
            raise PenstockError(f"{one}: a bundle is gathered over host:port or a URL, no socket")
    return tuple(nsqds), tuple(lookupds)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        return ""


class _Progress:
    """One line that is written over, on a terminal only."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()

    def tell(self, share: float, words: str) -> None:
        if self._shows:
            print(f"\r\x1b[K{share:4.0%} {words[:70]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# --- analyze ---


def _analyze_main(argv: Sequence[str]) -> int:
    try:
        arguments = parser().parse_args(list(argv))
    except SystemExit as leaving:
        return OK if leaving.code in (None, 0) else UNKNOWN
    try:
        held = reading.read(arguments.file)
        found = judge(held)
    except (BundleBroken, OSError) as error:
        print(f"penstock bundle: {error}", file=sys.stderr)
        return UNKNOWN
    code = max((_CODES[one.level] for one in found), default=OK)
    try:
        _tell(arguments, held, found, code)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
    return code


def _tell(arguments: argparse.Namespace, held: Bundle, found: list[Finding], code: int) -> None:
    if arguments.json:
        about = {key: held.manifest.get(key) for key in ("made", "daemons")}
        print_json({"status": WORDS[code], **about, "findings": rows_of(found)})
        return
    daemons = held.manifest.get("daemons")
    count = len(daemons) if isinstance(daemons, list) else 0
    daemons_shown = f"{count} daemon{'' if count == 1 else 's'}"
    print(f"PENSTOCK {WORDS[code]} - {daemons_shown}, gathered {held.manifest.get('made', '?')}")
    for row in rows_of(found):
        print(f"\n{row['level']:<8} {_plain(row['what'])}")
        print(f"         {_plain(row['why'])}\n         {_plain(row['next_step'])}")
    if not found:
        print("Nothing is wrong, as far as it shows.")


def _plain(text: str) -> str:
    """What others have written moves no cursor."""
    return "".join(char if char.isprintable() else " " for char in text)
