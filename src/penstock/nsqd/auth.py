"""Authentication: the answer of an auth server about a client, and the permissions in it.

A client sends a secret. The daemon asks an auth server over HTTP, and the answer names the client
and lists what it is allowed: permissions (subscribe, publish) on topics and channels, as regular
expressions that may match anywhere in a name. It holds for its TTL; the first command after that
asks again. Publishing is allowed by an entry with a channel pattern that matches the empty string,
which is NSQ's rule, odd as it is.

Servers are asked in turn, from a random one on, until one answers well. Whatever is wrong with an
answer makes it none: a wrong type, an unknown permission, a pattern that cannot be read, a TTL that
is not positive. Why an authentication failed is logged and not told to the client. Secrets are in
no log line and no error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote_plus

import msgspec

from penstock import limits
from penstock.errors import AuthFailed, FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.nsqd.pattern import Pattern, PatternInvalid

if TYPE_CHECKING:
    from random import Random

    from penstock.nsqd.session import Session

log = logging.getLogger("penstock.nsqd")

SUBSCRIBE, PUBLISH = "subscribe", "publish"


class Applicant(NamedTuple):
    """The client in a request to the auth server."""

    remote_ip: str
    common_name: str  # of the client's certificate
    tls: bool
    secret: bytes

    def parameters(self) -> dict[str, bytes]:
        """In the order in which they are sent."""
        return {
            "common_name": self.common_name.encode("utf-8", "replace"),
            "remote_ip": self.remote_ip.encode("ascii", "replace"),
            "secret": self.secret,
            "tls": b"true" if self.tls else b"false",
        }

    def __repr__(self) -> str:
        return f"Applicant({self.remote_ip})"  # never the secret


def applicant(session: Session) -> Applicant:
    return Applicant(session.remote_ip, session.common_name, session.settings.tls, session.secret)


class Authorization(NamedTuple):
    permissions: frozenset[str]
    topic: Pattern
    channels: tuple[Pattern, ...]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        return (
            permission in self.permissions
            and self.topic.matches(topic)
            and any(pattern.matches(channel) for pattern in self.channels)
        )


class Grant(NamedTuple):
    """The permissions of one client, and their end."""

    identity: str
    identity_url: str
    ttl_s: int
    entries: tuple[Authorization, ...]

    def allows(self, topic: str, channel: str = "") -> bool:
        """May it subscribe; without a channel: may it publish?"""
        permission = SUBSCRIBE if channel else PUBLISH
        return any(entry.allows(permission, topic, channel) for entry in self.entries)

    def encode(self) -> bytes:
        """The answer to AUTH."""
        answer = {
            "identity": self.identity,
            "identity_url": self.identity_url,
            "permission_count": len(self.entries),
        }
        text = json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")


Done = Callable[[Grant | AuthFailed], None]


class Auth:
    """All authentication of one daemon; off without addresses. `soon` requests a turn after an
    answer; the dice choose the first server."""

    def __init__(
        self,
        addresses: Sequence[str],
        method: str,
        fetcher: Fetcher,
        soon: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        dice: Random,
    ) -> None:
        self.required = bool(addresses)
        self._urls = [a if "://" in a else f"http://{a}/auth" for a in addresses]
        self._posts = method == "post"
        self._fetcher = fetcher
        self._soon = soon
        self._loop = loop
        self._dice = dice
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, applicant: Applicant, done: Done) -> None:
        """Call `done` later with the permissions of the client."""
        task = self._loop.create_task(self._ask(applicant, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, applicant: Applicant, done: Done) -> None:
        found: Grant | AuthFailed = AuthFailed("exiting")
        try:
            found = await self.query(applicant)
        except AuthFailed as error:
            found = error
        except Exception as error:
            # Its text may hold what was sent, so the traceback stays out of the log too.
            log.error("internal error while asking an auth server: %s", type(error).__name__)
            found = AuthFailed("an internal error")
        finally:
            done(found)
            self._soon()

    async def query(self, applicant: Applicant) -> Grant:
        """The first good answer. Raises AuthFailed when there is none."""
        start = self._dice.randrange(len(self._urls))
        failures = []
        for url in self._urls[start:] + self._urls[:start]:
            try:
                return read_grant(await self._answer(url, applicant))
            except FetchFailed as error:
                failures.append(f"failed to auth against {error}")
            except AuthFailed as error:
                failures.append(f"failed to auth against {public(url)}: {error}")
        raise AuthFailed("; ".join(failures))

    async def _answer(self, url: str, applicant: Applicant) -> Any:
        parameters = applicant.parameters()
        if self._posts:
            document = {name: [v.decode("utf-8", "replace")] for name, v in parameters.items()}
            return await self._fetcher.post_json(url, document)
        query = "&".join(f"{name}={quote_plus(value)}" for name, value in parameters.items())
        return await self._fetcher.get_json(f"{url}?{query}")


# --- reading an answer: `null` counts as nothing, as in Go ---


class _Entry(msgspec.Struct):
    permissions: list[Literal["subscribe", "publish"]] | None = None
    topic: str | None = None
    channels: list[str | None] | None = None


class _Answer(msgspec.Struct):
    ttl: int | None = None
    identity: str | None = None
    identity_url: str | None = None
    authorizations: list[_Entry | None] | None = None


def read_grant(document: Any) -> Grant:
    """Raises AuthFailed with the rule that was broken."""
    try:
        answer = msgspec.convert(_lowered({} if document is None else document), _Answer)
    except (msgspec.ValidationError, RecursionError) as error:
        raise AuthFailed(str(error)) from error
    if (answer.ttl or 0) <= 0:
        raise AuthFailed(f"invalid TTL {answer.ttl or 0} (must be >0)")
    entries = [one or _Entry() for one in answer.authorizations or ()]
    if sum(1 + len(one.channels or ()) for one in entries) > limits.AUTH_PATTERNS_MAX:
        raise AuthFailed(f"more than {limits.AUTH_PATTERNS_MAX} patterns")
    return Grant(
        answer.identity or "",
        answer.identity_url or "",
        min(answer.ttl or 0, limits.AUTH_TTL_S_MAX),
        tuple(map(_authorization, entries)),
    )


def _lowered(value: Any) -> Any:
    """Keys match in any letter case."""
    if isinstance(value, dict):
        return {key.lower(): _lowered(one) for key, one in value.items()}
    return list(map(_lowered, value)) if isinstance(value, list) else value


def _authorization(entry: _Entry) -> Authorization:
    return Authorization(
        frozenset(entry.permissions or ()),
        _pattern(entry.topic, "topic"),
        tuple(_pattern(channel, "channel") for channel in entry.channels or ()),
    )


def _pattern(text: str | None, kind: str) -> Pattern:
    try:
        return Pattern(text or "")
    except PatternInvalid as error:
        raise AuthFailed(f"unable to compile {kind} {text!r}: {error}") from error
