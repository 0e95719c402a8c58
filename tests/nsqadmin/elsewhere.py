"""Another service that nsqadmin talks to: graphite, or the receiver of its notifications."""

import json
from queue import Queue
from typing import Any

from e2e.answering import Answer, Answering

WAIT_S = 30


class Elsewhere(Answering):
    """What it was asked, and what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Queue[tuple[str, str, bytes]] = Queue()
        self.answer: Any = []
        self.status = 200

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.asked.put((method, path, body))
        if isinstance(self.answer, bytes):
            return self.status, self.answer, {"Content-Type": "image/png"}
        return self.status, json.dumps(self.answer).encode(), {"Content-Type": "application/json"}

    def next(self) -> tuple[str, str, bytes]:
        return self.asked.get(timeout=WAIT_S)
