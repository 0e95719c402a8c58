"""`penstock definitions`: topics, channels and their settings, out of one installation and into
another.

The document and its rules are nsqadmin's (`penstock.nsqadmin.definitions`), so what its page has
downloaded goes in here, and the other way round. Before something is changed the changes are shown:
what is there already is no change.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import contexts, looking, nodes, where
from penstock.tools.nodes import Node
from penstock.tools.verbs import (
    DONE,
    FAILED,
    VerbParser,
    add_json,
    add_yes,
    confirm,
    print_json,
    run_verb,
)

if TYPE_CHECKING:
    from penstock.nsqadmin.definitions import Change
    from penstock.nsqadmin.snapshot import Snapshot

FILE_BYTES_MAX = 64 << 20  # a hundred thousand topics are far below
_WORD = "import"  # that is typed: it is about a whole installation


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock definitions",
        description="All topics and channels with their settings as one document. Messages are not "
        "in it.",
        examples=["penstock definitions export --file definitions.json"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    export = verbs.add_parser(
        "export",
        help="write what there is, as JSON",
        examples=["penstock definitions export", "penstock definitions export --context prod"],
    )
    export.add_argument("--file", metavar="FILE", help="write there (private), not to stdout")
    add_json(export, "it is JSON anyway")
    put = verbs.add_parser(
        "import",
        help="make what is missing, and change settings; nothing is deleted",
        description="The changes are shown first. What the document does not name stays as it is.",
        examples=[
            "penstock definitions import definitions.json --dry-run",
            "penstock definitions import definitions.json --context test --yes",
        ],
    )
    put.add_argument("file", metavar="FILE", help="- for stdin")
    put.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="NODE",
        help="only on this node, host:port of its HTTP (may be given several times)",
    )
    put.add_argument("--dry-run", action="store_true", help="only show the changes")
    add_json(put)
    add_yes(put)
    for below in (export, put):
        nodes.add_arguments(below)
    return parser


def definitions_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    return _export(arguments) if arguments.verb == "export" else _import(arguments)


# --- out ---


def _export(arguments: argparse.Namespace) -> int:
    from penstock.nsqadmin import definitions
    from penstock.tools.node_upstream import NodeUpstream

    found = where.find(arguments)
    snapshot = _seen(nodes.nodes_of(found))
    taken = definitions.taken(NodeUpstream(found.tls()), snapshot)
    text = definitions.to_text(asyncio.run(taken))
    if arguments.file:
        contexts.replace_file(Path(arguments.file), text)
        print(f"written to {arguments.file}", file=sys.stderr)
    else:
        sys.stdout.write(text.decode())
        sys.stdout.flush()
    return DONE


def _seen(members: Sequence[Node]) -> Snapshot:
    """All nodes, or none: half an installation would look like a whole one."""
    snapshot = looking.look(members)
    for node in snapshot.nodes.values():
        if node.error:
            raise PenstockError(f"{node.address}: {node.error}")
    return snapshot


# --- in ---


def _import(arguments: argparse.Namespace) -> int:
    from penstock.nsqadmin import definitions
    from penstock.tools.node_upstream import NodeUpstream

    wanted = definitions.read(_read(arguments.file))
    found = where.find(arguments)
    members = nodes.nodes_of(found)
    snapshot = _seen(members)
    upstream = NodeUpstream(found.tls(), found.http_secret())
    addresses = _chosen([node.address for node in members], arguments.on)
    changes = asyncio.run(definitions.changes(upstream, snapshot, wanted, addresses))
    if not arguments.json:
        for change in changes:
            print(change.text)
        print(f"{len(changes)} changes" if changes else "nothing to change")
    if arguments.dry_run or not changes:
        return _told(arguments, changes, [], "")
    where.announce(found)
    if not confirm(arguments, f"make these changes on {', '.join(addresses)}", _WORD):
        return FAILED
    warning = asyncio.run(definitions.put(upstream, addresses, wanted))
    return _told(arguments, changes, addresses, warning)


def _chosen(addresses: list[str], wanted: Sequence[str]) -> list[str]:
    for one in wanted:
        if one not in addresses:
            raise PenstockError(f"--on {one}: it is none of the nodes ({', '.join(addresses)})")
    return [one for one in addresses if not wanted or one in wanted]


def _told(
    arguments: argparse.Namespace, changes: Sequence[Change], addresses: list[str], warning: str
) -> int:
    if arguments.json:
        rows = [change._asdict() for change in changes]
        print_json({"changes": rows, "done_on": addresses, "warning": warning})
    elif addresses:
        print(f"done on {', '.join(addresses)}")
    if warning:
        print(terminal.painted(warning, terminal.YELLOW, sys.stderr), file=sys.stderr)
    return FAILED if warning else DONE


def _read(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PenstockError(f"{path} cannot be read: {error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise PenstockError(f"{path}: {FILE_BYTES_MAX:,} bytes at most")
    return data.decode("utf-8", "replace")
