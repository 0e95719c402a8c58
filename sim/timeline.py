"""One history as a person can read it: what happened, who said what, and what each node had then.

A line of the text is an event that changed something; below it stand the frames that it sent, and
the nodes that are different now. The HTML has a column for each node.
"""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.log.epochs import BatchName, Extent
from penstock.replication.record import PartitionRecord


class Moment(NamedTuple):
    step: int
    event: str
    record: str  # as the coordinator has it; empty: as before
    nodes: tuple[str, ...]  # empty: as before
    frames: tuple[tuple[int, int, str], ...]  # from, to, what


class Timeline(NamedTuple):
    seed: int
    summary: str
    moments: tuple[Moment, ...]
    breach: str  # empty: everything held


class Moments:
    """Gathers them while a history is played."""

    def __init__(self) -> None:
        self.found: list[Moment] = []
        self._sent: list[tuple[int, int, str]] = []
        self._before: list[str] = []

    def sent(self, source: int, target: int, frame: Any) -> None:
        self._sent.append((source, target, named(frame)))

    def happened(self, step: int, event: str, record: str, nodes: Sequence[str]) -> None:
        """`event` is over, and this is how things stand."""
        now = [record, *nodes]
        before = self._before or [""] * len(now)
        changed = [new if new != old else "" for new, old in zip(now, before, strict=True)]
        if any(changed) or self._sent:
            frames = tuple(self._sent)
            self.found.append(Moment(step, event, changed[0], tuple(changed[1:]), frames))
        self._before = now
        self._sent.clear()


def record_text(record: PartitionRecord) -> str:
    leader = "no node" if record.leader is None else f"node {record.leader.node}"
    members = " ".join(f"{m.node}(r{m.replica} g{m.generation})" for m in record.members)
    return f"epoch {record.epoch}, {leader} leads, members {members}, at least {record.members_min}"


def named(frame: Any) -> str:
    fields = [f"{name}={_short(value)}" for name, value in zip(frame._fields, frame, strict=True)]
    return f"{type(frame).__name__}({', '.join(fields)})"


def _short(value: Any) -> str:
    if isinstance(value, Extent):
        return f"{value.start}..{value.end} {value.epochs}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, tuple) and value and hasattr(value[0], "content"):
        return "[" + " ".join(f"{batch.content}@e{batch.epoch}" for batch in value) + "]"
    if isinstance(value, BatchName):
        return f"{value.crc}@e{value.epoch}"
    return str(value)


def as_text(one: Timeline) -> str:
    lines = [f"seed {one.seed}: {one.summary}"]
    for moment in one.moments:
        lines.append(f"{moment.step:4} {moment.event}")
        if moment.record:
            lines.append(f"     record  {moment.record}")
        lines += [f"     node {n}  {state}" for n, state in enumerate(moment.nodes) if state]
        lines += [f"       {a} > {b}  {frame}" for a, b, frame in moment.frames]
    lines.append(f"BROKEN {one.breach}" if one.breach else "everything held")
    return "\n".join(lines)


_STYLE = (
    "body{font:13px system-ui}table{border-collapse:collapse}td,th{border:1px solid #ccc;"
    "padding:2px 6px;vertical-align:top}code{font-size:11px;color:#666}.b{background:#fcc}"
)


def as_html(one: Timeline) -> str:
    count = len(one.moments[0].nodes)
    heads = "".join(f"<th>node {n}</th>" for n in range(count))
    rows = "".join(_html_row(moment) for moment in one.moments)
    end = html.escape(one.breach or "everything held")
    return (
        f"<!doctype html><meta charset=utf-8><title>seed {one.seed}</title><style>{_STYLE}</style>"
        f"<h1>Seed {one.seed}</h1><p>{html.escape(one.summary)}</p>"
        f"<table><tr><th>step<th>event<th>record{heads}<th>frames</tr>{rows}</table>"
        f"<p class={'b' if one.breach else 'a'}>{end}</p>"
    )


def _html_row(moment: Moment) -> str:
    frames = "<br>".join(html.escape(f"{a} > {b} {frame}") for a, b, frame in moment.frames)
    nodes = "".join(f"<td>{html.escape(state)}" for state in moment.nodes)
    event, record = html.escape(moment.event), html.escape(moment.record)
    return f"<tr><td>{moment.step}<td>{event}<td>{record}{nodes}<td><code>{frames}</code></tr>"
