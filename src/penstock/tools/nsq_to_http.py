"""`nsq_to_http`: send each message to an HTTP server, and finish it when the server has accepted
it.

POST sends the body; any 2xx is taken. GET puts the escaped body into the URL in place of `%s`; only
200 is taken. Anything else gives the message back, and the consumer backs off.

With `--forward-headers` key and headers of a message go along as `X-Nsqext-<name>`. What HTTP does
not allow there (control characters, other than ASCII, a percent sign) is percent-encoded.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_from_bytes

from penstock import limits
from penstock.client import Message, Requeue
from penstock.command.flags import Flag, Kind
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.net.outgoing import HttpFailed, Outgoing
from penstock.tools import utility
from penstock.tools.envelopes import carried
from penstock.tools.hostpool import MODES, Host, HostPool, Status
from penstock.tools.output import WrongUse
from penstock.tools.utility import Values

log = logging.getLogger("penstock.tools")

PROGRAM = "nsq_to_http"
_NAME_CHARACTERS = "!#$&'*+-.^_`|~"  # RFC 9110's tokens, but for the percent sign
_VALUE_CHARACTERS = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
CONTENT_TYPE = "application/octet-stream"
ALL = "all"  # each message to every address; taken when all have taken it

FLAGS = (
    *utility.COMMON,
    utility.TOPIC,
    Flag("channel", Kind.STRING, "nsq_to_http", "NSQ channel"),
    utility.IN_FLIGHT,
    Flag("post", Kind.REPEATED, (), "URL to POST to (may be repeated)"),
    Flag("get", Kind.REPEATED, (), "URL to GET, with one %s for the body (may be repeated)"),
    Flag("mode", Kind.STRING, "hostpool", "which address: hostpool, epsilon-greedy, round-robin, "
         "or all", choices=(*MODES, ALL)),
    Flag("n", Kind.INT, 100, "number of requests at once", bounds=(1, None)),
    Flag("sample", Kind.FLOATS, (), "share of the messages to send, above 0 to 1 (default 1)"),
    Flag("content-type", Kind.STRING, "", f"of a POST (default {CONTENT_TYPE})"),
    Flag("header", Kind.REPEATED, (), 'header of the requests, as "Name: value" (may be repeated)'),
    Flag("forward-headers", Kind.BOOL, False, "send key and headers of a message along as "
         "X-Nsqext-NAME"),
    Flag("status-every", Kind.INT, 250, "log figures after this many requests (0: never)"),
    *utility.SOURCE,
    replace(utility.REQUEST_TIMEOUT, default=20 * limits.SECOND),
)  # fmt: skip


def _check(values: Values) -> None:
    utility.need_names("topic", values["topic"])
    utility.check_consumers(PROGRAM, values, envelope=values["forward_headers"])
    if bool(values["post"]) == bool(values["get"]):
        raise WrongUse("give --post or --get, one of them")
    for url in (*values["post"], *values["get"]):
        try:
            Outgoing("GET", url.replace("%s", "x"), b"", {})
        except HttpFailed as error:
            raise WrongUse(f"{public(url)}: {error}") from error
    for url in values["get"]:
        if url.count("%s") != 1:
            raise WrongUse(f"--get {url!r}: must have exactly one %s")
    if values["content_type"] and not values["post"]:
        raise WrongUse("--content-type only goes with --post")
    sample = values["sample"][-1] if values["sample"] else 1.0
    if not 0 < sample <= 1:
        raise WrongUse(f"--sample {sample}: must be above 0 and 1 at most")
    values["share"] = sample
    usual = {"User-Agent": utility.user_agent(PROGRAM)}
    if values["post"]:
        usual["Content-Type"] = values["content_type"] or CONTENT_TYPE
    values["headers"] = usual | dict(map(_header, values["header"]))  # the last of a name counts


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not value:
        raise WrongUse(f'--header {text!r}: must be "Name: value"')
    if not name.isascii() or any(c in text for c in "\r\n"):
        raise WrongUse(f"--header {text!r}: has bytes that no header may have")
    return name, value


def extension(headers: Mapping[str, Any]) -> dict[str, str]:
    """A message's headers as those of a request."""
    return {
        f"X-Nsqext-{quote(name, safe=_NAME_CHARACTERS)}": _header_value(value)
        for name, value in headers.items()
    }


def _header_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    inside = " " if text == text.strip() else ""  # HTTP takes away what stands at the ends
    return quote(text, safe=_VALUE_CHARACTERS + inside, errors="surrogateescape")


class Sender:
    def __init__(self, values: Values, fetcher: Fetcher, status: Status) -> None:
        self._method = "POST" if values["post"] else "GET"
        self._headers: dict[str, str] = values["headers"]
        self._forwards = values["forward_headers"]
        self._fetcher = fetcher
        self._status = status
        self._share = values["share"]
        self._random = random.Random()
        self._to_all = values["mode"] == ALL
        mode = "round-robin" if self._to_all else values["mode"]
        urls = values["post"] or values["get"]
        self._pool = HostPool(urls, mode, time.monotonic_ns, self._random)

    async def __call__(self, message: Message) -> None:
        """A handler: its return finishes the message."""
        if self._random.random() >= self._share:
            return
        try:
            if self._to_all:
                await asyncio.gather(*(self._send(host, message) for host in self._pool.hosts))
            else:
                await self._send(self._pool.take(), message)
        except FetchFailed as error:
            log.error("%r goes back: %s", message, error)
            raise Requeue from error

    async def _send(self, host: Host, message: Message) -> None:
        began_ns = time.monotonic_ns()
        try:
            status = await self._request(host.address, message)
            took_ns = time.monotonic_ns() - began_ns
            self._status.note(public(host.address), took_ns)
            if status != 200 and (self._method == "GET" or not 200 <= status < 300):
                raise FetchFailed(public(host.address), f"got response {status}", status)
        except FetchFailed:
            self._pool.failed(host)
            raise
        self._pool.succeeded(host, took_ns)

    async def _request(self, url: str, message: Message) -> int:
        body, headers = message.body, self._headers
        if self._method == "GET":
            url, body = url.replace("%s", quote_from_bytes(body, safe="")), b""
        if self._forwards:  # the command line's own come last: they say what is fixed
            headers = extension(carried(message)) | headers
        return (await self._fetcher.request(self._method, url, body, headers)).status


async def _main(values: Values, stop: asyncio.Event) -> None:
    async with utility.fetching(values, answer_bytes_max=limits.MIB) as fetcher:
        sender = Sender(values, fetcher, Status(values["status_every"]))
        consumer = utility.consumer(values["topic"], values)
        await utility.consume_until(stop, [(consumer, sender)], values["n"])


main = utility.entry(PROGRAM, FLAGS, _check, _main)
