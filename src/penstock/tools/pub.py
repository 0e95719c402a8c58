"""`penstock pub`: publish from the command line: one message, or a line of input each."""

import struct
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

from penstock import limits
from penstock.command import terminal
from penstock.durations import parse_duration
from penstock.errors import PenstockError
from penstock.tools import completion
from penstock.tools.app import Several, Topic, app, arg, opt, verb
from penstock.tools.connection import Http
from penstock.tools.envelopes import as_text, read_headers
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import Output, Row, WrongUse

BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20  # of bodies in one request: far below any daemon's bound, far above its cost
_REFUSED = (400, 413)  # before any of it is stored
_U32 = struct.Struct(">I")


@verb(
    app,
    "pub orders 'a first one'",
    "pub orders later --delay 30s",
    "pub orders 'of one customer' --key customer-17",
    "pub orders 'from a shop' --header source=shop",
)
def pub(
    topic: Topic,
    at: Http,
    body: Annotated[str | None, arg("BODY")] = None,
    delay: Annotated[str, opt("DURATION", "such as 30s, 1h30m")] = "0",
    key: Annotated[str | None, opt("KEY", "messages of one key go to one partition")] = None,
    header: Annotated[Several, opt("NAME=VALUE", "of an extended topic; may be repeated")] = None,
    partition: Annotated[
        str | None, opt("N", "where they go", autocompletion=completion.partitions)
    ] = None,
) -> Output:
    """Publish BODY, or every line of the input when there is no BODY.

    It ends when all of it is acknowledged; empty lines are left out. With --header each line is a
    request."""
    wanted = _parameters(topic, delay, key, header or [], partition)
    node = at.nodes(changes=True)[0]
    published = 1
    if body is not None:
        _publish(node, wanted, [body.encode("utf-8", "surrogateescape")])
    else:
        published = _publish_lines(node, wanted, sys.stdin.buffer)
    document = {"node": node.address, "topic": topic, "published": published}
    return Output(document, errors=[f"{published:,} published to {topic} on {node.address}"])


def _parameters(
    topic: str, delay: str, key: str | None, header: list[str], partition: str | None
) -> Row:
    """The parameters of a request. Raises WrongUse."""
    try:
        delay_ms = parse_duration(delay) // limits.MS
    except ValueError as error:
        raise WrongUse(f"--delay: {error}") from error
    if delay_ms < 0:
        raise WrongUse(f"--delay {delay}: must not be negative")
    if key is not None and partition is not None:
        raise WrongUse("--key and --partition both say where: give one of them")
    if header and delay_ms:
        raise WrongUse("--delay does not go with --header: nsqd has no such publish")
    ext = as_text(read_headers(header, key)) if header else None
    return {"topic": topic, "defer": delay_ms or None, "partition": partition, "ext": ext,
            "key": None if header else key}  # fmt: skip


def _publish(node: Node, wanted: Row, bodies: list[bytes]) -> None:
    """nsqd has no request for several with headers."""
    if len(bodies) == 1:
        node.post("/pub_ext" if wanted["ext"] else "/pub", wanted, body=bodies[0])
        return
    parts = [_U32.pack(len(bodies)), *(_U32.pack(len(body)) + body for body in bodies)]
    node.post("/mpub", wanted | {"binary": True}, body=b"".join(parts))


def _publish_lines(node: Node, wanted: Row, stream: BinaryIO) -> int:
    published = 0
    count_max = 1 if wanted["ext"] else BATCH_MESSAGES
    with terminal.Progress("published") as progress:
        try:
            for bodies in batches((line.rstrip(b"\n") for line in stream), count_max):
                _publish(node, wanted, bodies)
                published += len(bodies)
                progress.show(published)
        except NodeFailed as error:
            rest = "nothing of the rest is stored"
            if error.status not in _REFUSED:
                rest = f"the next {BATCH_MESSAGES} at most may or may not be stored"
            reason = f"{error} (acknowledged before that: {published}; {rest})"
            raise PenstockError(reason) from error
    return published


def batches(bodies: Iterator[bytes], count_max: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    held_bytes = 0
    for body in filter(None, bodies):
        if batch and (held_bytes + len(body) > BATCH_BYTES or len(batch) == count_max):
            yield batch
            batch, held_bytes = [], 0
        batch.append(body)
        held_bytes += len(body)
    if batch:
        yield batch
