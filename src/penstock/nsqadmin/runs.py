"""Runs of pipelines: the topics `_pipelines` of all nsqds, read and folded into runs.

`pipelines/runs.py` says what the messages are. Whatever the order in which those of a run come, and
however often each, the same run is the result:

- Its state is the message with the highest number.
- Its chart keeps, of each interval, the message with the highest number. Intervals become
  twice as long when there are too many, and each long one is made of two short ones.
- Of each part of a page, its lowest offset; the text is read when somebody looks.

What is no message of a run is passed over. Of too many runs those that were not heard
for the longest time are forgotten.

`RunWatch` reads each topic from where it was read last. What is new is seen in the statistics that
`Watch` has anyway: where the topic has no more messages than before, nobody is asked anything. It
is read with every look while somebody has a page open that shows runs, and else a few times a
minute, for what needs attention. After a start the newest messages are read, a bounded number.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.broker.topics.settings import PIPELINES
from penstock.errors import BrokerRefused, FetchFailed, PenstockError, RangeCorrupt
from penstock.nsqadmin.messages import Extent, Log
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqadmin.watch import Errand, Listeners, Watch
from penstock.pipelines import runs as messages
from penstock.pipelines.runs import ENDED, Part, RunMessageInvalid, RunStatus, decode

VANISHED = "vanished"
_INTERVAL_S = 2.0  # the shortest that a point of a chart stands for


class RunOffset(NamedTuple):
    node: str
    offset: int


class Point(NamedTuple):
    time_s: float
    rows_per_second: float
    lag_rows: int | None
    lag_seconds: float | None


class Track:
    def __init__(self, points_max: int) -> None:
        self._points_max = points_max
        self._interval_s = _INTERVAL_S
        self._first_s = self._last_s = -1.0
        self._kept: dict[int, tuple[int, Point]] = {}

    def add(self, number: int, point: Point) -> None:
        known = self._first_s >= 0
        self._first_s = min(self._first_s, point.time_s) if known else point.time_s
        self._last_s = max(self._last_s, point.time_s)
        while (self._last_s - self._first_s) / self._interval_s > self._points_max:
            self._interval_s *= 2
            kept, self._kept = list(self._kept.values()), {}
            for one in kept:
                self._keep(*one)
        self._keep(number, point)

    def _keep(self, number: int, point: Point) -> None:
        interval = int(point.time_s // self._interval_s)
        there = self._kept.get(interval)
        if there is None or _order(number, point) > _order(*there):
            self._kept[interval] = (number, point)

    def points(self) -> list[Point]:
        return [self._kept[interval][1] for interval in sorted(self._kept)]


@dataclass
class Run:
    state: RunStatus
    node: str  # the nsqd that it reports to
    seen_s: float  # when anything was heard of it last, by this machine's clock
    track: Track

    @property
    def id(self) -> str:
        return self.state.run

    @property
    def job(self) -> tuple[str, ...]:
        """The purpose of the run: a later run with the same purpose replaces a failed one."""
        options = self.state.options
        wanted = (options.get(name) for name in ("table", "trace", "topic", "to"))
        return (self.state.pipeline, self.state.name, *(str(one) for one in wanted))


@dataclass
class _KnownRun:
    """Everything known about a run; its state may come after its page."""

    seen_s: float
    run: Run | None = None
    offsets: dict[tuple[str, int], dict[int, RunOffset]] = field(default_factory=dict)


class Runs:
    def __init__(self, runs_max: int = limits.ADMIN_RUNS_MAX,
                 points_max: int = limits.ADMIN_RUN_POINTS) -> None:  # fmt: skip
        self._runs_max = runs_max
        self._points_max = points_max
        self._runs: dict[str, _KnownRun] = {}
        self._looked_s: dict[str, float] = {}  # by node: up to when all of it is known

    # --- in ---

    def take(self, position: RunOffset, body: bytes, seen_s: float) -> None:
        try:
            message = messages.decode(body)
        except RunMessageInvalid:
            return
        known = self._runs.setdefault(message.run, _KnownRun(seen_s))
        known.seen_s = max(known.seen_s, seen_s)
        if isinstance(message, Part):
            offsets = known.offsets.setdefault((message.form, message.parts), {})
            offsets[message.part] = min(position, offsets.get(message.part, position))
        else:
            self._take_state(known, message, position)
        if known.run is not None:
            known.run.seen_s = known.seen_s
        if len(self._runs) > self._runs_max:
            del self._runs[min(self._runs, key=lambda id: (self._runs[id].seen_s, id))]

    def _take_state(self, known: _KnownRun, state: RunStatus, position: RunOffset) -> None:
        run = known.run
        if run is None:
            run = known.run = Run(state, position.node, known.seen_s, Track(self._points_max))
        elif _rank(state) > _rank(run.state):
            run.state, run.node = state, position.node
        point = Point(state.time_s, state.rows_per_second, state.lag_rows, state.lag_seconds)
        run.track.add(state.seq, point)

    def looked(self, node: str, now_s: float) -> None:
        """All messages that this node had at that time were read."""
        self._looked_s[node] = now_s

    # --- out ---

    def all(self) -> list[Run]:
        """The newest first."""
        found = [one.run for one in self._runs.values() if one.run is not None]
        return sorted(found, key=lambda run: (-run.state.started_s, run.id))

    def find(self, id: str) -> Run | None:
        known = self._runs.get(id)
        return known.run if known else None

    def page(self, id: str, form: str) -> list[RunOffset]:
        """The positions of a page's parts, in order; nothing when one is missing."""
        known = self._runs.get(id)
        whole = [
            offsets for (of, parts), offsets in (known.offsets.items() if known else ())
            if of == form and len(offsets) == parts
        ]  # fmt: skip
        found = max(whole, key=len, default={})
        return [found[part] for part in sorted(found)]

    def phase(self, run: Run) -> str:
        """Its state, or that it fell silent. While its node is silent the state stays."""
        if run.state.state in ENDED:
            return run.state.state
        silent_s = self._looked_s.get(run.node, run.seen_s) - run.seen_s
        return VANISHED if silent_s > limits.ADMIN_RUN_SILENT_S else run.state.state

    def unmended(self, now_s: float) -> list[Run]:
        """Runs of the last day that failed or vanished, and that no later one has made up for."""
        return [
            run for run in self.latest()
            if self.phase(run) in ("failed", VANISHED)
            and now_s - run.seen_s < limits.ADMIN_RUN_FAILED_S
        ]  # fmt: skip

    def latest(self) -> list[Run]:
        """The last run for each purpose."""
        found: dict[tuple[str, ...], Run] = {}
        for run in self.all():
            found.setdefault(run.job, run)
        return list(found.values())

    def live(self) -> list[Run]:
        return [run for run in self.all() if self.phase(run) in ("started", "running")]


