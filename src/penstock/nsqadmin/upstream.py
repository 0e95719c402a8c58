"""Requests to nsqlookupds and nsqds, many at once, and the handling of failures.

A question goes to several daemons. When some fail, the answers of the others count and a warning
goes with them; when all fail, the question has failed (`UpstreamFailed`). The words of both are the
official nsqadmin's, because its `/api` shows them.

Daemons are named by their HTTP address, "host:port". An nsqd is a `NsqdAddress`: an entry of
nsqlookupd's `/nodes` or `/lookup`, or, when nsqds are given by hand, its own `/info`.
"""

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.errors import FetchFailed, NotFound, PenstockError
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import HttpAnswer, code_of
from penstock.net.secret_file import bearer
from penstock.nsqdapi.aio import exchange
from penstock.nsqdapi.calls import BYTES, AnswerInvalid, Call, bracketed, stats_query

T = TypeVar("T")

LOOKUPD, NSQD = "nsqlookupd", "nsqd"
# What reading the answer of a foreign server raises.
NOT_OF_NSQ = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
_WARNING = "WARNING: "
_NOT_FOUND = 404
_OURS = ("/log/", "/message/", "/connections", "/topic/config", "/channel/config",
         "/channel/message", "/channel/redrive", "/channel/setoffset")  # fmt: skip
_TEXTS = ("hostname", "broadcast_address", "version", "topology_zone", "topology_region")
_HALF = b"\\ud"  # how JSON writes one
_ENVELOPE = {"status_code", "data"}  # around the answers of releases before 1.0


class UpstreamFailed(PenstockError):
    """No daemon gave an answer; `kind` names the daemons, `failed` the errors, by address."""

    def __init__(self, kind: str, failed: Mapping[str, FetchFailed]) -> None:
        errors = "\n".join(Asked({}, dict(failed)).errors)
        super().__init__(f"failed to query any {kind}: {errors or 'there is none'}")
        self.kind, self.failed = kind, dict(failed)

    @property
    def is_unknown(self) -> bool:
        """All of them report that there is no such topic."""
        codes = {one.code for one in self.failed.values()}
        return codes == {"TOPIC_NOT_FOUND"}


class DaemonRefused(FetchFailed):
    """A daemon of ours gives its objection in `code`."""


class NotOffered(DaemonRefused):
    """The official nsqd has no such thing, nor has an older one of ours."""

    def __init__(self, address: str, path: str) -> None:
        reason = f"{address} cannot do this: it has no {path}, which is Penstock's own"
        super().__init__(address, reason, _NOT_FOUND, "NOT_FOUND")
        self.args = (reason,)


class Asked(NamedTuple, Generic[T]):
    """The answers, and the errors of the others; both by address."""

    answers: dict[str, T]
    failed: dict[str, FetchFailed]

    @property
    def errors(self) -> tuple[str, ...]:
        """An answer's words, which are the official ones; who gave none is named."""
        return tuple(one.reason if one.status else str(one) for one in self.failed.values())

    @property
    def refusals(self) -> str:
        """The warning after a change, which is ours: who has not done it, and why."""
        named = "; ".join(f"{address}: {reason(one)}" for address, one in self.failed.items())
        return named and _WARNING + named

    @property
    def warning(self) -> str:
        return _WARNING + "\n".join(self.errors) if self.errors else ""


def warnings(*notes: str) -> str:
    """One warning for several requests; a text of two of them occurs once."""
    texts = dict.fromkeys(one.removeprefix(_WARNING) for one in notes if one)
    return _WARNING + "; ".join(texts) if texts else ""


@dataclass(frozen=True)
class NsqdAddress:
    """One nsqd, as described by nsqlookupds, or by itself."""

    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    remote_addresses: tuple[str, ...] = ()  # "<lookupd>/<where the nsqd comes from>"
    topology_zone: str = ""
    topology_region: str = ""
    topics: tuple[tuple[str, bool], ...] = ()  # (name, tombstoned)
    given_address: str = ""  # as the operator has written it

    @property
    def address(self) -> str:
        if self.given_address:
            return self.given_address
        return f"{bracketed(self.broadcast_address)}:{self.http_port}"


async def gathered(
    asked: Mapping[str, Awaitable[T]],
) -> tuple[dict[str, T], dict[str, FetchFailed]]:
    """The answers, and the errors of the others, by the same keys."""
    results = await asyncio.gather(*asked.values(), return_exceptions=True)
    answers: dict[str, T] = {}
    failed: dict[str, FetchFailed] = {}
    for key, result in zip(asked, results, strict=True):
        if isinstance(result, NOT_OF_NSQ):
            failed[key] = FetchFailed(key, f"{key} does not answer as NSQ does: {result!r}", 200)
        elif isinstance(result, FetchFailed):
            failed[key] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            answers[key] = result
    return answers, failed


