"""`penstock context validate`: each address of a context is asked, as the verbs would ask it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.client.link import connect
from penstock.client.options import ConnectionOptions
from penstock.errors import PenstockError
from penstock.tools.contexts import Context
from penstock.tools.nodes import Node, NodeFailed, http_addresses
from penstock.tools.where import Where

ANSWER_SECONDS_MAX = 5.0


class Answer(NamedTuple):
    address: str
    kind: str  # nsqd, nsqd over TCP, nsqlookupd, nsqadmin, or "files" for what stands on this disk
    ok: bool
    said: str  # its version, or what is wrong


def check(context: Context) -> list[Answer]:
    found = Where(context)
    try:
        tls, secret = found.tls(), found.secret()
    except PenstockError as error:
        return [Answer("", "files", False, str(error))]
    answers = [_http("nsqd", one, tls) for one in context.nsqd_http_address]
    for one in context.lookupd_http_address:
        answers.append(_http("nsqlookupd", one, tls))
        answers += _known_to(one, tls) if answers[-1].ok else ()
    answers += [_tcp(one, context, tls, secret) for one in context.nsqd_tcp_address]
    if context.admin:
        answers.append(_admin(context.admin, tls))
    return list(dict.fromkeys(answers))  # two lookupds know the same nsqds


def _http(kind: str, address: str, tls: ssl.SSLContext | None) -> Answer:
    try:
        info = Node(address, ANSWER_SECONDS_MAX, tls).get("/info")
        health = Node(address, ANSWER_SECONDS_MAX, tls).get("/ping")
        version = info["version"]
    except NodeFailed as error:
        return Answer(address, kind, False, error.reason)
    except (ValueError, TypeError, KeyError):
        return Answer(address, kind, False, f"something answers, and it is no {kind}")
    return Answer(address, kind, True, f"v{version} {health}")


def _known_to(lookupd: str, tls: ssl.SSLContext | None) -> Iterator[Answer]:
    try:
        addresses = sorted(set(http_addresses(Node(lookupd, ANSWER_SECONDS_MAX, tls))))
    except NodeFailed as error:
        yield Answer(lookupd, "nsqlookupd", False, f"does not tell its nsqds: {error}")
        return
    yield from (_http("nsqd", one, tls) for one in addresses)


def _tcp(address: str, context: Context, tls: ssl.SSLContext | None, secret: str) -> Answer:
    kind = "nsqd over TCP"
    options = ConnectionOptions(
        tls=(tls or True) if context.tls else None,
        auth_secret=secret,
        connect_timeout_s=ANSWER_SECONDS_MAX,
    )
    try:
        wants_secret = asyncio.run(_greeted(address, options))
    except (PenstockError, OSError) as error:
        return Answer(address, kind, False, str(error).removeprefix(f"{address}: "))
    if wants_secret and not secret:
        return Answer(address, kind, False, "it wants a secret for AUTH: auth_secret_file")
    return Answer(address, kind, True, "OK, with TLS" if context.tls else "OK")


async def _greeted(address: str, options: ConnectionOptions) -> bool:
    """Whether it wants AUTH."""
    link = await connect(address, options)
    try:
        return link.negotiated.auth_required
    finally:
        await link.end()


def _admin(url: str, tls: ssl.SSLContext | None) -> Answer:
    parts = urlsplit(url)
    try:
        node = Node(f"{parts.scheme}://{parts.netloc}", ANSWER_SECONDS_MAX, tls)
        said = node.get(f"{parts.path.rstrip('/')}/ping")
    except (NodeFailed, ValueError) as error:
        reason = error.reason if isinstance(error, NodeFailed) else str(error)
        return Answer(url, "nsqadmin", False, reason)
    return Answer(url, "nsqadmin", said == "OK", str(said)[:100])
