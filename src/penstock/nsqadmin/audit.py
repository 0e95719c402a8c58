"""Writing down what is done, before it is done: an action that can't be written down is refused.

The log is the store's (`store.py`). An entry begins with the result "begun", which what came of the
action replaces; it stays when nsqadmin is killed in the midst of it, or when the disk runs full
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.nsqadmin.access import Caller
from penstock.nsqadmin.store import Store, StoreFailed

log = logging.getLogger("penstock.nsqadmin.audit")

About = Mapping[str, str]  # names topic, channel, node


class NotDone(StoreFailed):
    """Nothing was done, because it could not be written down."""

    def __init__(self, error: StoreFailed) -> None:
        super().__init__(error.path, error.reason)
        self.args = (f"not done, because the audit log can't be written: {error}",)


class Audit:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def perform(
        self, caller: Caller, actions: Sequence[str], about: About,
        run: Callable[[], Awaitable[str]], detail: str = "",
    ) -> str:  # fmt: skip
        """Do it, and return its warning. NotDone; or what `run` raises, written down."""
        entries = self.begin(caller, actions, about, detail)
        try:
            warning = await run()
        except BaseException as error:
            self.end(entries, f"failed: {str(error) or type(error).__name__}")
            raise
        self.end(entries, warning)
        return warning

    def begin(
        self, caller: Caller, actions: Sequence[str], about: About, detail: str = ""
    ) -> list[int]:
        """One entry for each action. NotDone."""
        pairs = [(action, "/".join(one for one in of(action, about).values() if one))
                 for action in actions]  # fmt: skip
        who = (caller.shown, caller.how, caller.remote)
        try:
            return self._store.begin(*who, pairs, detail)
        except StoreFailed as error:
            raise NotDone(error) from error

    def end(self, entries: Sequence[int], result: str) -> None:
        """What came of it; "": all is well."""
        try:
            self._store.end(entries, result or "ok")
        except StoreFailed as error:
            log.error("the audit log has %s as begun only (%s): %s", entries, result, error)

    def note(self, caller: Caller, action: str, result: str, target: str = "") -> None:
        """What is done, or was tried in vain, whether it can be written down or not."""
        try:
            self.end(self.begin(caller, (action,), {"target": target}), result)
        except NotDone as error:
            log.error(
                "%s of %s from %s (%s): %s", action, caller.shown, caller.remote, result, error
            )


def of(action: str, about: About) -> dict[str, str]:
    """Making a topic and a channel of it are two actions."""
    left_out = "channel" if action == "create_topic" else ""
    return {key: value for key, value in about.items() if key != left_out}
