"""`penstock definitions`: topics, channels and their settings, out of one installation and into
another.

The document and its rules are nsqadmin's (`penstock.nsqadmin.definitions`), so what its page has
downloaded goes in here, and the other way round. Before something is changed the changes are shown:
what is there already is no change.
"""

import asyncio
import ssl
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from penstock.command import terminal
from penstock.errors import FetchFailed, PenstockError
from penstock.log.disk import OsDisk, replace_file
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import HttpAnswer
from penstock.nsqadmin import definitions
from penstock.nsqadmin.snapshot import Snapshot
from penstock.nsqadmin.upstream import DaemonRefused, Upstream
from penstock.nsqdapi.calls import Call
from penstock.tools import reports
from penstock.tools.app import Json, Yes, arg, group, opt, switch, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import DONE, FAILED, Output, confirm

FILE_BYTES_MAX = 64 << 20  # a hundred thousand topics are far below
_WORD = "import"  # that is typed: it is about a whole installation

app = group(
    "All topics and channels with their settings as one document. Messages are not in it.",
    "definitions export --file definitions.json",
)


class NodeUpstream(Upstream):
    """nsqadmin's way of asking nsqds, over the connections of the command line: with its files for
    TLS, and over unix sockets. It knows no addresses itself."""

    def __init__(self, tls: ssl.SSLContext | None, secret: str = "") -> None:
        super().__init__(Fetcher(), (), (), secret)  # which opens nothing until it is used
        self._tls = tls

    async def send(self, address: str, call: Call[Any]) -> HttpAnswer:
        node = Node(address, tls=self._tls, secret=self.secret)
        try:
            asked = call.method, call.target, call.body or b"", call.content_type
            return await asyncio.to_thread(node.exchange, *asked)
        except NodeFailed as error:
            if error.status:
                raise DaemonRefused(address, error.reason, error.status, error.code) from error
            raise FetchFailed(address, error.reason) from error


@verb(app, "definitions export", "definitions export --context prod")
def export(
    at: Http,
    file: Annotated[str, opt("FILE", "write there, not to stdout")] = "",
    as_json: Annotated[bool, switch("changes nothing: it is JSON", "--json")] = False,
) -> int:
    """Write all topics and channels, as JSON."""
    text = definitions.to_text(definitions.taken(_seen(at.members())))
    if file:
        replace_file(OsDisk(), file, text)
        print(f"written to {file}", file=sys.stderr)
    else:
        sys.stdout.write(text.decode())
        sys.stdout.flush()
    return DONE


def _seen(members: Sequence[Node]) -> Snapshot:
    """All nodes, or none: half an installation would look like a whole one."""
    snapshot = reports.look(members)
    for node in snapshot.nodes.values():
        if node.error:
            raise PenstockError(f"{node.address}: {node.error}")
    return snapshot


@verb(
    app,
    "definitions import definitions.json --dry-run",
    "definitions import definitions.json --context test --yes",
    name="import",
)
def put(
    file: Annotated[str, arg("FILE", "- for stdin")],
    at: Http,
    on: Annotated[list[str] | None, opt("NODE", "only there; may be repeated")] = None,
    dry_run: Annotated[bool, switch("only show the changes")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Create what is missing, and change settings; nothing is deleted.

    The changes are shown first. What the document does not name stays as it is."""
    wanted = definitions.read(_read(file))
    members = at.nodes()
    upstream = NodeUpstream(at.where.tls(), at.where.http_secret())
    addresses = _chosen([node.address for node in members], on or [])
    changes = definitions.changes(_seen(members), wanted, addresses)
    if not as_json:
        for change in changes:
            print(change.text)
        print(f"{len(changes)} changes" if changes else "nothing to change")
    warning, done_on = "", list[str]()
    if changes and not dry_run:
        at.where.announce()
        confirm(yes, f"make these changes on {', '.join(addresses)}", _WORD)
        with terminal.Progress("changing"):
            warning, done_on = asyncio.run(definitions.put(upstream, addresses, wanted)), addresses
    rows = [change._asdict() for change in changes]
    document = {"changes": rows, "done_on": done_on, "warning": warning}
    Output(document, [f"done on {', '.join(done_on)}"] if done_on else ()).print(as_json)
    if warning:
        print(terminal.painted(warning, terminal.YELLOW, sys.stderr), file=sys.stderr)
    return FAILED if warning else DONE


def _chosen(addresses: list[str], wanted: Sequence[str]) -> list[str]:
    for one in wanted:
        if one not in addresses:
            raise PenstockError(f"--on {one}: it is none of the nodes ({', '.join(addresses)})")
    return [one for one in addresses if not wanted or one in wanted]


def _read(path: str) -> str:
    try:
        with open(path, "rb") if path != "-" else sys.stdin.buffer as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PenstockError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise PenstockError(f"{path}: {FILE_BYTES_MAX:,} bytes at most")
    return data.decode("utf-8", "replace")
