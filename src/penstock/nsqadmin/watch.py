"""The poller: every nsqd's `/stats`, again and again, for all pages at once.

However many browsers look, an nsqd is asked once an interval. Each nsqd is asked on its own, so one
that hangs slows nobody: a look waits a moment for those that it has asked, and goes on without the
others, whose answers are in a later look. Until then their figures are stale, and say how old they
are. nsqlookupds, which are asked who is there, hold up nobody either.

The interval of an nsqd grows with what its answer costs: one that needs 50 ms is asked every 2.5
seconds, so that it spends no more than a fiftieth of a core on us. What it costs is the quickest of
the last answers: a slow one among them has waited for others. After an action the next question
comes at once.

A node that no nsqlookupd knows any more is asked on, more seldom while it is silent: it may have
died with messages on its disk, and stays with what it said last until an operator forgets it
(`noderecords.py`).

Whoever listens gets every new snapshot in the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin import replication, snapshot
from penstock.nsqadmin.noderecords import NodeRecords
from penstock.nsqadmin.snapshot import NO_CLUSTER, NodeState, Snapshot
from penstock.nsqadmin.upstream import NOT_OF_NSQ, NsqdAddress, Upstream, UpstreamFailed, described

log = logging.getLogger("penstock.nsqadmin.watch")

T = TypeVar("T")


class Listeners(Generic[T]):
    """Receivers of each new value, once there is a first one."""

    def __init__(self, wanted: Callable[[], None] = lambda: None) -> None:
        """`wanted` is called when there is a new receiver."""
        self._wanted = wanted
        self._callbacks: list[Callable[[T], None]] = []
        self.first = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def add(self, callback: Callable[[T], None]) -> Callable[[], None]:
        """Returns the function that removes it."""
        self._callbacks.append(callback)
        self._wanted()

        def end() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return end

    def send(self, value: T) -> None:
        for callback in tuple(self._callbacks):
            try:
                callback(value)
            except Exception:
                log.exception("a page or chart did not take what is new")

    async def ready(self) -> None:
        """Until the first value is there, as it is soon; or a while, if it is not."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.first.wait(), limits.ADMIN_READY_S)


@dataclass
class Errand:
    """A repeated request: never twice at once, nor before it is due."""

    task: asyncio.Task[None] | None = None
    begun_s: float = 0.0  # of the last time
    due_s: float = 0.0  # of the next one

    @property
    def is_busy(self) -> bool:
        return self.task is not None and not self.task.done()

    def is_due(self, wanted_s: float = 0.0) -> bool:
        """`wanted_s`: a request before then is not new enough."""
        is_time = time.monotonic() >= self.due_s or self.begun_s < wanted_s
        return is_time and not self.is_busy

    def begin(self, asking: Coroutine[Any, Any, None], pause_s: float = 0.0) -> asyncio.Task[None]:
        self.begun_s = time.monotonic()
        self.due_s = self.begun_s + pause_s
        self.task = asyncio.get_running_loop().create_task(asking)
        return self.task

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class _Node(Errand):
    state: NodeState = field(kw_only=True)
    since_s: float = field(kw_only=True)  # when it was first heard of
    described_s: float = 0.0  # when its `/info` was read, if nobody else describes it

    def stale_s(self, now_s: float) -> float:
        """The age of its figures, where they should be newer; 0 where not."""
        age_s = now_s - (self.state.answered_s or self.since_s)
        late = self.is_busy and now_s - self.begun_s > limits.ADMIN_STALE_S
        return age_s if late or self.state.error else 0.0


