"""Actions are written down before they run, and another service is notified afterwards.

An action that can't be written down is refused. The log is the store's (`store.py`). An entry
begins with the result "begun", which what came of the action replaces; it stays when nsqadmin is
killed in the midst of it, or when the disk runs full meanwhile.

The other service gets one POST of JSON for each action, in order, and is never waited for. The
queue is bounded: a receiver that is slower than its operators loses the oldest, and the log says
so.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.nsqadmin.access import Caller
from penstock.nsqadmin.store import Store, StoreFailed

log = logging.getLogger("penstock.nsqadmin.audit")

About = Mapping[str, str]  # names topic, channel, node
Run = Callable[[], Awaitable[str | None] | str | None]  # does it; a warning, or nothing


class NotDone(StoreFailed):
    """Nothing was done, because it could not be written down."""


class Entry:
    """The outcome of a running action: "" for success, otherwise a warning."""

    result = ""


class Audit:
    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier

    async def perform(
        self, caller: Caller, actions: Sequence[str], about: About, run: Run, detail: str = "",
        origin: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Run the action, and return its warning. Raises NotDone; or the error of `run`, written
        down. Notifies the other service if the `origin` of the request is given."""
        with self.entry(caller, actions, about, detail) as entry:
            done = run()
            entry.result = (await done if inspect.isawaitable(done) else done) or ""
        who = {"user": caller.name} if caller.session else {}  # the official one knows no log-in
        for action in actions if origin is not None else ():
            self._notifier.notify(action, _of(action, about), {**who, **(origin or {})})
        return entry.result

    @contextmanager
    def entry(
        self, caller: Caller, actions: Sequence[str], about: About, detail: str = ""
    ) -> Iterator[Entry]:
        """Around an action: one line for each, which then gets its result. Raises NotDone."""
        pairs = [(action, "/".join(one for one in _of(action, about).values() if one))
                 for action in actions]  # fmt: skip
        try:
            lines = self._store.begin(caller.shown, caller.how, caller.remote, pairs, detail)
        except StoreFailed as error:
            text = f"not done, because the audit log can't be written: {error}"
            raise NotDone(text) from error
        entry = Entry()
        try:
            yield entry
        except BaseException as error:
            entry.result = f"failed: {str(error) or type(error).__name__}"
            raise
        finally:
            try:
                self._store.end(lines, entry.result or "ok")
            except StoreFailed as error:
                log.error("the audit log has %s as begun only (%s): %s", lines, entry.result, error)

    def note(self, caller: Caller, action: str, result: str, target: str = "") -> None:
        """Record an action, done or failed, whether the record can be written or not."""
        try:
            with self.entry(caller, (action,), {"target": target}) as entry:
                entry.result = result
        except NotDone as error:
            log.error(
                "%s of %s from %s (%s): %s", action, caller.shown, caller.remote, result, error
            )

    def done(self, caller: Caller, action: str) -> None:
        """Record an action of the caller on its own account. Raises StoreFailed."""
        self._store.begin(caller.shown, caller.how, caller.remote, [(action, "")], result="ok")


def _of(action: str, about: About) -> dict[str, str]:
    """Making a topic and a channel of it are two actions."""
    left_out = "channel" if action == "create_topic" else ""
    return {key: value for key, value in about.items() if key != left_out}


class Notifier:
    """`endpoint` "": no service."""

    def __init__(self, fetcher: Fetcher, endpoint: str) -> None:
        self._fetcher = fetcher
        self._endpoint = endpoint
        self._queue: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    def notify(self, action: str, about: About, origin: Mapping[str, str]) -> None:
        """`about` names topic, channel and node if the action has them, `origin` the request.
        `user` acts; the `account` is the user that was changed."""
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
        """Queued notifications get the time of one request."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=limits.FETCH_REQUEST_NS / limits.SECOND)
            self._task.cancel()
