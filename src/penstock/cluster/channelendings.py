"""Channels that clients delete at this node: a tombstone is put, and then it has to be seen here.

| the coordinator says | then |
|---|---|
| done | the client is answered when the channel is gone here, too |
| refused: somebody has changed it | the same with what stands there now; one that is gone is done |
| unknown | the same again after a while; whether it was done shows in the next answer |
| nothing for CHANNEL_CONFIRM_NS | the client hears that it is not known |

Only the channel that was meant is deleted: one of the same name that was made since has another
number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.broker.ports import ChannelDone
from penstock.cluster import keys
from penstock.cluster.coordinator import Coordinator, Put, RevisionIs, Settled, Transaction
from penstock.cluster.documents import CHANNEL, Channel
from penstock.cluster.keys import ChannelName
from penstock.cluster.view import Held, View
from penstock.errors import ChangeUnknown, DocumentBroken, NotFound, PenstockError
from penstock.limits import CHANNEL_CONFIRM_NS, COORDINATOR_RETRY_NS
from penstock.replica.leading import Outcome


class _Ending:
    __slots__ = ("again", "again_ns", "deadline_ns", "document", "done", "is_put", "revision")

    def __init__(self, held: Held[Channel], deadline_ns: int, done: ChannelDone) -> None:
        self.document = held.document
        self.revision = held.revision
        self.deadline_ns = deadline_ns
        self.done = done
        self.is_put = False
        self.again: Callable[[], None] | None = None
        self.again_ns = 0


class ChannelEndings:
    def __init__(
        self,
        view: View,
        coordinator: Coordinator,
        is_here: Callable[[ChannelName, int], bool],
        now_ns: int,
    ) -> None:
        self._view = view
        self._coordinator = coordinator
        self._is_here = is_here
        self._now_ns = now_ns
        self._endings: dict[ChannelName, list[_Ending]] = {}

    def delete(self, topic: str, channel: str, done: ChannelDone) -> None:
        name = ChannelName(topic, channel)
        held = self._view.channels.get(name)
        if held is None or held.document.deleted:
            done(NotFound("channel", channel))
            return
        ending = _Ending(held, self._now_ns + CHANNEL_CONFIRM_NS, done)
        self._endings.setdefault(name, []).append(ending)
        self._put(name, ending)

    def _put(self, name: ChannelName, ending: _Ending) -> None:
        key = keys.channel(*name)
        tombstone = CHANNEL.encode(ending.document._replace(deleted=True))
        transaction = Transaction((RevisionIs(key, ending.revision),), (Put(key, tombstone),))
        self._coordinator.transact(transaction, partial(self._settled, name, ending))

    def _settled(self, name: ChannelName, ending: _Ending, settled: Settled) -> None:
        if settled.outcome is Outcome.DONE:
            ending.is_put = True
        elif settled.outcome is Outcome.UNKNOWN:
            ending.again = partial(self._put, name, ending)
            ending.again_ns = self._now_ns + COORDINATOR_RETRY_NS
        else:
            self._go_on(name, ending, settled)

    def _go_on(self, name: ChannelName, ending: _Ending, settled: Settled) -> None:
        """It was changed since this node has seen it."""
        for entry in settled.found:
            try:
                document = CHANNEL.decode(entry.key, entry.value)
            except DocumentBroken as error:
                self._end(name, ending, error)
                return
            is_it = _identity(document) == _identity(ending.document)
            if is_it and not document.deleted:
                ending.document, ending.revision = document, entry.revision
                self._put(name, ending)
                return
        ending.is_put = True

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for name, endings in tuple(self._endings.items()):
            for ending in tuple(endings):
                self._look(name, ending)

    def _look(self, name: ChannelName, ending: _Ending) -> None:
        if ending.is_put and not self._is_here(name, ending.document.number):
            self._end(name, ending, None)
        elif self._now_ns >= ending.deadline_ns:
            reason = "it may be deleted or not, ask again"
            where = f"channel {name.channel} of topic {name.topic}"
            self._end(name, ending, ChangeUnknown(where, reason))
        elif ending.again is not None and ending.again_ns <= self._now_ns:
            again, ending.again = ending.again, None
            again()

    def _end(self, name: ChannelName, ending: _Ending, error: PenstockError | None) -> None:
        endings = self._endings.get(name, [])
        if ending in endings:
            endings.remove(ending)
            if not endings:
                del self._endings[name]
            ending.done(error)


def _identity(channel: Channel) -> tuple[int, int]:
    return channel.identity, channel.number