@dataclass
class Upstream:
    """`lookupds` or `nsqds` has members, never both. `lookupds` may be changed while it runs."""

    fetcher: Fetcher
    lookupds: tuple[str, ...]
    nsqds: tuple[str, ...]
    secret: str = field(default="", repr=False)  # for changes

    # --- one daemon ---

    async def call(self, address: str, call: Call[T]) -> T:
        """The answer of one daemon. FetchFailed has the official words as its reason."""
        answer = await self.send(address, call)
        try:
            return call.decode(answer.body, answer.headers)
        except AnswerInvalid as error:
            raise _foreign(address, call.path) from error

    async def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Its JSON document, or its text."""
        return await self.call(address, Call(path, tuple((query or {}).items()), _whatever))

    async def post(
        self, address: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Any:
        pairs = tuple((query or {}).items())
        return await self.call(address, Call(path, pairs, _whatever, body, BYTES))

    async def document(
        self, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A JSON object of one daemon. FetchFailed also for anything else: a foreign server."""
        found = await self.get(address, path, query)
        if isinstance(found, dict):
            return found
        raise _foreign(address, path)

    async def send(self, address: str, call: Call[Any]) -> HttpAnswer:
        """The body of a 200, not decoded."""
        credentials = bearer(self.secret) if call.method != "GET" else ""
        try:
            answer = await exchange(self.fetcher, address, call, credentials=credentials)
        except FetchFailed as error:
            error.sent &= call.method != "GET"  # that changes nothing, answered or not
            raise
        if answer.status == 200:
            return answer
        shown = json.dumps(answer.body[:1000].decode("utf-8", "replace"), ensure_ascii=False)
        status = f"{answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        reason, code = f"got response {status} {shown}", code_of(answer.body)[:1000]
        if answer.status == _NOT_FOUND and code == "NOT_FOUND" and call.path.startswith(_OURS):
            raise NotOffered(address, call.path)
        if code:
            details = str(json.loads(answer.body).get("reason") or "")[:1000]
            raise DaemonRefused(address, reason, answer.status, code, details)
        raise FetchFailed(address, reason, answer.status)

    # --- many daemons ---

    async def ask(
        self, kind: str, addresses: Iterable[str], question: Callable[[str], Awaitable[T]]
    ) -> Asked[T]:
        """Put a question to all at once. UpstreamFailed when none answers, or there is none."""
        answers, failed = await gathered({at: question(at) for at in dict.fromkeys(addresses)})
        if not answers:
            raise UpstreamFailed(kind, failed)
        return Asked(answers, failed)

    # --- discovery ---

    async def topics(self) -> tuple[list[str], str]:
        """Every topic's name, sorted, and a warning."""
        if self.lookupds:
            listed = await self._listed("/topics")
            found = {name for one in listed.answers.values() for name in one.get("topics") or ()}
            return sorted(found), listed.warning

        async def names(address: str) -> list[str]:
            return _names(await self.light_stats(address))

        asked = await self.ask(NSQD, self.nsqds, names)
        return sorted({name for one in asked.answers.values() for name in one}), asked.warning

    async def channels(self, topic: str) -> list[str]:
        """According to nsqlookupds."""
        listed = await self._listed("/channels", topic=topic)
        return sorted({at for one in listed.answers.values() for at in one.get("channels") or ()})

    async def producers(self) -> tuple[list[NsqdAddress], str]:
        if self.lookupds:
            listed = await self._listed("/nodes")
            return listed_in(listed.answers), listed.warning
        asked = await self.ask(NSQD, self.nsqds, self.describe)
        return _by_name(asked.answers.values()), asked.warning

    async def producers_of(self, topic: str) -> tuple[list[NsqdAddress], str]:
        """The nsqds with a topic. A tombstoned one is left out. NotFound when everybody reports
        that there is no such topic."""
        if self.lookupds:
            return await self._registered(topic)
        found, warning = await self.producers()
        having = [one for one in found if topic in dict(one.topics)]
        if not having and not warning:
            raise NotFound("topic", topic)
        return having, warning

    async def _registered(self, topic: str) -> tuple[list[NsqdAddress], str]:
        try:
            listed = await self._listed("/lookup", topic=topic)
        except UpstreamFailed as error:
            if error.is_unknown:
                raise NotFound("topic", topic) from error
            raise
        failed = listed.failed.items()
        unsure = {at: one for at, one in failed if one.code != "TOPIC_NOT_FOUND"}
        return listed_in(listed.answers), Asked(listed.answers, unsure).warning

    async def _listed(self, path: str, **query: str) -> Asked[dict[str, Any]]:
        async def read(at: str) -> dict[str, Any]:
            found = await self.document(at, path, query)
            listed_in({at: found})
            ",".join([*(found.get("topics") or ()), *(found.get("channels") or ())])
            return found  # where reading it failed, it is no nsqlookupd's

        return await self.ask(LOOKUPD, self.lookupds, read)

    async def light_stats(self, address: str) -> dict[str, Any]:
        return await self.document(address, "/stats", stats_query())

    async def describe(self, address: str) -> NsqdAddress:
        """An nsqd that was given by hand, in its own words."""
        info, stats = await asyncio.gather(
            self.document(address, "/info"), self.light_stats(address)
        )
        return described(address, info, stats)


