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
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus

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


# --- reading an answer ---


def read_grant(document: Any) -> Grant:
    """Raises AuthFailed with the rule that was broken."""
    fields = _object(document, "the answer")
    ttl_s = _typed(fields.get("ttl"), int, 0, "ttl")
    if ttl_s <= 0:
        raise AuthFailed(f"invalid TTL {ttl_s} (must be >0)")
    entries = _list(fields.get("authorizations"), "authorizations")
    if sum(_pattern_count(entry) for entry in entries) > limits.AUTH_PATTERNS_MAX:
        raise AuthFailed(f"more than {limits.AUTH_PATTERNS_MAX} patterns")
    return Grant(
        _typed(fields.get("identity"), str, "", "identity"),
        _typed(fields.get("identity_url"), str, "", "identity_url"),
        min(ttl_s, limits.AUTH_TTL_S_MAX),
        tuple(_read_entry(entry) for entry in entries),
    )


def _read_entry(entry: Any) -> Authorization:
    fields = _object(entry, "an authorization")
    permissions = [
        _typed(item, str, "", "a permission")
        for item in _list(fields.get("permissions"), "permissions")
    ]
    for permission in permissions:
        if permission not in (SUBSCRIBE, PUBLISH):
            raise AuthFailed(f"unknown permission {permission!r}")
    channels = _list(fields.get("channels"), "channels")
    return Authorization(
        frozenset(permissions),
        _pattern(fields.get("topic"), "topic"),
        tuple(_pattern(channel, "channel") for channel in channels),
    )


def _pattern_count(entry: Any) -> int:
    channels = entry.get("channels") if isinstance(entry, dict) else None
    return 1 + (len(channels) if isinstance(channels, list) else 0)


def _pattern(value: Any, kind: str) -> Pattern:
    text = _typed(value, str, "", kind)
    try:
        return Pattern(text)
    except PatternInvalid as error:
        raise AuthFailed(f"unable to compile {kind} {text!r}: {error}") from error


def _object(value: Any, name: str) -> dict[str, Any]:
    """Keys in lower case: they match in any. `null` is an empty one, as in Go."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AuthFailed(f"{name} is no object")
    return {key.lower(): item for key, item in value.items()}


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise AuthFailed(f"{name} is no list")
    return value


def _typed(value: Any, kind: type[Any], zero: Any, name: str) -> Any:
    if value is None:
        return zero
    if type(value) is not kind:
        raise AuthFailed(f"{name} has the wrong type")
    return value