def _order(number: int, point: Point) -> tuple[float, ...]:
    return (number, *(-1.0 if value is None else value for value in point))


def _rank(state: RunStatus) -> tuple[int, bytes]:
    """Two that share a number are not of one run; then it must not matter which came first."""
    return state.seq, messages.encode(state)


# --- figures of a state ---


def done_share(state: RunStatus) -> float | None:
    """The done share of its work, from 0 to 1; None: unknown."""
    if state.state == "finished":
        return 1.0
    if state.total is not None:
        return min(1.0, state.rows / state.total) if state.total else 1.0
    logs = [one for one in state.logs if one.end]
    if logs:
        return sum(min(one.at, one.end) for one in logs) / sum(one.end for one in logs)
    if state.lag_rows is None:
        return None
    whole = state.rows + state.lag_rows
    return state.rows / whole if whole else 1.0


def duration_s(state: RunStatus, phase: str, now_s: float) -> float:
    """Until now, or until its last report."""
    goes_on = phase in ("started", "running")
    return max(0.0, (now_s if goes_on else state.time_s) - state.started_s)


def grown_lag(points: Sequence[Point]) -> int:
    """How many messages it has fallen behind through the whole window; 0 when it has not."""
    known = [point for point in points if point.lag_rows is not None]
    if not known or known[-1].time_s - known[0].time_s < limits.ADMIN_RUN_WINDOW_S:
        return 0
    since_s = known[-1].time_s - limits.ADMIN_RUN_WINDOW_S
    window = [point.lag_rows or 0 for point in known if point.time_s >= since_s]
    thirds = [window[0], window[len(window) // 3], window[2 * len(window) // 3], window[-1]]
    grown = thirds[-1] - thirds[0]
    return grown if thirds == sorted(thirds) and grown > limits.ADMIN_GROWING_MIN else 0


def command(state: RunStatus) -> str:
    """The line that starts it again, for a shell. What was hidden or cut has to be filled in."""
    words = f"penstock pipeline run {state.pipeline}"
    if state.submitted:
        words = f'spark-submit "$(python -m penstock.pipelines --entry)" {state.pipeline}'
    for name, value in state.options.items():
        if name != "config":
            values = value if isinstance(value, list) else [value]
            words = " ".join([words, *(_word(name, one) for one in values)])
    return words


def _word(name: str, value: object) -> str:
    """Quoted, and without characters that a terminal would act on."""
    text = {True: "", False: "false"}[value] if isinstance(value, bool) else str(value)
    shown = "".join(one if one.isprintable() else "�" for one in text)
    return f"--{name}={shlex.quote(shown)}" if shown else f"--{name}"


def run_row(runs: Runs, run: Run) -> dict[str, Any]:
    """The run's report about itself, whose secrets are `***` already, and our view of it."""
    state = run.state
    found = msgspec.structs.asdict(state)
    found["logs"] = [msgspec.structs.asdict(one) for one in state.logs]
    share = done_share(state)
    return found | {
        "phase": runs.phase(run),
        "done_share": None if share is None else round(share, 4),
        "node": run.node,
        "heard_s": run.seen_s,
    }


def run_whole(runs: Runs, run: Run) -> dict[str, Any]:
    """With its chart, and the command that starts it again."""
    points = [one._asdict() for one in run.track.points()]
    return run_row(runs, run) | {"points": points, "command": command(run.state)}


# --- reading them ---

log = logging.getLogger("penstock.nsqadmin.runs")

_UNREADABLE = (410, 416, 422)  # gone, beyond the end, damaged: what lies there is passed over


@dataclass
class _Known:
    identity: str
    offset: int  # up to here it was read
    seen: tuple[int, int] = (0, -1)  # start of the node, count of messages: when it was read
    is_settled: bool = False  # all that was published then could be read


class RunWatch:
    def __init__(self, upstream: Upstream, watch: Watch) -> None:
        self.runs = Runs()
        self._upstream = upstream
        self._known: dict[str, _Known] = {}
        self._listeners = Listeners[None](lambda: self._on_snapshot(watch.latest))
        self.listen, self.ready = self._listeners.add, self._listeners.ready
        self._errand = Errand()
        watch.listen(self._on_snapshot)

    async def page(self, id: str, form: str) -> str | None:
        offsets = self.runs.page(id, form)
        if not offsets:
            return None
        return "".join([await self._part(id, form, position) for position in offsets])

    async def _part(self, id: str, form: str, position: RunOffset) -> str:
        found = await Log(self._upstream, position.node, PIPELINES).message(position.offset)
        try:
            part = decode(found.body) if found is not None else None
        except RunMessageInvalid:
            part = None  # the topic was made again meanwhile
        if not isinstance(part, Part) or (part.run, part.form) != (id, form):
            raise FetchFailed(position.node, "a part of the report is gone", 410)
        return part.text

    async def stop(self) -> None:
        await self._errand.stop()

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        wanted_s = time.monotonic() if self._listeners else 0.0
        if self._errand.is_due(wanted_s):
            self._errand.begin(self._look(snapshot), limits.ADMIN_RUNS_EVERY_S)

    async def _look(self, snapshot: Snapshot) -> None:
        try:
            for node in snapshot.nodes.values():
                if node.is_up:
                    await self._look_at(node)
        except Exception:
            log.exception("reading the runs of pipelines failed")
        self._listeners.first.set()
        self._listeners.send(None)

    async def _look_at(self, node: NodeState) -> None:
        now_s, known = time.time(), self._known.get(node.address)
        row = node.row(PIPELINES)
        if row is None:
            self.runs.looked(node.address, now_s)
            return
        seen = (node.start_s, int(row.get("message_count", 0)))
        if known is None or not known.is_settled or known.seen != seen:
            try:
                await self._read(node.address, seen)
            except PenstockError as error:
                log.info("%s: runs can't be read: %s", node.address, error)
                return
        self.runs.looked(node.address, now_s)

    async def _read(self, address: str, seen: tuple[int, int]) -> None:
        log_ = Log(self._upstream, address, PIPELINES)
        try:
            extent = await log_.extent()
        except BrokerRefused:
            return  # the topic is not there any more
        known = self._known.get(address)
        is_first = known is None or known.identity != extent.identity
        if known is None or is_first:
            newest = extent.end - limits.ADMIN_RUNS_READ
            known = self._known[address] = _Known(extent.identity, max(newest, 0))
        known.offset = max(known.offset, extent.earliest)
        try:
            await self._take(log_, extent, known, is_first)
        except FetchFailed as error:
            if error.status not in _UNREADABLE:
                raise
            known.offset = extent.end
        except RangeCorrupt:
            raise  # it is not passed over: the next look asks for it again
        except ValueError:
            log.warning(
                "%s: messages of %s can't be read: they are passed over", address, PIPELINES
            )
            known.offset = extent.end
        known.seen, known.is_settled = seen, extent.end == extent.committed

    async def _take(self, log_: Log, extent: Extent, known: _Known, is_first: bool) -> None:
        async for found in log_.walk(extent, known.offset, extent.end):
            now_s = time.time()
            for message in found:
                known.offset = message.offset + 1
                # What comes while we look was said now, whatever the node's clock says.
                stored_s = min(message.timestamp_ns / limits.SECOND, now_s)
                position = RunOffset(log_.node, message.offset)
                self.runs.take(position, message.body, stored_s if is_first else now_s)
            await asyncio.sleep(0)  # a thousand messages at a time: others have their turn
        known.offset = extent.end
