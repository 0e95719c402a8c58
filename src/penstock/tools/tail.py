"""`penstock tail`: watch the messages of a topic go by, with when, which, how often, and their key
and headers.

It reads through an ephemeral channel of its own, so nobody else misses a message by it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from penstock.client import Consumer, ConsumerOptions, Message
from penstock.command import terminal
from penstock.command.run import loop_factory
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import bracketed
from penstock.tools import where
from penstock.tools.envelopes import as_json, as_text, carried
from penstock.tools.nodes import Node
from penstock.tools.verbs import DONE, VerbParser, WrongUse, add_json, print_json, run_verb
from penstock.tools.where import DEFAULT_TCP_ADDRESS, Where

PREVIEW_CHARACTERS = 500  # of a body, unless --full asks for all of it


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock tail",
        description="Print the messages of a topic as they are published.",
        examples=["penstock tail orders", "penstock tail orders --count 1 --json"],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="stop after N messages")
    parser.add_argument("--partition", type=int, metavar="N", help="only this partition")
    parser.add_argument("--full", action="store_true", help="whole bodies, however long")
    add_json(parser, "for programs: a line each")
    add_addresses(parser)
    return parser


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Of nsqds that are talked to over TCP."""
    group = parser.add_argument_group("where")
    group.add_argument(
        "--nsqd-tcp-address",
        action="append",
        metavar="ADDRESS",
        help=f"an nsqd (may be repeated; {DEFAULT_TCP_ADDRESS} when nothing is given)",
    )
    group.add_argument(
        "--lookupd-http-address",
        action="append",
        metavar="ADDRESS",
        help="an nsqlookupd: all nsqds that have the topic (may be repeated)",
    )
    where.add_context(group)
    where.add_files(group)
    where.add_auth(group)


def tail_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.count < 0:
        raise WrongUse(f"--count {arguments.count}: must be 0 or more")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_tail(arguments))
    return DONE


def addresses_of(found: Where, tls: ssl.SSLContext | None) -> tuple[list[str], list[str]]:
    """(nsqds, lookupds). An nsqd that is known by its HTTP address tells its TCP port itself."""
    context = found.context
    nsqds, lookupds = list(context.nsqd_tcp_address), list(context.lookupd_http_address)
    if not nsqds and not lookupds:
        nsqds = [tcp_address(one, tls) for one in context.nsqd_http_address]
    if nsqds or lookupds:
        return nsqds, lookupds
    if found.name:
        raise found.lacks(*where.TCP)
    return [DEFAULT_TCP_ADDRESS], []


def tcp_address(http_address: str, tls: ssl.SSLContext | None) -> str:
    port = Node(http_address, tls=tls).document("/info", None, "tcp_port")["tcp_port"]
    if "://" in http_address:
        host = urlsplit(http_address).hostname or ""
    else:
        host = http_address.rpartition(":")[0]
    if not host or "/" in host or port <= 0:
        raise PenstockError(f"{http_address} does not tell a TCP address: --nsqd-tcp-address")
    return f"{bracketed(host)}:{port}"


async def _tail(arguments: argparse.Namespace) -> None:
    found = where.find(arguments, where.TCP)
    files = found.tls()
    nsqds, lookupds = addresses_of(found, files)
    channel = f"tail{random.randrange(10**6):06d}#ephemeral"
    left = arguments.count
    options = ConsumerOptions(
        envelope=True,
        tls=(files or True) if found.context.tls else None,
        lookup_tls=files,
        auth_secret=found.secret(),
    )
    async with Consumer(
        arguments.topic,
        channel,
        nsqds,
        lookupds=lookupds,
        partition=arguments.partition,
        options=options,
    ) as consumer:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, consumer.stop)
        async for message in consumer:
            if arguments.count and left == 0:
                message.req()
                continue
            _show(message, arguments)
            message.fin()
            left -= 1
            if left == 0:
                consumer.stop()


def _show(message: Message, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(as_json(message), indent=None)
        return
    when = message.published.astimezone().isoformat(" ", "milliseconds")[:23]
    head = f"{when} {message.id.decode('ascii', 'replace')}"
    if message.attempts > 1:
        head += terminal.painted(f" attempt {message.attempts}", terminal.YELLOW)
    if headers := carried(message):
        head += " " + terminal.printable(as_text(headers))
    body = text_of(message.body)
    if not arguments.full and len(body) > PREVIEW_CHARACTERS:
        body = f"{body[:PREVIEW_CHARACTERS]}... ({len(message.body):,} bytes)"
    print(f"{terminal.painted(head, terminal.DIM)} {body}", flush=True)


def text_of(body: bytes) -> str:
    return terminal.printable(body.decode("utf-8", "backslashreplace"))
