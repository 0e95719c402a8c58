"""Findings that need attention: rules over a snapshot and the minutes before it.

Each finding says what is wrong, why we think so, and what to do next. The worst come first. A
diagnostic bundle is judged by the same rules (`bundle/judge.py`), over the seconds between its two
samples: so short a window makes nobody "stuck" who may only be slow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock import limits
from penstock.nsqadmin import snapshot
from penstock.nsqadmin.history import Measures, Sample
from penstock.nsqadmin.noderecords import holding, words_of
from penstock.nsqadmin.replication import Copies, Replication
from penstock.nsqadmin.runs import Run, Runs, grown_lag
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.words import clock, count, listed, span, wait

Recent = Callable[[str], Sequence[Sample]]  # of a series: the last minutes

_NUMBERS_SHOWN = 8
_OF_A_KIND = 5


class Level(IntEnum):
    NOTE = 0
    WARN = 1
    BAD = 2


class Finding(NamedTuple):
    level: Level
    what: str  # "channel orders/billing is stuck"
    why: str
    next_step: str
    path: tuple[str, ...]  # of the page to go to: ("topics", "orders", "billing")
    state: str = ""  # the same in a word or two, for a column of a table


class Thing(NamedTuple):
    name: str
    path: tuple[str, ...]

    def bad(self, is_: str, why: str, step: str, state: str = "") -> Finding:
        return Finding(Level.BAD, f"{self.name} {is_}", why, step, self.path, state)

    def warn(self, is_: str, why: str, step: str, state: str = "") -> Finding:
        return self.bad(is_, why, step, state)._replace(level=Level.WARN)

    def note(self, is_: str, why: str, step: str, state: str = "") -> Finding:
        return self.bad(is_, why, step, state)._replace(level=Level.NOTE)


class Window(NamedTuple):
    """The past that a rule about movement needs."""

    span_s: float = limits.ADMIN_WINDOW_S
    samples_min: int = 3
    words: str = "some minutes"  # how people call it

    @property
    def is_short(self) -> bool:
        return self.span_s < limits.ADMIN_WINDOW_S


_MINUTE = Window()


def findings(snapshot: Snapshot, recent: Recent, window: Window = _MINUTE) -> list[Finding]:
    found: list[Finding] = []
    for node in snapshot.nodes.values():
        found += _of_node(snapshot, node)
    for topic in snapshot.topics.values():
        found += _of_topic(topic)
        for channel in topic.channels.values():
            if channel.is_internal:
                continue  # dead letters wait to be redriven: they are their own channel's finding
            holds = channel.depth + channel.in_flight  # who holds nothing needs no past
            past = recent(f"{topic.name}/{channel.name}") if holds else ()
            found += _of_channel(channel, past, window)
            found += _of_partitions(channel)
    found += _of_cluster(snapshot.cluster)
    return sorted(found, key=order)


def order(one: Finding) -> tuple[int, int, str]:
    """The worst first, and causes before effects: nodes, then topics, then channels."""
    rank = len(one.path) if one.path[:1] == ("topics",) else 0
    return -one.level, rank, one.what


def folded(
    found: Iterable[Finding], step: str = "The list of topics has them."
) -> Iterator[Finding]:
    """The first of each kind, and how many more there are: a node that is down concerns hundreds
    of topics, and they would hide the rest."""
    kinds: dict[tuple[Level, str], list[Finding]] = {}
    for one in found:
        kinds.setdefault((one.level, one.state or one.what), []).append(one)
    for (level, state), alike in kinds.items():
        yield from alike[:_OF_A_KIND]
        if left := len(alike[_OF_A_KIND:]):
            yield Finding(level, f"{left:,} more: {state}", "", step, ("topics",))


def of_runs(runs: Runs, now_s: float) -> list[Finding]:
    found = [_ended_badly(runs, run, now_s) for run in runs.unmended(now_s)]
    for run in runs.live():
        if grown := grown_lag(run.track.points()):
            why = f"{grown:,} more than some minutes ago: {wait(run.state.lag_rows or 0)}."
            step = "Give Spark more cores, or raise max-offsets-per-trigger."
            found.append(_of(run).warn("falls behind", why, step))
    for run in runs.latest():
        is_new = now_s - run.seen_s < limits.ADMIN_RUN_FAILED_S
        if run.state.state == "finished" and run.state.code and is_new:
            why = f"{run.state.outcome or f'its exit code is {run.state.code}'}."
            found.append(_of(run).warn("has something to tell", why, "Its page has the report."))
    return found


def _of(run: Run) -> Thing:
    return Thing(f"pipeline {run.state.name}", ("pipelines", run.id))


def _ended_badly(runs: Runs, run: Run, now_s: float) -> Finding:
    state = run.state
    if runs.phase(run) == "failed":
        step = "Repair that, and start it again: its page has the command."
        return _of(run).bad("failed", f"{state.reason.rstrip('.')}.", step)
    minutes = (now_s - run.seen_s) / 60
    why = f"Nothing was heard of it for {minutes:,.0f} min, and it had not ended."
    step = f"See whether process {state.pid} on {state.host} runs, and whether it reaches nsqd."
    return _of(run).bad("fell silent", why, step)


def _of_node(snapshot: Snapshot, node: NodeState) -> Iterator[Finding]:
    it = Thing(f"node {node.address}", ("nodes", node.address))
    if node.error:
        step = "See whether the process runs and its port can be reached."
        if not node.is_listed:
            step += " Its page forgets it, if it is gone for good."
        why, held = f"{node.error.rstrip('.')}.", holding(snapshot, node)
        if node.seen_s:
            why = f"It last answered at {clock(node.seen_s)} ({node.error}). {words_of(held)}"
        is_expected = node.is_listed or node.address in snapshot.cluster.known.values()
        found = it.bad if is_expected or held.messages else it.warn  # taken away, maybe
        yield found("does not answer", why, step)
        return
    if not node.is_listed:
        step = "See whether its -lookupd-tcp-address is right and can be reached from there."
        yield it.warn("is known to no nsqlookupd", "It answers, and no consumer finds it.", step)
    if node.is_unhealthy:
        step = "Its log says more; a full or failing disk is the usual cause."
        if node.health.startswith("NOK - etcd"):
            step = "See whether etcd runs and can be reached from there."
        yield it.bad("is not healthy", f"{node.health.rstrip('.')}.", step)
    elif node.warning:
        step = "Run penstock log verify on the node; it serves all that is intact."
        yield it.warn("warns", f"{node.warning.rstrip('.')}.", step)
    disk = node.disk
    slow_s = disk.get("sync_slowest_seconds", 0.0)
    if slow_s > limits.ADMIN_SYNC_SLOW_S:
        why = f"A sync took {slow_s * 1000:.0f} ms; every publish waits for one."
        yield it.warn("syncs slowly", why, "Look at the disk's load.")
    free, size = disk.get("free_bytes", 0), disk.get("size_bytes", 0)
    if size and free < size * limits.ADMIN_DISK_FREE_SHARE:
        step = "Shorten the retention of large topics, or give it a larger disk."
        yield it.warn("runs out of disk", f"{100 * free / size:.0f} % of its disk is free.", step)


def _of_topic(topic: TopicState) -> Iterator[Finding]:
    it = Thing(f"topic {topic.name}", ("topics", topic.name))
    if topic.refusals:
        step = "Producers get errors: make room, or see the node's log."
        yield it.bad(
            "refuses publishes", f"{'; '.join(topic.refusals)}.", step, "refuses publishes"
        )
    if topic.damaged:
        step = "Run penstock log verify on the node, and restore from a copy or the archive."
        yield it.bad("is damaged", "Part of its log can't be read.", step, "damaged")
    if topic.paused and topic.backlog:
        why = f"{wait(topic.backlog)}."
        yield it.note("is paused", why, "Unpause it when you are done.", "paused")
    if topic.depth and not topic.channels:
        why = f"{wait(topic.depth)} for the first channel."
        yield it.note("has no channel", why, "Start its consumer.", "no channel")


def _of_channel(
    channel: ChannelState, recent: Sequence[Sample], window: Window
) -> Iterator[Finding]:
    name = f"channel {channel.topic}/{channel.name}"
    it = Thing(name, ("topics", channel.topic, channel.name))
    waits = channel.depth + channel.in_flight
    grown = _grown(recent, window)
    # In a short window only what waits for longer than that is stuck.
    may_be_slow = window.is_short and 0 < channel.oldest_s < limits.ADMIN_WINDOW_S
    if channel.paused:
        if waits:
            yield it.note("is paused", f"{wait(waits)}.", "Unpause it when you are done.", "paused")
    elif channel.clients and waits and _idle(recent, window) and not may_be_slow:
        since = f" in {window.words}" if window.is_short else ""
        held = f"{count(channel.clients, 'consumer')}, {count(waits, 'message')}"
        step = "Look at what its consumers do; messages in flight, and held ones, are on its page."
        yield it.bad("is stuck", f"{held}, and none was finished{since}.", step, "stuck")
    elif not channel.clients and grown > 0:
        why, step = f"It has no consumer, and {wait(channel.depth)}.", "Start its consumers."
        yield Thing("nobody", it.path).warn(f"reads {name}", why, step, "no consumers")
    elif grown > 0 and channel.depth > limits.ADMIN_GROWING_MIN:
        why = f"{grown:,.0f} more than {window.words} ago: {channel.depth:,} wait."
        step = "Find what slows its consumers, or add some (if strictly ordered, partitions too)."
        yield it.warn("falls behind", why, step, "falls behind")
    if channel.timeout_rate > max(limits.ADMIN_TIMEOUT_SHARE * channel.finish_rate, 0.5):
        why = f"{channel.timeout_rate:.1f} messages a second come back."
        step = "Consumers need longer than msg-timeout: let them TOUCH, or raise it."
        yield it.warn("times out", why, step, "times out")
    if channel.dead_letters:
        where = f" in {channel.dead_letter_topic}" if channel.dead_letter_topic else ""
        why = f"{wait(channel.dead_letters)}{where}, given up."
        step = "Look at them on its page, repair the consumer, then redrive them."
        yield it.warn("has dead letters", why, step, "dead letters")


def _of_partitions(channel: ChannelState) -> Iterator[Finding]:
    """Findings that the sums hide."""
    path, name = ("topics", channel.topic, channel.name), f"channel {channel.topic}/{channel.name}"
    unread = [one for one in channel.partitions if one.depth and not one.row.get("client_count")]
    if unread and channel.clients and not channel.paused:
        numbers = ", ".join(str(one.partition) for one in unread)
        waits = sum(one.depth for one in unread)
        why = f"{wait(waits)} in {numbers}; its consumers have chosen other partitions."
        step = "Start consumers for these, or some that take all partitions."
        is_ = f"reads partition {numbers} of {name}"
        yield Thing("nobody", path).warn(is_, why, step, "unread")
        return
    worst = snapshot.lagging(channel.partitions)
    if worst is None or worst.depth <= limits.ADMIN_GROWING_MIN:
        return
    if worst.oldest_s > limits.ADMIN_OLD_S and not channel.paused:
        why = f"{worst.depth:,} of the {channel.depth:,} messages that wait are in it."
        step = "Look for a key that most messages have, or for messages that fail again and again."
        yield Thing(f"partition {worst.partition} of {name}", path).warn(
            "lags", why, step, "one partition lags"
        )


def _of_cluster(cluster: Replication) -> Iterator[Finding]:
    """One of each kind for a topic, whatever its number of partitions."""
    by_topic: dict[tuple[str, str], list[Copies]] = {}
    for one in cluster.partitions:
        if one.fault:
            by_topic.setdefault((one.topic, one.fault), []).append(one)
    for (topic, fault), found in by_topic.items():
        it = Thing(f"topic {topic}", ("topics", topic))
        since = span(max(one.since_s for one in found))
        numbers = listed((str(one.partition) for one in found), _NUMBERS_SHOWN)
        where = f"{'Partition' if len(found) == 1 else 'Partitions'} {numbers}, for {since}"
        in_sync = {node for one in found for node in one.in_sync}
        away = in_sync.intersection(cluster.silent)
        if fault == "no leader":
            nodes = ", ".join(map(str, sorted(away or in_sync)))
            step = f"Start a node that has all that is acknowledged: {nodes}."
            yield it.bad("has no leader", f"{where}.", step, fault)
            continue
        why, step = f"{where}: a copy is not in sync.", "It is being made, if enough nodes run."
        missing = sorted(away.union(*(one.missing for one in found)))
        if missing:
            step = f"See whether these nodes run: {', '.join(map(cluster.named, missing))}."
        if fault == "no publishes":
            why = f"{where}: fewer copies are in sync than a publish needs."
            yield it.bad("refuses publishes", why, step, fault)
            continue
        yield it.warn("is under-replicated", why, step, fault)


def _seen(recent: Sequence[Sample], window: Window) -> list[Measures]:
    """The samples of the window, or none when it is not full yet."""
    if not recent or recent[-1].time_s - recent[0].time_s < window.span_s:
        return []
    since_s = recent[-1].time_s - max(window.span_s, limits.ADMIN_WINDOW_S)
    return [one.values for one in recent if one.time_s >= since_s and one.values is not None]


def _idle(recent: Sequence[Sample], window: Window) -> bool:
    """It held messages through the whole window, and none left."""
    seen = _seen(recent, window)
    return bool(seen) and all(
        values.out_rate == 0 and values.depth + values.in_flight > 0 for values in seen
    )


def _grown(recent: Sequence[Sample], window: Window) -> float:
    """The growth of the depth, when it never fell in three parts of the window."""
    seen = [values.depth for values in _seen(recent, window)]
    if len(seen) < window.samples_min:
        return 0.0
    depths = [seen[0], seen[len(seen) // 2], seen[-1]]
    return depths[-1] - depths[0] if depths == sorted(depths) else 0.0