class Watch:
    def __init__(self, upstream: Upstream, interval_ns: int, records: NodeRecords) -> None:
        self._upstream = upstream
        self._records = records
        self._interval_s = interval_ns / limits.SECOND
        self._listeners = Listeners[Snapshot]()
        self.listen, self.ready = self._listeners.add, self._listeners.ready
        self._life = Errand()
        self._hurry = asyncio.Event()
        self._nodes: dict[str, _Node] = {}
        self._discovery, self._cluster_look = Errand(), Errand()
        self._cluster = NO_CLUSTER
        self._alone: dict[str, int] = {}  # nodes of no cluster, by the start that has said so
        self._producers: list[NsqdAddress] = []
        self._names: list[str] = []
        self._errors: tuple[str, ...] = ()
        self._has_found = False  # nsqlookupds have said who is there
        self._wanted_s = 0.0  # answers to questions from before then are not new enough
        self._seen: object = None  # what the last snapshot was made of
        self._made_s = 0.0
        self.latest = Snapshot()
        now_s = time.monotonic()
        for state in records.nodes():
            state.answered_s = now_s - max(0.0, time.time() - state.seen_s)
            self._nodes[state.address] = _Node(state=state, since_s=now_s)

    # --- for pages ---

    def hurry(self) -> None:
        """Something was changed: look now."""
        self._wanted_s = time.monotonic()
        self._hurry.set()

    async def fresh(self) -> Snapshot:
        """With answers to questions from now on, of those who give them soon."""
        self.hurry()
        for _ in range(round(limits.ADMIN_LOOK_S / limits.ADMIN_HURRY_S)):
            await asyncio.sleep(limits.ADMIN_HURRY_S)
            if not any(one.is_busy or one.begun_s < self._wanted_s for one in self._nodes.values()):
                break
        return await self.look()

    def up(self) -> list[str]:
        return [one.address for one in self.latest.nodes.values() if one.is_up]

    def is_unknown(self, address: str) -> bool:
        """All daemons that could know such a node have been asked, and none does."""
        has_asked = self._has_found or not self._upstream.lookupds
        return has_asked and not self._errors and address not in self._nodes

    def forget(self, address: str) -> None:
        """Forget a node that no nsqlookupd knows, and its contents."""
        self._records.forget(address)
        gone = self._nodes.pop(address, None)
        if gone is not None and gone.task not in (None, asyncio.current_task()):
            gone.task.cancel()

    def start(self) -> None:
        self._life.begin(self._run())

    async def stop(self) -> None:
        errands = (self._life, self._discovery, self._cluster_look, *self._nodes.values())
        await asyncio.gather(*(one.stop() for one in errands))

    async def _run(self) -> None:
        while True:
            self._hurry.clear()
            try:
                await self.look()
            except Exception:
                log.exception("looking at the installation failed")
            try:
                await asyncio.wait_for(self._hurry.wait(), self._interval_s)
            except TimeoutError:
                continue
            await asyncio.sleep(limits.ADMIN_HURRY_S)  # several actions in a row are one look

    async def look(self) -> Snapshot:
        """Ask the nodes whose turn it is, and publish what most of them have answered."""
        await self._find_out()
        due = [one for one in self._nodes.values() if one.is_due(self._wanted_s)]
        begun = [one.begin(self._ask(one)) for one in due]
        if begun:
            await asyncio.wait(begun, timeout=limits.ADMIN_LOOK_S)
        if self._cluster_look.is_due():
            self._cluster_look.begin(self._ask_cluster(), limits.ADMIN_DISCOVERY_S)
        if self._is_news():
            self._make()
        if not self._discovery.is_busy:
            self._listeners.first.set()
        return self.latest

    # --- discovery ---

    async def _find_out(self) -> None:
        """The answers of nsqlookupds, if due; or the earlier ones, if they hang."""
        if not self._upstream.lookupds:
            self._keep_to([self._given(address) for address in self._upstream.nsqds])
        elif self._discovery.is_due(self._wanted_s):
            asking = self._discovery.begin(self._discover(), limits.ADMIN_DISCOVERY_S)
            await asyncio.wait([asking], timeout=limits.ADMIN_LOOK_S)

    async def _discover(self) -> None:
        """When no nsqlookupd answers, the earlier nodes stay."""
        try:
            found, missed = await self._upstream.producers()
            names, warning = await self._upstream.topics()
        except UpstreamFailed as error:
            self._errors = (str(error),)
        else:
            self._names, self._has_found = names, True
            self._errors = tuple(dict.fromkeys(one for one in (missed, warning) if one))
            self._keep_to(found)

    def _given(self, address: str) -> NsqdAddress:
        """A node named by a flag: it is listed even while silent."""
        known = self._nodes.get(address)
        return known.state.producer if known else NsqdAddress("", address, 0, 0, "",
                                                           given_address=address)  # fmt: skip

    def _keep_to(self, producers: list[NsqdAddress]) -> None:
        self._producers, now_s = producers, time.monotonic()
        addresses = {one.address for one in producers}
        for address in self._nodes.keys() - addresses:
            if not self._upstream.lookupds:
                self.forget(address)  # it is named no more
            elif self._has_found and not self._errors:  # else who does not answer may know it
                self._nodes[address].state.is_listed = False
        for one in producers:
            if one.address not in self._nodes:
                known = NodeState(one.address, one)
                self._nodes[one.address] = _Node(state=known, since_s=now_s)
            state = self._nodes[one.address].state
            state.producer, state.is_listed = one, True

    # --- answers ---

    async def _ask(self, node: _Node) -> None:
        try:
            await self._take(node)
        except FetchFailed as error:
            node.state.error = error.reason
        except NOT_OF_NSQ as error:
            node.state.error = f"its answer is not an nsqd's: {error}"
        is_gone = bool(node.state.error) and not node.state.is_listed
        pause = limits.ADMIN_POLL_S_MAX if is_gone else pause_s(self._interval_s, node.state)
        node.due_s = node.begun_s + pause

    async def _take(self, node: _Node) -> None:
        state = node.state
        document = await self._upstream.light_stats(state.address)
        answered_s = time.monotonic()
        if not await self._describe(node, document):
            return
        state.document, state.error = snapshot.lean(document), ""
        state.answered_s, state.seen_s = answered_s, time.time()
        state.took_s = (*state.took_s, answered_s - node.begun_s)[-limits.ADMIN_POLL_ANSWERS :]

    async def _describe(self, node: _Node, document: dict[str, object]) -> bool:
        """From its `/info`, where no nsqlookupd describes it. False: it is known by another name,
        and would count twice."""
        if self._upstream.lookupds and node.state.is_listed:
            return True
        if not node.described_s or node.begun_s - node.described_s > limits.ADMIN_DISCOVERY_S:
            address = node.state.address
            info = await self._upstream.document(address, "/info")
            found = described(address, info, document)
            if self._upstream.lookupds:
                own = replace(found, given_address="").address
                if own != address and any(one.address == own for one in self._producers):
                    self.forget(address)
                    return False
            node.state.producer = found
            node.described_s = node.begun_s
        return True

    async def _ask_cluster(self) -> None:
        """The first node that answers, since each of them has the metadata."""
        for state in [one.state for one in self._nodes.values()]:
            if not (state.can_be_asked and state.start_s):
                continue
            if self._alone.get(state.address) == state.start_s:
                continue
            try:
                document = await self._upstream.document(state.address, "/cluster")
                self._cluster = replication.read(document)
            except FetchFailed as error:
                if error.status == 404:
                    self._alone[state.address] = state.start_s
            except NOT_OF_NSQ:
                self._alone[state.address] = state.start_s
            else:
                return

    def _is_news(self) -> bool:
        now_s = time.monotonic()
        stale = {address for address, one in self._nodes.items() if one.stale_s(now_s)}
        states = [one.state for one in self._nodes.values()]
        answers = [(one.address, one.answered_s, one.error, one.is_listed) for one in states]
        seen = (answers, stale, self._producers, self._names, self._errors, self._cluster)
        older = bool(stale) and now_s - self._made_s >= limits.ADMIN_STALE_EVERY_S
        is_news = older or seen != self._seen
        self._seen = seen
        return is_news

    def _make(self) -> None:
        now_s = time.monotonic()
        self._made_s = now_s
        nodes = {
            address: replace(one.state, stale_s=one.stale_s(now_s))
            for address, one in self._nodes.items()
        }
        self._records.keep(nodes)
        self.latest = snapshot.make(
            time.time(), nodes, self._names, self._errors, self.latest, self._cluster
        )
        self._listeners.send(self.latest)


def pause_s(interval_s: float, node: NodeState) -> float:
    cost_s = min(node.took_s, default=0.0)  # the quickest answer has waited least for others
    return min(max(interval_s, cost_s * limits.ADMIN_POLL_SHARE), limits.ADMIN_POLL_S_MAX)
