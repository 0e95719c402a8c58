"""`penstock pub`: publish from the command line: one message, or a line of input each."""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from penstock import limits
from penstock.command import terminal
from penstock.durations import parse_duration
from penstock.errors import PenstockError
from penstock.tools import nodes
from penstock.tools.envelopes import as_text, read_headers
from penstock.tools.verbs import DONE, VerbParser, WrongUse, add_json, print_json, run_verb

BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20  # of bodies in one request: far below any daemon's bound, far above its cost

Parameters = dict[str, str]  # of a request
Publish = Callable[[nodes.Node, Parameters, list[bytes]], Iterator[int]]

_U32 = struct.Struct(">I")


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock pub",
        description="Publish BODY, or every line of the input when there is no BODY. It ends when "
        "all of it is acknowledged; empty lines are left out.",
        examples=[
            "penstock pub orders 'a first one'",
            "penstock pub orders later --delay 30s",
            "penstock pub orders 'of one customer' --key customer-17",
            "penstock pub orders 'from a shop' --header source=shop",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("body", nargs="?", metavar="BODY")
    parser.add_argument("--delay", default="0", metavar="DURATION", help="such as 30s, 1h30m")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--key", metavar="KEY",
                       help="messages of one key go to one partition of the topic")  # fmt: skip
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE",
                        help="of an extended topic's messages (may be repeated); with it each "
                        "line is a request")  # fmt: skip
    where.add_argument("--partition", metavar="N", help="the partition that they go to")
    add_json(parser)
    nodes.add_arguments(parser)
    return parser


def pub_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        delay_ms = parse_duration(arguments.delay) // limits.MS
    except ValueError as error:
        raise WrongUse(f"--delay: {error}") from error
    if delay_ms < 0:
        raise WrongUse(f"--delay {arguments.delay}: must not be negative")
    parameters = {"topic": arguments.topic}
    if delay_ms:
        parameters["defer"] = str(delay_ms)
    if arguments.partition is not None:
        parameters["partition"] = arguments.partition
    if arguments.header:
        if delay_ms:
            raise WrongUse("--delay does not go with --header: nsqd has no such publish")
        headers = read_headers(arguments.header, arguments.key)
        parameters["ext"] = as_text(headers)
    elif arguments.key is not None:
        parameters["key"] = arguments.key
    node = nodes.nodes(arguments, changes=True)[0]
    if arguments.body is not None:
        node.post(_path(parameters), parameters, arguments.body.encode("utf-8", "surrogateescape"))
        published = 1
    else:
        publish = _publish_singly if "ext" in parameters else _publish_together
        published = _publish_lines(node, parameters, sys.stdin.buffer, publish)
    if arguments.json:
        print_json({"node": node.address, "topic": arguments.topic, "published": published})
    else:
        print(f"{published:,} published to {arguments.topic} on {node.address}", file=sys.stderr)
    return DONE


def _path(parameters: Parameters) -> str:
    return "/pub_ext" if "ext" in parameters else "/pub"


def _publish_singly(node: nodes.Node, parameters: Parameters, batch: list[bytes]) -> Iterator[int]:
    """nsqd has no request for several messages with headers. How many were published, each time."""
    for body in batch:
        node.post(_path(parameters), parameters, body)
        yield 1


def _publish_together(
    node: nodes.Node, parameters: Parameters, batch: list[bytes]
) -> Iterator[int]:
    body = b"".join([_U32.pack(len(batch)), *(_U32.pack(len(b)) + b for b in batch)])
    node.post("/mpub", parameters | {"binary": "true"}, body)
    yield len(batch)


def _publish_lines(
    node: nodes.Node, parameters: Parameters, stream: BinaryIO, publish: Publish
) -> int:
    progress = terminal.Progress("published")
    published = 0
    try:
        for batch in batches(line.rstrip(b"\n") for line in stream):
            for count in publish(node, parameters, batch):
                published += count
                progress.show(published)
    except nodes.NodeFailed as error:
        raise PenstockError(
            f"{error} (acknowledged before that: {published}; the next {BATCH_MESSAGES} at most "
            "may or may not be stored)"
        ) from error
    finally:
        progress.end()
    return published


def batches(bodies: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    held_bytes = 0
    for body in bodies:
        if not body:
            continue
        if batch and (held_bytes + len(body) > BATCH_BYTES or len(batch) == BATCH_MESSAGES):
            yield batch
            batch, held_bytes = [], 0
        batch.append(body)
        held_bytes += len(body)
    if batch:
        yield batch
