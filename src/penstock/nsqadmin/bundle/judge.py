"""What is wrong in an installation, from a bundle.

Two kinds of rules: those of nsqadmin's "needs attention" (attention.py), over a snapshot that is
made anew from the bundle's two samples, and those that need a view of several nodes at once or of a
machine, which only a bundle has (`across.py`, `onmachine.py`). What nsqadmin itself had found over
its minutes is in the bundle when nsqadmin has gathered it, and is taken over.

A foreign daemon may say anything: what is not of the form that is expected counts as not said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock import limits
from penstock.nsqadmin import attention, snapshot
from penstock.nsqadmin.attention import Finding, Level, Window
from penstock.nsqadmin.bundle import across, onmachine
from penstock.nsqadmin.bundle.contents import Node, contents
from penstock.nsqadmin.bundle.reading import Bundle
from penstock.nsqadmin.history import Sample, series_of
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import Producer

_SHARE = 0.5  # of the time between the samples: what of it a window has to have


def judge(bundle: Bundle) -> list[Finding]:
    """The worst first."""
    held = contents(bundle)
    found = list(_by_attention(held.nodes))
    found += _by_nsqadmin(bundle)
    found += across.findings(held)
    found += onmachine.findings(bundle, held)
    kept: dict[str, Finding] = {}
    for one in found:
        known = kept.get(one.what)
        if known is None or known.level < one.level:
            kept[one.what] = one
    return sorted(kept.values(), key=lambda one: (-one.level, one.what))


def _by_attention(nodes: list[Node]) -> Iterator[Finding]:
    first, last = _snapshots(nodes)
    span_s = last.time_s - first.time_s
    before, now = dict(series_of(first)), dict(series_of(last))
    past: dict[str, list[Sample]] = {}
    for name, values in now.items() if span_s else ():
        if name in before:
            past[name] = [Sample(first.time_s, before[name]), Sample(last.time_s, values)]
    # The samples of other nodes may be a little closer together.
    window = Window(min(span_s, limits.ADMIN_WINDOW_S) * _SHARE, 2, f"{span_s:.0f} s")
    yield from attention.findings(last, lambda name: past.get(name, ()), window)


def _snapshots(nodes: list[Node]) -> tuple[Snapshot, Snapshot]:
    """As the two samples show it."""
    found: list[Snapshot] = []
    for number in (0, 1):
        states = {one.address: _state(one, number) for one in nodes}
        before = found[-1] if found else Snapshot()
        spans = [one.span_s for one in nodes if one.span_s]
        time_s = float(number) * max(spans, default=0.0)
        found.append(snapshot.make(time_s, states, (), (), before))
    return found[0], found[1]


def _state(node: Node, number: int) -> NodeState:
    producer = Producer("", node.address, 0, 0, node.version, given_address=node.address)
    state = NodeState(node.address, producer, node.samples[number], error=node.error)
    state.answered_s = node.times_s[number]
    return state


def _by_nsqadmin(bundle: Bundle) -> Iterator[Finding]:
    rows = bundle.document("nsqadmin/attention.json").get("findings")
    for row in rows if isinstance(rows, list) else ():
        try:
            path = tuple(str(one) for one in row["place"])
            level, what = Level(row["level"]), str(row["what"])
            why, step = str(row["why"]), str(row["next_step"])
        except (KeyError, TypeError, ValueError):
            continue
        yield Finding(level, what, why, step, path)


def rows_of(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "level": ("NOTE", "WARNING", "CRITICAL")[one.level],
            "what": one.what,
            "where": "/".join(one.path),
            "why": one.why,
            "next_step": one.next_step,
        }
        for one in found
    ]
