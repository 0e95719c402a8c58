"""Telling another service of every action: one POST of JSON each, in order, never waited for.

The queue is bounded. A receiver that is slower than its operators loses the oldest, and the log
says so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from typing import Any

from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher, public

log = logging.getLogger("penstock.nsqadmin.notify")


class Notifier:
    """`endpoint` "" tells nobody."""

    def __init__(self, fetcher: Fetcher, endpoint: str) -> None:
        self._fetcher = fetcher
        self._endpoint = endpoint
        self._queue: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def tell(self, action: str, about: dict[str, str], origin: dict[str, str]) -> None:
        """`about` names topic, channel and node where the action has them, `origin` the request.
        `user` is who did it; the user that it was done to is the `account`."""
        if not self._endpoint:
            return
        if len(self._queue) >= limits.ADMIN_NOTIFICATIONS_MAX:
            dropped = self._queue.popleft()
            log.warning("notification of %s dropped: the receiver is too slow", dropped["action"])
        self._queue.append({
            "action": action,
            **{"account" if key == "user" else key: value for key, value in about.items()},
            "timestamp": int(time.time()), **origin, "via": socket.gethostname(),
        })  # fmt: skip
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._queue:
            document = self._queue.popleft()
            try:
                await self._fetcher.post_json(self._endpoint, document)
            except FetchFailed as error:
                if error.status == 0 or error.status >= 300:
                    log.error("notification of %s to %s failed: %s", document["action"],
                              public(self._endpoint), error.reason)  # fmt: skip

    async def close(self) -> None:
        """What is queued gets the time of one request."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=limits.FETCH_REQUEST_NS / limits.SECOND)
            self._task.cancel()