def described(address: str, info: Mapping[str, Any], stats: Mapping[str, Any]) -> NsqdAddress:
    """An nsqd that was given by hand, by its `/info` and `/stats`."""
    topics = tuple((name, False) for name in _names(stats))
    return replace(of_row(info), topics=topics, given_address=address)


def of_row(row: Mapping[str, Any]) -> NsqdAddress:
    texts: dict[str, Any] = {name: str(row.get(name) or "") for name in _TEXTS}
    return NsqdAddress(**texts, tcp_port=whole(row, "tcp_port"), http_port=whole(row, "http_port"))


def _whatever(body: bytes, headers: Mapping[str, str]) -> Any:
    """A document, without the envelope of releases before 1.0; or text; or None."""
    if not body:
        return None
    try:
        found = json.loads(_sendable(body))
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    if "x-nsq-content-type" not in headers and isinstance(found, dict):
        return found["data"] if found.keys() >= _ENVELOPE else found
    return found


def _foreign(address: str, path: str) -> FetchFailed:
    return FetchFailed(address, f"{address}{path} does not answer as NSQ does", 200)


def _sendable(body: bytes) -> bytes:
    """A client's name for itself may hold a lone surrogate, which no answer of ours can contain."""
    if _HALF not in body and _HALF.upper() not in body:
        return body
    text = json.dumps(json.loads(body), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _names(stats: Mapping[str, Any]) -> list[str]:
    return [str(row.get("topic_name", "")) for row in stats.get("topics") or ()]


def whole(row: Mapping[str, Any], key: str) -> int:
    """The number of this name in an answer; 0 when it is missing, or none of 64 bits."""
    value = row.get(key)
    return value if isinstance(value, int) and abs(value) < 1 << 63 else 0


def listed_in(answers: Mapping[str, Mapping[str, Any]]) -> list[NsqdAddress]:
    """One for each nsqd in the answers of nsqlookupds. Raises what is in NOT_OF_NSQ."""
    found: dict[tuple[str, int, int], NsqdAddress] = {}
    for lookupd, answer in answers.items():
        for row in answer.get("producers") or ():
            one = _producer(lookupd, row)
            key = (one.broadcast_address, one.tcp_port, one.http_port)
            found[key] = _joined(found[key], one) if key in found else one
    return _by_name(found.values())


def _producer(lookupd: str, row: Mapping[str, Any]) -> NsqdAddress:
    tombstones = row.get("tombstones") or ()
    topics = {}
    for number, name in enumerate(row.get("topics") or ()):
        topics[str(name)] = bool(tombstones[number]) if number < len(tombstones) else False
    remote = f"{lookupd}/{row.get('remote_address', '')}"
    return replace(of_row(row), remote_addresses=(remote,), topics=tuple(sorted(topics.items())))


def _joined(known: NsqdAddress, one: NsqdAddress) -> NsqdAddress:
    """The same nsqd in the answers of two nsqlookupds; tombstoned at one is tombstoned."""
    topics = dict(known.topics)
    for name, dead in one.topics:
        topics[name] = topics.get(name, False) or dead
    remotes = known.remote_addresses + one.remote_addresses
    return replace(one, remote_addresses=remotes, topics=tuple(sorted(topics.items())))


def _by_name(producers: Iterable[NsqdAddress]) -> list[NsqdAddress]:
    return sorted(producers, key=lambda one: (one.hostname, one.broadcast_address, one.http_port))


_WORDS = {
    "TOPIC_NOT_FOUND": "it has no such topic",
    "CHANNEL_NOT_FOUND": "it has no such channel",
    "MESSAGE_NOT_FOUND": "the message is not there any more",
    "INVALID_TOPIC": "the name of the topic is not valid",
    "INVALID_CHANNEL": "the name of the channel is not valid",
    "INVALID_DEFER": "the delay is negative, or longer than its -max-req-timeout",
    "MSG_EMPTY": "the message is empty: a body has 1 byte or more",
    "MSG_TOO_BIG": "the message is larger than its -max-msg-size",
    "BODY_TOO_BIG": "the message is larger than its -max-body-size",
    "EXITING": "it is shutting down",
    "INTERNAL_ERROR": "it failed, and its log says why",
}  # fmt: skip


def reason(error: PenstockError) -> str:
    """The reason of a failure. A code is given beside the text, to be looked up."""
    if isinstance(error, DaemonRefused) and not isinstance(error, NotOffered):
        words = error.details or _WORDS.get(error.code)
        return f"{words} ({error.status} {error.code})" if words else error.code
    return str(getattr(error, "reason", "") or error)
