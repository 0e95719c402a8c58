"""Runs of pipelines as documents of `/api`: for scripts, dashboards and alarms."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.nsqadmin.runs import Run, Runs, command, done_share

Document = dict[str, Any]


def document(runs: Runs, run: Run) -> Document:
    """All that the run says of itself, whose secrets are `***` already, and how we see it."""
    state = run.state
    found = msgspec.structs.asdict(state)
    found["logs"] = [msgspec.structs.asdict(one) for one in state.logs]
    share = done_share(state)
    return found | {
        "phase": runs.phase(run),
        "done_share": None if share is None else round(share, 4),
        "node": run.node,
        "heard_s": run.heard_s,
    }


def whole(runs: Runs, run: Run) -> Document:
    """With its chart, and the command that starts it again."""
    points = [
        {"time_s": one.time_s, "rows_per_second": one.rate, "lag_rows": one.lag_rows,
         "lag_seconds": one.lag_seconds}
        for one in run.track.points()
    ]  # fmt: skip
    return document(runs, run) | {"points": points, "command": command(run.state)}
