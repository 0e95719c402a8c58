"""`penstock tail`: watch the messages of a topic go by, with when, which, how often, and their key
and headers.

It reads through an ephemeral channel of its own, so nobody else misses a message by it.
"""

import json
import random
from typing import Annotated

from penstock.client import Consumer, ConsumerOptions, Message
from penstock.command import terminal
from penstock.command.run import run
from penstock.tools.app import Json, Partition, Topic, app, opt, switch, verb
from penstock.tools.connection import Tcp
from penstock.tools.envelopes import as_json as row_of
from penstock.tools.envelopes import as_text, carried
from penstock.tools.nsq_tail import print_messages
from penstock.tools.utility import Stop, until_signal

PREVIEW_CHARACTERS = 500  # of a body, unless --full asks for all of it


@verb(app, "tail orders", "tail orders --count 1 --json")
def tail(
    topic: Topic,
    at: Tcp,
    count: Annotated[int, opt("N", "stop after N messages", min=0)] = 0,
    partition: Partition = None,
    full: Annotated[bool, switch("whole bodies, however long")] = False,
    as_json: Json = False,
) -> int:
    """Print the messages of a topic as they are published."""
    nsqds, lookupds = at.where.tcp_addresses()
    options = ConsumerOptions(envelope=True, **at.where.client_options())
    channel = f"tail{random.randrange(10**6):06d}#ephemeral"

    def line_of(message: Message) -> bytes:
        shown = json.dumps(row_of(message), ensure_ascii=False) if as_json else _line(message, full)
        return shown.encode("utf-8", "backslashreplace")

    async def follow(stop: Stop) -> None:
        consumer = Consumer(
            topic, channel, nsqds, lookupds=lookupds, partition=partition, options=options
        )
        await print_messages([consumer], line_of, count, stop)

    return run(lambda: until_signal(follow))


def _line(message: Message, full: bool) -> str:
    when = message.published.astimezone().isoformat(" ", "milliseconds")[:23]
    head = f"{when} {message.id}"
    if message.attempts > 1:
        head += terminal.painted(f" attempt {message.attempts}", terminal.YELLOW)
    if headers := carried(message):
        head += " " + terminal.printable(as_text(headers))
    body = terminal.printable(message.body.decode("utf-8", "backslashreplace"))
    if not full and len(body) > PREVIEW_CHARACTERS:
        body = f"{body[:PREVIEW_CHARACTERS]}... ({len(message.body):,} bytes)"
    return f"{terminal.painted(head, terminal.DIM)} {body}"
