"""Nodes that say what a test wants, without any process."""

from collections.abc import Callable
from typing import Any

from penstock.nsqadmin.upstream import Upstream


class Saying(Upstream):
    """`say` gives a node's answer by its address and the path, or the error that it is. What was
    asked, and what was posted and not refused, is kept."""

    def __init__(self, say: Callable[[str, str], Any]) -> None:
        self.say = say
        self.asked: list[str] = []
        self.posted: list[tuple[str, str, dict[str, str]]] = []

    async def get(self, address: str, path: str, query: Any = None) -> Any:
        self.asked.append(path)
        return self._said(address, path)

    async def post(self, address: str, path: str, query: Any = None, body: bytes = b"") -> Any:
        found = self._said(address, path)
        self.posted.append((address, path, dict(query)))
        return found

    def _said(self, address: str, path: str) -> Any:
        found = self.say(address, path)
        if isinstance(found, Exception):
            raise found
        return found


def nodes(**answers: Any) -> Saying:
    """Each always says the same."""
    return Saying(lambda address, path: answers[address])
