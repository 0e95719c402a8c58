"""Each installation in a line, for who looks after several: whether it can be reached, what moves,
and what is worst in it.

Values in, values out, but for `glances`, which remembers the findings of an installation's last
snapshot: however many look, they are found once. The order is that in which somebody should look:
what can't be reached, then by the worst finding and how many there are of its kind, then by name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from penstock.nsqadmin.attention import Finding, Level, findings, of_runs
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.snapshot import Snapshot
from penstock.nsqadmin.watch import Watch

FINE, UNREACHABLE, UNKNOWN = "fine", "unreachable", "not asked yet"
_STATES = {Level.BAD: "fault", Level.WARN: "warning", Level.NOTE: "note"}
_RANKS = (UNREACHABLE, "fault", "warning", UNKNOWN, "note", FINE)


class Glance(NamedTuple):
    name: str
    state: str  # of _RANKS
    why: str  # it can't be reached
    nodes: int
    nodes_up: int
    in_rate: float
    out_rate: float
    depth: int
    counts: dict[str, int]  # of findings, by fault, warning, note
    worst: Finding | None
    runs: int  # pipelines that need attention

    @property
    def rank(self) -> tuple[int, int, str]:
        return (_RANKS.index(self.state), -self.counts.get(self.state, 0), self.name)


def at(name: str, snapshot: Snapshot, found: Iterable[Finding]) -> Glance:
    """`found`: what needs attention there, pipelines among it."""
    ordered = sorted(found, key=lambda one: -one.level)
    nodes = snapshot.nodes.values()
    up = sum(one.is_up for one in nodes)
    counts = Counter(_STATES[one.level] for one in ordered)
    state, why = FINE, ""
    if not snapshot.time_s:
        state = UNKNOWN
    elif not up and (nodes or snapshot.errors):
        state = UNREACHABLE
        why = next(iter(snapshot.errors), "") or next(one.error for one in nodes)
    elif ordered:
        state = _STATES[ordered[0].level]
    return Glance(
        name, state, why, len(nodes), up, snapshot.in_rate, snapshot.finish_rate,
        snapshot.backlog, {word: counts[word] for word in _STATES.values()},
        ordered[0] if ordered else None, sum(one.path[:1] == ("pipelines",) for one in ordered),
    )  # fmt: skip


_found: WeakKeyDictionary[Watch, tuple[Snapshot, list[Finding]]] = WeakKeyDictionary()


def glances(grounds: Iterable[Ground]) -> list[Glance]:
    """Of these, the worst first."""
    return sorted(map(_glance, grounds), key=lambda one: one.rank)


def _glance(ground: Ground) -> Glance:
    latest = ground.watch.latest
    known = _found.get(ground.watch)
    if known is None or known[0] is not latest:
        known = _found[ground.watch] = (latest, findings(latest, ground.history.window))
    return at(ground.name, latest, known[1] + of_runs(ground.runs.runs, time.time()))


def document(one: Glance, home: str, is_default: bool) -> dict[str, Any]:
    """For `/api/installations`."""
    worst = one.worst
    return {
        "name": one.name,
        "path": home,
        "default": is_default,
        "state": one.state,
        "why": one.why,
        "nodes": one.nodes,
        "nodes_up": one.nodes_up,
        "in_rate": round(one.in_rate, 1),
        "out_rate": round(one.out_rate, 1),
        "depth": one.depth,
        "findings": one.counts,
        "worst": None if worst is None else {
            "level": _STATES[worst.level], "what": worst.what, "why": worst.why,
            "next_step": worst.next_step,
        },
        "runs": one.runs,
    }  # fmt: skip
