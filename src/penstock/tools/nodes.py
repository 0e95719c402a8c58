"""The daemons that the operator's commands talk to, over their HTTP API. An address is `host:port`,
a URL, or the path of a unix socket.
"""

import http.client
import json
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, NamedTuple, TypeVar

from penstock.command import terminal
from penstock.errors import FetchFailed
from penstock.net.outgoing import HttpAnswer, code_of, document_of, words_of
from penstock.nsqdapi.blocking import FAILURES, IS_TCP_PORT, TCP_PORT, Address, Link, address_of_url
from penstock.nsqdapi.calls import AnswerInvalid, Call, query_of, target
from penstock.tools.output import DONE, FAILED, Output, Row

T = TypeVar("T")
Parameters = Mapping[str, Any] | None  # of a request: those that are None are left out
REQUEST_SECONDS_MAX = 10.0
SILENT_SECONDS_MAX = 1.0  # for an answer of a node that has just been silent for long
PORT_MAX = 65535
NOT_FOUND = 404
_AT_ONCE_MAX = 16  # nodes that are asked at the same time


class NodeFailed(FetchFailed):
    """A daemon that does not answer, or answers with an error."""


class Node:
    """One daemon. Each request has a connection of its own: none is left behind, none is stale."""

    def __init__(
        self,
        address: str,
        timeout_seconds: float = REQUEST_SECONDS_MAX,
        tls: ssl.SSLContext | None = None,
        secret: str = "",
    ) -> None:
        """`secret` goes with changes."""
        self.address = address
        self.silent = False
        self._seconds_max = timeout_seconds
        self._link = Link(address_of(address), timeout_seconds, tls, secret=secret)

    def ask(self, call: Call[T]) -> T:
        answer = self.exchange(call.method, call.target, call.body or b"", call.content_type)
        try:
            return call.decode(answer.body, answer.headers)
        except AnswerInvalid as error:
            raise self._foreign(call.path) from error

    def get(self, path: str, parameters: Parameters = None, *keys: str) -> Any:
        return self._json("GET", path, parameters, b"", keys)

    def post(self, path: str, parameters: Parameters = None, *keys: str, body: bytes = b"") -> Any:
        return self._json("POST", path, parameters, body, keys)

    def _json(
        self, method: str, path: str, parameters: Parameters, body: bytes, keys: Sequence[str]
    ) -> Any:
        """With keys, an object that has them: whoever listens there may be no daemon of NSQ."""
        answer = self.exchange(method, target(path, query_of(parameters or {})), body).body
        found: Any = answer.decode("utf-8", "replace")
        try:
            if answer[:1] in (b"{", b"["):
                found = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise NodeFailed(self.address, f"its answer is no JSON: {error}") from error
        if keys and not (isinstance(found, dict) and found.keys() >= set(keys)):
            raise self._foreign(path)
        return found

    def exchange(
        self, method: str, target: str, body: bytes = b"", content_type: str = ""
    ) -> HttpAnswer:
        """Expects a 200. Raises NodeFailed."""
        is_brief = self.silent and method == "GET"  # of a change we want to know the outcome
        self._link.timeout_s = min(self._seconds_max, SILENT_SECONDS_MAX if is_brief else inf)
        self.silent = True
        try:
            answer = self._link.exchange(method, target, body, content_type)
            self.silent = False
        except FAILURES as error:
            reason = IS_TCP_PORT if TCP_PORT in str(error) else f"no answer: {words_of(error)}"
            raise NodeFailed(self.address, reason) from error
        finally:
            self._link.close()
        is_page = answer.headers.get("content-type", "").startswith("text/html")
        if is_page and answer.status < 500:  # else it is a proxy's: the nsqd behind it is away
            raise self._foreign(target.partition("?")[0])
        if answer.status != 200:
            code, reason = _reason_of(answer)
            text = f"{answer.status} {code}{reason and ': '}{reason}"
            raise NodeFailed(self.address, text, answer.status, code)
        return answer

    def _foreign(self, path: str) -> NodeFailed:
        return NodeFailed(self.address, f"something answers {path}, and it is no daemon of NSQ")


def address_of(text: str) -> Address:
    if "://" in text:
        if "@" in text:  # it would stand in every message about the node
            host = text.rpartition("@")[2]
            raise NodeFailed(host, "a URL with a user and a password is not supported")
        found = address_of_url(text)
        if found is None:
            raise NodeFailed(text, "is neither http://host:port nor https://host:port")
        return found
    if "/" in text:
        return Address("", None, socket_path=text)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal() or int(number) > PORT_MAX:
        raise NodeFailed(text, "is neither host:port, nor a URL, nor the path of a socket")
    return Address(host.strip("[]"), int(number))


def _reason_of(answer: HttpAnswer) -> tuple[str, str]:
    """The name and the reason of an error: nsqd's, or the best available."""
    text = code_of(answer.body) or answer.body.decode("utf-8", "replace").strip()
    reason = (document_of(answer.body) or {}).get("reason") or ""
    name = text or http.client.responses.get(answer.status, "")
    return terminal.printable(name), terminal.printable(str(reason))


def ask_cluster(node: Node) -> Row:
    found: Row = node.get("/cluster", None, "cluster", "node", "nodes", "partitions")
    return found


class Answers(NamedTuple):
    """Answers of several nodes: some requests may fail, while the others succeed."""

    good: dict[str, Any]
    bad: dict[str, NodeFailed]

    @property
    def code(self) -> int:
        """A node without the topic or channel is no failure when others have it."""
        return FAILED if any(error.status != NOT_FOUND for error in self.bad.values()) else DONE

    def output(self, lines: Callable[[str, Any], Iterable[str]]) -> Output:
        """`lines` of each answer."""
        errors = {address: {"error": error.reason} for address, error in self.bad.items()}
        shown = (line for found in self.good.items() for line in lines(*found))
        return Output({"nodes": {**self.good, **errors}}, shown, self.code, self.bad.values())


def ask_all(members: Sequence[Node], ask: Callable[[Node], Any]) -> Answers:
    """All at once: a silent node is waited for once, not by turns."""

    def attempt(node: Node) -> Any:
        try:
            return ask(node)
        except NodeFailed as error:
            return error

    answers = Answers({}, {})
    with ThreadPoolExecutor(min(_AT_ONCE_MAX, max(1, len(members)))) as pool:
        for node, answer in zip(members, pool.map(attempt, members), strict=True):
            kept = answers.bad if isinstance(answer, NodeFailed) else answers.good
            kept[node.address] = answer
    return answers


def ask_each(members: Sequence[Node], ask: Callable[[Node], Any]) -> Answers:
    """Raises NodeFailed when none has an answer."""
    answers = ask_all(members, ask)
    if not answers.good and answers.bad:
        raise next(iter(answers.bad.values()))
    return answers
